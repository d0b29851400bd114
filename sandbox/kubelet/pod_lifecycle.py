"""The life of a pod after its admission: its containers start, run and end, and its status says so."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

import aiohttp

from sandbox.api.client import ApiClient, RefusedByApi
from sandbox.api.kinds import timestamp
from sandbox.kubelet.containers import (
    Container,
    Containers,
    KubeletPace,
    container_devices,
    container_seconds,
    restart_seconds,
    stop_seconds,
)
from sandbox.kubelet.device_manager import Allocation, requested_devices
from sandbox.kubelet.device_plugins import PluginFailed

Object = dict[str, Any]

_RETRY = 0.2


def pod_status(pod: Object, containers: Containers, phase: str) -> Object:
    """Return the status of an admitted pod, with the current states of its containers."""
    running = phase == "Running"
    return {
        "phase": phase,
        "startTime": pod.get("status", {}).get("startTime") or _now(),
        "conditions": _conditions(ready=running),
        "initContainerStatuses": _statuses(pod, pod["spec"].get("initContainers") or [], containers),
        "containerStatuses": _statuses(pod, pod["spec"]["containers"], containers),
    }


def rejected_status(reason: str, message: str) -> Object:
    """Return the status of a pod that kubelet rejected: failed for good, without container statuses."""
    return {"phase": "Failed", "reason": reason, "message": message, "startTime": _now()}


def _statuses(pod: Object, specified: list[Object], containers: Containers) -> list[Object]:
    uid = pod["metadata"]["uid"]
    return [_status(container, containers.get(uid, container["name"])) for container in specified]


def _status(specified: Object, container: Container | None) -> Object:
    resources = {name: str(amount) for name, amount in requested_devices(specified).items()}
    common = {"name": specified["name"], "image": specified["image"], "imageID": "", "allocatedResources": resources}
    if container is None:
        waiting = {"waiting": {"reason": "PodInitializing"}}
        return {**common, "ready": False, "started": False, "restartCount": 0, "state": waiting}
    state: Object = {"running": {"startedAt": _now()}}
    if not container.is_running:
        code, reason = (0, "Completed") if container.succeeded else (1, "Error")
        state = {"terminated": {"exitCode": code, "reason": reason, "finishedAt": _now(), "containerID": container.id}}
    return {
        **common,
        "ready": container.is_running,
        "started": container.is_running,
        "restartCount": container.restarts,
        "containerID": container.id,
        "state": state,
    }


def _conditions(*, ready: bool) -> list[Object]:
    word, now = "True" if ready else "False", _now()
    found = {"PodScheduled": "True", "Initialized": word, "ContainersReady": word, "Ready": word}
    return [{"type": name, "status": status, "lastTransitionTime": now} for name, status in found.items()]


def _now() -> str:
    return timestamp(datetime.now(UTC))


class PodWriter:
    """Write the status of pods, and delete them. Retry while the API server does not respond."""

    def __init__(self, client: ApiClient) -> None:
        self._client = client

    async def set_status(self, pod: Object, status: Object) -> None:
        """Write the status of this pod, but not of another pod with the same name."""
        patch = {"metadata": {"uid": pod["metadata"]["uid"]}, "status": status}
        await retry(lambda: self._client.patch(f"{_path(pod)}/status", patch))

    async def delete(self, pod: Object) -> None:
        """Delete this pod at once, but not another pod with the same name."""
        options = {"gracePeriodSeconds": 0, "preconditions": {"uid": pod["metadata"]["uid"]}}
        await retry(lambda: self._client.delete(_path(pod), options))


async def retry(send: Callable[[], Awaitable[Any]]) -> None:
    """Send a request until the API server responds. A refusal also counts: the object is gone or was replaced."""
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


class PodLifecycle:
    """Run pods, each in a task of its own, and write their status.

    allocations   returns what a container was allocated, by resource; takes its pod's UID and its name
    pre_start     asks the plugin of a resource to prepare devices; may raise PluginFailed
    on_torn_down  called with the UID of a pod that no longer needs its devices
    """

    def __init__(
        self,
        containers: Containers,
        pace: KubeletPace,
        writer: PodWriter,
        *,
        allocations: Callable[[str, str], Mapping[str, Allocation]],
        pre_start: Callable[[str, frozenset[str]], Awaitable[None]],
        on_torn_down: Callable[[str], Awaitable[None]],
    ) -> None:
        self._containers = containers
        self._pace = pace
        self._writer = writer
        self._allocations = allocations
        self._pre_start = pre_start
        self._on_torn_down = on_torn_down

    async def run(self, pod: Object) -> None:
        """Run a pod from the start of its first container to the end of its last."""
        for container in pod["spec"].get("initContainers") or ():
            started = await self._start(pod, container)
            if container.get("restartPolicy") != "Always":
                await started.ended.wait()
        for container in pod["spec"]["containers"]:
            await self._start(pod, container)
        await self._write_status(pod, "Running")
        async with asyncio.TaskGroup() as tasks:
            for container in pod["spec"]["containers"]:
                tasks.create_task(self._run_to_end(pod, container))
        self._containers.stop(pod["metadata"]["uid"])
        await self._tear_down(pod)

    async def stop(self, pod: Object) -> None:
        """End a deleted pod."""
        metadata = pod["metadata"]
        await asyncio.sleep(min(stop_seconds(pod, self._pace.stop), metadata.get("deletionGracePeriodSeconds", 0)))
        self._containers.stop(metadata["uid"])
        await self._tear_down(pod)
        await asyncio.sleep(self._pace.removal)
        await self._writer.delete(pod)

    async def _start(self, pod: Object, container: Object, *, again: bool = False) -> Container:
        """Start a container and return its run. A container from before kubelet's restart is left as it is."""
        uid, name = pod["metadata"]["uid"], container["name"]
        if (found := self._containers.get(uid, name)) is not None and not again:
            return found
        allocations = self._allocations(uid, name)
        for resource, allocation in allocations.items():
            await self._pre_start_devices(resource, allocation.ids)
        devices = container_devices(allocation.response for allocation in allocations.values())
        is_init = container in (pod["spec"].get("initContainers") or ())
        seconds = container_seconds(pod, name, self._pace.init if is_init else self._pace.run)
        if is_init and container.get("restartPolicy") == "Always":
            seconds = None
        if not again and (until_restart := restart_seconds(pod, name)) is not None:
            return self._containers.start(uid, name, devices, until_restart, fails=True)
        return self._containers.start(uid, name, devices, seconds)

    async def _pre_start_devices(self, resource: str, ids: frozenset[str]) -> None:
        """Have the plugin prepare the devices. If it fails, ask again; the container waits."""
        while True:
            try:
                return await self._pre_start(resource, ids)
            except PluginFailed:
                await asyncio.sleep(_RETRY)

    async def _run_to_end(self, pod: Object, container: Object) -> None:
        """Wait for the end of a container. Restart it while it fails and the pod's restart policy says so."""
        uid, name = pod["metadata"]["uid"], container["name"]
        while (run := self._containers.get(uid, name)) is not None:
            await run.ended.wait()
            if run.succeeded or pod["spec"].get("restartPolicy") == "Never":
                break
            await self._start(pod, container, again=True)
            await self._write_status(pod, "Running")
        await self._write_status(pod, "Running")

    async def _tear_down(self, pod: Object) -> None:
        """Release the devices some time after the last container ended, and write the last phase."""
        await asyncio.sleep(self._pace.teardown)
        await self._on_torn_down(pod["metadata"]["uid"])
        await self._write_status(pod, _last_phase(pod, self._containers))

    async def _write_status(self, pod: Object, phase: str) -> None:
        await self._writer.set_status(pod, pod_status(pod, self._containers, phase))


def _last_phase(pod: Object, containers: Containers) -> str:
    return "Succeeded" if all(_succeeded(pod, containers, pod["spec"]["containers"])) else "Failed"


def _succeeded(pod: Object, containers: Containers, specified: Iterable[Object]) -> Iterable[bool]:
    for container in specified:
        run = containers.get(pod["metadata"]["uid"], container["name"])
        yield run is None or run.succeeded
