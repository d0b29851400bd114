"""A client of the sandbox's API server for the other parts: requests, a mirror of objects, and events."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from uuid import uuid4

import aiohttp
import msgspec

from gas.values.errors import GasError
from sandbox.api.kinds import timestamp
from sandbox.api.patches import MERGE_PATCH


class RefusedByApi(GasError):
    """The API server refused a request. ``code`` is the HTTP status, ``message`` the server's sentence."""

    def __init__(self, method: str, path: str, code: int, message: str) -> None:
        super().__init__(f"{method} {path}: {code}, {message}")
        self.code = code
        self.message = message


@dataclass(frozen=True, slots=True)
class WatchEvent:
    """One event of a watch. ``word`` is ADDED, MODIFIED, DELETED or BOOKMARK."""

    word: str
    value: dict[str, Any]


class ApiClient:
    """Send requests with objects as plain mappings. Use it as ``async with ApiClient(url) as client``.

    token      bearer token, if the server requires one
    authority  file with the certificate of the authority that signed the server's certificate, for https

    All requests raise RefusedByApi, and aiohttp.ClientError or TimeoutError if the server does not respond.
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
        """Return an object or a list."""
        return await self._request("GET", path, query=query)

    async def post(self, path: str, value: dict[str, Any]) -> dict[str, Any]:
        """Create an object or a subresource."""
        return await self._request("POST", path, value)

    async def patch(self, path: str, value: dict[str, Any], content_type: str = MERGE_PATCH) -> dict[str, Any]:
        """Patch an object."""
        return await self._request("PATCH", path, value, content_type=content_type)

    async def delete(self, path: str, options: dict[str, Any] | None = None) -> dict[str, Any]:
        """Delete an object."""
        return await self._request("DELETE", path, options)

    @asynccontextmanager
    async def watch(self, path: str, version: str, **query: str) -> AsyncIterator[AsyncIterator[WatchEvent]]:
        """Watch the changes after ``version`` until the server ends the stream. An ERROR event raises RefusedByApi."""
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


Object = dict[str, Any]
Changed = Callable[[Object | None, Object | None], None]
"""Called with an object before and after a change. None: it did not exist before, or does not exist any more."""

_LONGEST_NOTE = 1024
_ELLIPSIS = " ..."
_PAUSE = 0.2


class Mirror:
    """The objects under one path of the API, by UID, kept current by a list and the watch after it.

    If the API server does not respond, the mirror tries again until it does, then reports the changes it missed.

    objects   by UID
    complete  set after the first list
    """

    def __init__(self, client: ApiClient, path: str, changed: Changed) -> None:
        self.objects: dict[str, Object] = {}
        self.complete = asyncio.Event()
        self._client = client
        self._path = path
        self._changed = changed

    async def run(self) -> None:
        """Keep the objects current until cancelled."""
        while True:
            try:
                version = await self._relist()
                self.complete.set()
                await self._follow(version)
            except (RefusedByApi, aiohttp.ClientError, TimeoutError):
                await asyncio.sleep(_PAUSE)

    async def _relist(self) -> str:
        listed = await self._client.get(self._path)
        now = {item["metadata"]["uid"]: item for item in listed["items"]}
        for uid in [uid for uid in self.objects if uid not in now]:
            self._changed(self.objects.pop(uid), None)
        for uid, value in now.items():
            self._put(uid, value)
        return str(listed["metadata"]["resourceVersion"])

    async def _follow(self, version: str) -> None:
        """Watch from the last version seen, again and again. Raises RefusedByApi when the history is gone."""
        while True:
            async with self._client.watch(self._path, version, timeoutSeconds="600") as events:
                async for event in events:
                    metadata = event.value["metadata"]
                    version = metadata["resourceVersion"]
                    if event.word == "DELETED":
                        self._changed(self.objects.pop(metadata["uid"], None), None)
                    elif event.word != "BOOKMARK":
                        self._put(metadata["uid"], event.value)

    def _put(self, uid: str, value: Object) -> None:
        before = self.objects.get(uid)
        if before is None or before["metadata"]["resourceVersion"] != value["metadata"]["resourceVersion"]:
            self.objects[uid] = value
            self._changed(before, value)


class EventRecorder:
    """Write events about pods, as kube-scheduler and kubelet do: a repeated event is counted instead of written again.

    An event that the API server refuses is dropped.
    """

    def __init__(self, client: ApiClient, component: str) -> None:
        self._client = client
        self._component = component
        self._last: dict[tuple[str, str], tuple[str, str, int]] = {}

    async def record(self, pod: dict[str, Any], kind: str, reason: str, message: str) -> None:
        """Write an event of type Normal or Warning. Raises aiohttp.ClientError if the API server does not respond."""
        metadata, note, now = pod["metadata"], event_note(message), timestamp(datetime.now(UTC))
        path = f"/api/v1/namespaces/{metadata['namespace']}/events"
        same = (metadata["uid"], reason)
        name, last, count = self._last.get(same, ("", "", 0))
        try:
            if last == note:
                await self._client.patch(f"{path}/{name}", {"count": count + 1, "lastTimestamp": now})
                self._last[same] = (name, note, count + 1)
                return
            name = f"{metadata['name']}.{uuid4().hex[:16]}"
            event = {"type": kind, "reason": reason, "message": note, "firstTimestamp": now, "lastTimestamp": now}
            await self._client.post(path, event | self._involved_object(name, pod))
            self._last[same] = (name, note, 1)
        except RefusedByApi:
            self._last.pop(same, None)

    def forget(self, uid: str) -> None:
        """Forget the events of a pod that is gone."""
        for key in [key for key in self._last if key[0] == uid]:
            del self._last[key]

    def _involved_object(self, name: str, pod: dict[str, Any]) -> dict[str, Any]:
        metadata = pod["metadata"]
        return {
            "metadata": {"name": name},
            "involvedObject": {
                "kind": "Pod",
                "apiVersion": "v1",
                "namespace": metadata["namespace"],
                "name": metadata["name"],
                "uid": metadata["uid"],
            },
            "source": {"component": self._component},
            "reportingComponent": self._component,
            "count": 1,
        }


def event_note(sentence: str) -> str:
    """Shorten a sentence to the length that an event allows."""
    if len(sentence) <= _LONGEST_NOTE:
        return sentence
    return sentence[: _LONGEST_NOTE - len(_ELLIPSIS)] + _ELLIPSIS
