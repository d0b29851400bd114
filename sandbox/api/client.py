"""Send requests to the sandbox's API server for the other parts, mirror objects, and write events."""

import asyncio
import ssl
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlencode

import aiohttp
import msgspec

from gas.values.errors import GasError
from sandbox.api.patches import MERGE_PATCH

Object = dict[str, Any]


class RefusedByApi(GasError):
    """The API server refused a request, with HTTP status ``code`` and sentence ``message``."""

    def __init__(self, method: str, path: str, code: int, message: str) -> None:
        super().__init__(f"{method} {path}: {code}, {message}")
        self.code = code
        self.message = message


API_FAILURES = (RefusedByApi, aiohttp.ClientError, TimeoutError)


WatchEvent = tuple[str, Object]  # ADDED, MODIFIED, DELETED or BOOKMARK, and the object


class ApiRequests(ABC):
    """Send requests with objects as plain mappings.

    All requests raise RefusedByApi, and aiohttp.ClientError or TimeoutError if the server does not respond.
    """

    async def get(self, path: str, **query: str) -> Object:
        return await self._request("GET", f"{path}?{urlencode(query)}" if query else path)

    async def post(self, path: str, value: Object) -> Object:
        return await self._request("POST", path, value)

    async def patch(self, path: str, value: Object, content_type: str = MERGE_PATCH) -> Object:
        return await self._request("PATCH", path, value, content_type)

    async def delete(self, path: str, options: Object | None = None) -> Object:
        return await self._request("DELETE", path, options)

    @asynccontextmanager
    async def watch(self, path: str, version: str, **query: str) -> AsyncIterator[AsyncIterator[WatchEvent]]:
        """Watch the changes after ``version`` until the server ends the stream. An ERROR event raises RefusedByApi."""
        asked = urlencode({"watch": "true", "resourceVersion": version, "allowWatchBookmarks": "true", **query})
        async with self.stream(f"{path}{'&' if '?' in path else '?'}{asked}") as (status, pieces):
            if status != 200:
                raise _refusal("GET", path, status, b"".join([piece async for piece in pieces]))
            yield _events(path, pieces)

    async def _request(
        self, method: str, path: str, value: Object | None = None, content_type: str = "application/json"
    ) -> Object:
        body = msgspec.json.encode(value) if value is not None else b""
        status, response = await self.exchange(method, path, body, content_type)
        if status >= 300:
            raise _refusal(method, path, status, response)
        return msgspec.json.decode(response, type=Object)

    @abstractmethod
    async def exchange(self, method: str, path: str, body: bytes, content_type: str) -> tuple[int, bytes]:
        """Return status and body of the response. An empty body is not sent."""

    @abstractmethod
    def stream(self, path: str) -> AbstractAsyncContextManager[tuple[int, AsyncIterator[bytes]]]:
        """Return status and body of the response, in the parts in which it arrives."""


class ApiClient(ApiRequests):
    """Send requests over HTTP. Use it as ``async with ApiClient(url) as client``.

    ``authority`` is the file with the certificate that signed the server's, for https.
    """

    def __init__(self, url: str, *, token: str | None = None, authority: Path | None = None) -> None:
        self._url = url
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._authority = authority

    async def __aenter__(self) -> Self:
        trusted = ssl.create_default_context(cafile=self._authority) if self._authority else True
        connector = aiohttp.TCPConnector(ssl=trusted, limit=0)
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=10)
        self._session = aiohttp.ClientSession(self._url, headers=self._headers, connector=connector, timeout=timeout)
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self._session.close()

    async def exchange(self, method: str, path: str, body: bytes, content_type: str) -> tuple[int, bytes]:
        headers = {"Content-Type": content_type} if body else None
        async with self._session.request(method, path, data=body or None, headers=headers) as response:
            return response.status, await response.read()

    @asynccontextmanager
    async def stream(self, path: str) -> AsyncIterator[tuple[int, AsyncIterator[bytes]]]:
        async with self._session.get(path) as response:
            yield response.status, response.content.iter_any()


def _refusal(method: str, path: str, code: int, answer: bytes) -> RefusedByApi:
    try:
        message = str(msgspec.json.decode(answer, type=Object).get("message", ""))
    except msgspec.MsgspecError:
        message = answer[:200].decode(errors="replace")
    return RefusedByApi(method, path, code, message)


async def _events(path: str, pieces: AsyncIterator[bytes]) -> AsyncIterator[WatchEvent]:
    rest = b""
    async for piece in pieces:
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            event = msgspec.json.decode(line, type=Object)
            if event["type"] == "ERROR":
                status = event["object"]
                raise RefusedByApi("GET", path, status.get("code", 500), status.get("message", ""))
            yield event["type"], event["object"]


def path_of(pod: Object) -> str:
    metadata = pod["metadata"]
    return f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}"


Changed = Callable[[Object | None, Object | None], None]
"""Called with an object before and after a change; None if it does not exist then."""

_PAUSE = 0.2


class Mirror:
    """The objects under one path of the API, by UID, kept current by a list and the watch after it.

    If the API server does not respond, the mirror retries until it does, then reports the changes it missed.
    ``complete`` is set after the first list.
    """

    def __init__(self, client: ApiRequests, path: str, changed: Changed) -> None:
        self.objects: dict[str, Object] = {}
        self.complete = asyncio.Event()
        self._client = client
        self._path = path
        self._changed = changed

    async def run(self) -> None:
        while True:
            try:
                version = await self._relist()
                self.complete.set()
                await self._watch(version)
            except API_FAILURES:
                await asyncio.sleep(_PAUSE)

    async def _relist(self) -> str:
        listed = await self._client.get(self._path)
        now = {item["metadata"]["uid"]: item for item in listed["items"]}
        for uid in [uid for uid in self.objects if uid not in now]:
            self._changed(self.objects.pop(uid), None)
        for uid, value in now.items():
            self._put(uid, value)
        return str(listed["metadata"]["resourceVersion"])

    async def _watch(self, version: str) -> None:
        """Watch from the last version seen, repeatedly. Raises RefusedByApi when the history is gone."""
        while True:
            async with self._client.watch(self._path, version, timeoutSeconds="600") as events:
                async for word, value in events:
                    metadata = value["metadata"]
                    version = metadata["resourceVersion"]
                    if word == "DELETED":
                        self._changed(self.objects.pop(metadata["uid"], None), None)
                    elif word != "BOOKMARK":
                        self._put(metadata["uid"], value)

    def _put(self, uid: str, value: Object) -> None:
        before = self.objects.get(uid)
        if before is None or before["metadata"]["resourceVersion"] != value["metadata"]["resourceVersion"]:
            self.objects[uid] = value
            self._changed(before, value)
