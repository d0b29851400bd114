"""How the sandbox's scheduler and pod runner talk to an API server: the sandbox's own or a real one."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import aiohttp
import msgspec

from gas.errors import GasError
from gas.sandbox import merge_patch


class RefusedByApi(GasError):
    """The API server answered with a failure. ``code`` is the HTTP status, ``message`` the server's sentence."""

    def __init__(self, method: str, path: str, code: int, message: str) -> None:
        super().__init__(f"{method} {path}: {code}, {message}")
        self.code = code
        self.message = message


@dataclass(frozen=True, slots=True)
class WatchEvent:
    word: str
    value: dict[str, Any]


class ApiClient:
    """Requests with objects as plain mappings; used as ``async with ApiClient(url) as client``.

    token      bearer token, if the server asks for one
    authority  file with the certificate of the authority that signed the server's, for https
    """

    def __init__(self, url: str, *, token: str | None = None, authority: Path | None = None) -> None:
        self._url = url
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._authority = authority
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        trusted = ssl.create_default_context(cafile=self._authority) if self._authority else True
        connector = aiohttp.TCPConnector(ssl=trusted, limit=0)
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=10)
        self._session = aiohttp.ClientSession(self._url, headers=self._headers, connector=connector, timeout=timeout)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._session is not None:
            await self._session.close()

    async def get(self, path: str, **query: str) -> dict[str, Any]:
        """Raises RefusedByApi, and aiohttp.ClientError where there is no answer; so do the others."""
        return await self._request("GET", path, query=query)

    async def post(self, path: str, value: dict[str, Any]) -> dict[str, Any]:
        return await self._request("POST", path, value)

    async def patch(
        self, path: str, value: dict[str, Any], content_type: str = merge_patch.CONTENT_TYPE
    ) -> dict[str, Any]:
        return await self._request("PATCH", path, value, content_type=content_type)

    async def delete(self, path: str, options: dict[str, Any] | None = None) -> dict[str, Any]:
        return await self._request("DELETE", path, options)

    @asynccontextmanager
    async def watch(self, path: str, version: str, **query: str) -> AsyncIterator[AsyncIterator[WatchEvent]]:
        """The changes after ``version``, until the server ends the stream; an ERROR event raises RefusedByApi."""
        asked = {"watch": "true", "resourceVersion": version, "allowWatchBookmarks": "true", **query}
        async with self._open.get(path, params=asked) as response:
            if response.status != 200:
                raise _refusal("GET", path, response.status, await response.read())
            yield _events(path, response.content)

    @property
    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            raise RuntimeError("ApiClient is used inside `async with` only")
        return self._session

    async def _request(
        self,
        method: str,
        path: str,
        value: dict[str, Any] | None = None,
        *,
        query: dict[str, str] | None = None,
        content_type: str = "application/json",
    ) -> dict[str, Any]:
        body = msgspec.json.encode(value) if value is not None else None
        headers = {"Content-Type": content_type} if body is not None else None
        async with self._open.request(method, path, data=body, params=query, headers=headers) as response:
            answer = await response.read()
        if response.status >= 300:
            raise _refusal(method, path, response.status, answer)
        return msgspec.json.decode(answer, type=dict[str, Any])


def _refusal(method: str, path: str, code: int, answer: bytes) -> RefusedByApi:
    try:
        message = str(msgspec.json.decode(answer, type=dict[str, Any]).get("message", ""))
    except msgspec.MsgspecError:
        message = answer[:200].decode(errors="replace")
    return RefusedByApi(method, path, code, message)


async def _events(path: str, content: aiohttp.StreamReader) -> AsyncIterator[WatchEvent]:
    rest = b""
    async for piece in content.iter_any():
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            event = msgspec.json.decode(line, type=dict[str, Any])
            if event["type"] == "ERROR":
                status = event["object"]
                raise RefusedByApi("GET", path, status.get("code", 500), status.get("message", ""))
            yield WatchEvent(event["type"], event["object"])
