"""The nodes of the simulation: kubelet runs the pods that are bound to its node, and ends them."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import aiohttp

from sandbox.api.client import ApiClient, Mirror, RefusedByApi
from simulation.chance import Chance
from simulation.network import Client

RUN_SECONDS = "simulation/run-seconds"
"""Pod annotation: how long its containers run; without it they run until the pod is deleted."""

RETRY = 1.0


class Kubelet:
    """The kubelet of one node. Containers go on while it is away; a new one takes over."""

    def __init__(self, node: str, client: Client, chance: Chance) -> None:
        self._node = node
        self._client = client
        self._chance = chance
        self._mirror = Mirror(
            cast(ApiClient, client), f"/api/v1/pods?fieldSelector=spec.nodeName%3D{node}", self._changed
        )
        self._lives: dict[str, asyncio.Task[None]] = {}
        self._tasks: asyncio.TaskGroup

    async def run(self) -> None:
        """Run until the process is killed."""
        async with asyncio.TaskGroup() as self._tasks:
            self._tasks.create_task(self._mirror.run())

    def _changed(self, before: dict[str, Any] | None, after: dict[str, Any] | None) -> None:
        pod = after or before
        if pod is None or pod["spec"].get("nodeName") != self._node:
            return
        uid = pod["metadata"]["uid"]
        if after is None:
            if (life := self._lives.pop(uid, None)) is not None:
                life.cancel()
            return
        ending = "deletionTimestamp" in pod["metadata"]
        if uid in self._lives and not (ending and (before is None or "deletionTimestamp" not in before["metadata"])):
            return
        if (life := self._lives.pop(uid, None)) is not None:
            life.cancel()
        self._lives[uid] = self._tasks.create_task(self._end(pod) if ending else self._live(pod))

    async def _live(self, pod: dict[str, Any]) -> None:
        phase = pod.get("status", {}).get("phase")
        if phase in ("Succeeded", "Failed"):
            return
        if not await self._admitted(pod):
            await self._write(pod, "Failed")
            return
        if phase != "Running":
            await asyncio.sleep(self._chance.between(0.1, 2.0))
            await self._write(pod, "Running")
        seconds = (pod["metadata"].get("annotations") or {}).get(RUN_SECONDS)
        if seconds is not None:
            await asyncio.sleep(float(seconds))
            await self._write(pod, "Succeeded")

    async def _admitted(self, _pod: dict[str, Any]) -> bool:
        """Return whether a pod may run on this node."""
        return True

    async def _end(self, pod: dict[str, Any]) -> None:
        await asyncio.sleep(self._chance.between(0.1, 3.0))
        options = {"gracePeriodSeconds": 0, "preconditions": {"uid": pod["metadata"]["uid"]}}
        await self._insist(lambda: self._client.delete(_path(pod), options))

    async def _write(self, pod: dict[str, Any], phase: str) -> None:
        # Kubelet writes the time once it has admitted or refused the pod.
        status = {"phase": phase, "startTime": pod["metadata"]["creationTimestamp"]}
        patch = {"metadata": {"uid": pod["metadata"]["uid"]}, "status": status}
        await self._insist(lambda: self._client.patch(f"{_path(pod)}/status", patch))

    async def _insist(self, send: Any) -> None:
        while True:
            try:
                await send()
            except RefusedByApi as refused:
                if refused.code not in (429, 500, 503):
                    return
            except (aiohttp.ClientError, TimeoutError):
                pass
            else:
                return
            await asyncio.sleep(RETRY)


def _path(pod: dict[str, Any]) -> str:
    return f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"
