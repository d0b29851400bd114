"""What is written on pods by those who run them; it is sent until there is an answer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp

from gas.sandbox.api_client import ApiClient, RefusedByApi

Object = dict[str, Any]

_RETRY = 0.2


class PodWriter:
    """Writes status and end of pods, through an API server that may be away for a while."""

    def __init__(self, client: ApiClient) -> None:
        self._client = client

    async def set_status(self, pod: Object, status: Object) -> None:
        patch = {"metadata": {"uid": pod["metadata"]["uid"]}, "status": status}
        await insist(lambda: self._client.patch(f"{_path(pod)}/status", patch))

    async def delete(self, pod: Object) -> None:
        """At once, and only this very pod."""
        options = {"gracePeriodSeconds": 0, "preconditions": {"uid": pod["metadata"]["uid"]}}
        await insist(lambda: self._client.delete(_path(pod), options))


async def insist(send: Callable[[], Awaitable[Any]]) -> None:
    """Send until there is an answer. A refusal is one too: the object is gone, or is another by now."""
    while True:
        try:
            await send()
        except RefusedByApi as refusal:
            if refusal.code < 500:
                return
        except (aiohttp.ClientError, TimeoutError):
            pass
        else:
            return
        await asyncio.sleep(_RETRY)


def _path(pod: Object) -> str:
    metadata = pod["metadata"]
    return f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}"
