"""A copy of all objects of one kind, kept fresh by a list and the watch after it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import aiohttp

from gas.sandbox.api_client import ApiClient, RefusedByApi

Object = dict[str, Any]
Changed = Callable[[Object | None, Object | None], None]
"""Called with an object before and after a change; None: it was not there, or is not any more."""

_PAUSE = 0.2


class Mirror:
    """The objects under one path of the API, by UID.

    An API server that is away is asked again until it answers; what changed meanwhile is then told like any change.
    """

    def __init__(self, client: ApiClient, path: str, changed: Changed) -> None:
        self.objects: dict[str, Object] = {}
        self.complete = asyncio.Event()
        self._client = client
        self._path = path
        self._changed = changed

    async def run(self) -> None:
        """Keep the copy fresh until cancelled; ``complete`` is set after the first list."""
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
        for uid in self.objects.keys() - now.keys():
            self._changed(self.objects.pop(uid), None)
        for uid, value in now.items():
            self._put(uid, value)
        return str(listed["metadata"]["resourceVersion"])

    async def _follow(self, version: str) -> None:
        """Watch on and on from the last version seen. Raises RefusedByApi when the history is gone."""
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
