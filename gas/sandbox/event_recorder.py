"""Events about pods, as kube-scheduler writes them: the same one again is counted, not repeated."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

from gas.sandbox.api_client import ApiClient, RefusedByApi
from gas.sandbox.metadata import timestamp
from gas.sandbox.unschedulable import event_note


class EventRecorder:
    """Writes events. One that the API server refuses is lost; nobody waits for it."""

    def __init__(self, client: ApiClient, component: str) -> None:
        self._client = client
        self._component = component
        self._last: dict[tuple[str, str], tuple[str, str, int]] = {}

    async def record(self, pod: dict[str, Any], kind: str, reason: str, message: str) -> None:
        """``kind`` is Normal or Warning. Raises aiohttp.ClientError when the API server is away."""
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
            told = {"type": kind, "reason": reason, "message": note, "firstTimestamp": now, "lastTimestamp": now}
            await self._client.post(path, told | self._frame(name, pod))
            self._last[same] = (name, note, 1)
        except RefusedByApi:
            self._last.pop(same, None)

    def forget(self, uid: str) -> None:
        """The pod is gone: there will be no more about it."""
        for key in [key for key in self._last if key[0] == uid]:
            del self._last[key]

    def _frame(self, name: str, pod: dict[str, Any]) -> dict[str, Any]:
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
