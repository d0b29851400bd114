"""What kubelet does to pods, as far as the API shows it: they start, run, end, and go when they are deleted."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import aiohttp

from gas.sandbox.api_client import ApiClient, RefusedByApi
from gas.sandbox.metadata import timestamp
from gas.sandbox.mirror import Mirror, Object

RUN_SECONDS = "gas-sandbox/run-seconds"
"""Annotation of a pod: how long its containers run."""
STOP_SECONDS = "gas-sandbox/stop-seconds"
"""Annotation of a pod: how long its containers take to end when asked to; no longer than the grace period."""

_RETRY = 0.2


@dataclass(frozen=True, slots=True)
class Pace:
    """How long things take, in seconds, for pods that do not say it themselves.

    init  each init container
    run   the containers; None: until they are deleted
    stop  from being asked to end to the end
    """

    init: float = 0.05
    run: float | None = None
    stop: float = 0.1


class PodRunner:
    """Runs every pod that is bound to a node, on all nodes, until `run` is cancelled.

    but_not  nodes that have a kubelet of their own
    """

    def __init__(self, client: ApiClient, pace: Pace | None = None, *, but_not: Collection[str] = ()) -> None:
        self._client = client
        self._pace = pace or Pace()
        self._but_not = but_not
        self._pods = Mirror(client, "/api/v1/pods", self._changed)
        self._lives: dict[str, asyncio.Task[None]] = {}
        self._stopping: set[str] = set()
        self._tasks = asyncio.TaskGroup()

    async def run(self) -> None:
        """Run pods until cancelled; what a pod was doing then ends where it is."""
        async with self._tasks:
            await self._pods.run()

    def _changed(self, before: Object | None, after: Object | None) -> None:
        pod = after or before
        if pod is None or pod["spec"].get("nodeName") in (None, "", *self._but_not):
            return
        uid = pod["metadata"]["uid"]
        if after is None:
            self._end(uid)
            self._stopping.discard(uid)
        elif "deletionTimestamp" in after["metadata"]:
            if uid not in self._stopping:
                self._end(uid)
                self._stopping.add(uid)
                self._lives[uid] = self._tasks.create_task(self._stop(after))
        elif uid not in self._lives and after.get("status", {}).get("phase") not in ("Succeeded", "Failed"):
            self._lives[uid] = self._tasks.create_task(self._live(after))

    def _end(self, uid: str) -> None:
        if (life := self._lives.pop(uid, None)) is not None:
            life.cancel()

    async def _live(self, pod: Object) -> None:
        for _ in _ordinary_init_containers(pod):
            await asyncio.sleep(self._pace.init)
        await self._set_status(pod, _running(pod))
        seconds = _seconds(pod, RUN_SECONDS, self._pace.run)
        if seconds is None:
            return
        await asyncio.sleep(seconds)
        await self._set_status(pod, _ended(pod))

    async def _stop(self, pod: Object) -> None:
        metadata = pod["metadata"]
        seconds = _seconds(pod, STOP_SECONDS, self._pace.stop) or 0
        await asyncio.sleep(min(seconds, metadata.get("deletionGracePeriodSeconds", 0)))
        await self._set_status(pod, _ended(pod))
        options = {"gracePeriodSeconds": 0, "preconditions": {"uid": metadata["uid"]}}
        await self._insist(lambda: self._client.delete(_path(pod), options))

    async def _set_status(self, pod: Object, status: Object) -> None:
        patch = {"metadata": {"uid": pod["metadata"]["uid"]}, "status": status}
        await self._insist(lambda: self._client.patch(f"{_path(pod)}/status", patch))

    async def _insist(self, send: Any) -> None:
        """Send until there is an answer. A refusal is one too: the pod is gone, or is another by now."""
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


def _seconds(pod: Object, annotation: str, otherwise: float | None) -> float | None:
    """The number in the annotation; one that cannot be read counts as not given."""
    annotations: Mapping[str, str] = pod["metadata"].get("annotations") or {}
    try:
        return max(float(annotations[annotation]), 0)
    except (KeyError, ValueError):
        return otherwise


def _ordinary_init_containers(pod: Object) -> list[Object]:
    containers = pod["spec"].get("initContainers") or []
    return [container for container in containers if container.get("restartPolicy") != "Always"]


def _running(pod: Object) -> Object:
    now = timestamp(datetime.now(UTC))
    state = {"running": {"startedAt": now}}
    return {"phase": "Running", "startTime": now, **_details(pod, state, ready=True)}


def _ended(pod: Object) -> Object:
    now = timestamp(datetime.now(UTC))
    state = {"terminated": {"exitCode": 0, "reason": "Completed", "finishedAt": now}}
    return {"phase": "Succeeded", **_details(pod, state, ready=False)}


def _details(pod: Object, state: Object, *, ready: bool) -> Object:
    now, word = timestamp(datetime.now(UTC)), "True" if ready else "False"
    conditions = {
        "PodScheduled": "True",
        "Initialized": "True",
        "ContainersReady": word,
        "Ready": word,
    }
    return {
        "conditions": [
            {"type": name, "status": status, "lastTransitionTime": now} for name, status in conditions.items()
        ],
        "containerStatuses": [
            {
                "name": container["name"],
                "image": container["image"],
                "imageID": "",
                "restartCount": 0,
                "ready": ready,
                "state": state,
            }
            for container in pod["spec"]["containers"]
        ],
    }
