"""What a pod goes through on a node once its kubelet has admitted it: its containers start, run, and end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

import aiohttp

from gas.sandbox.api.client import ApiClient, RefusedByApi
from gas.sandbox.api.kinds import timestamp
from gas.sandbox.kubelet.containers import (
    Container,
    Containers,
    KubeletPace,
    container_seconds,
    read_answers,
    restart_seconds,
    stop_seconds,
)
from gas.sandbox.kubelet.device_manager import Allotment, asked_resources
from gas.sandbox.kubelet.device_plugins import PluginFailed

Object = dict[str, Any]


def pod_status(pod: Object, containers: Containers, phase: str) -> Object:
    """Of a pod that was admitted, with what its containers do now."""
    running = phase == "Running"
    return {
        "phase": phase,
        "startTime": pod.get("status", {}).get("startTime") or _now(),
        "conditions": _conditions(ready=running),
        "initContainerStatuses": _statuses(pod, pod["spec"].get("initContainers") or [], containers),
        "containerStatuses": _statuses(pod, pod["spec"]["containers"], containers),
    }


def refused_status(reason: str, message: str) -> Object:
    """Of a pod that kubelet did not take: it has failed for good, and no container of it is ever shown."""
    return {"phase": "Failed", "reason": reason, "message": message, "startTime": _now()}


def _statuses(pod: Object, specified: list[Object], containers: Containers) -> list[Object]:
    uid = pod["metadata"]["uid"]
    return [_status(container, containers.get(uid, container["name"])) for container in specified]


def _status(specified: Object, container: Container | None) -> Object:
    resources = {name: str(amount) for name, amount in asked_resources(specified).items()}
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


_RETRY = 0.2


class PodLife:
    """Lives through pods, each in a task of its own, and writes their status.

    allotments  what a container, by its pod's UID and its name, was given of each resource
    pre_start   asks the plugin of a resource to prepare devices; may raise PluginFailed
    torn_down   called with the UID of a pod that needs its devices no more
    """

    def __init__(
        self,
        containers: Containers,
        pace: KubeletPace,
        writer: PodWriter,
        *,
        allotments: Callable[[str, str], Mapping[str, Allotment]],
        pre_start: Callable[[str, frozenset[str]], Awaitable[None]],
        torn_down: Callable[[str], Awaitable[None]],
    ) -> None:
        self._containers = containers
        self._pace = pace
        self._writer = writer
        self._allotments = allotments
        self._pre_start = pre_start
        self._torn_down = torn_down

    async def live(self, pod: Object) -> None:
        """From its first container to the end of its last."""
        for container in pod["spec"].get("initContainers") or ():
            started = await self._started(pod, container)
            if container.get("restartPolicy") != "Always":
                await started.ended.wait()
        for container in pod["spec"]["containers"]:
            await self._started(pod, container)
        await self._show(pod, "Running")
        async with asyncio.TaskGroup() as tasks:
            for container in pod["spec"]["containers"]:
                tasks.create_task(self._until_ended(pod, container))
        self._containers.stop(pod["metadata"]["uid"])
        await self._tear_down(pod)

    async def stop(self, pod: Object) -> None:
        """What a deleted pod goes through."""
        metadata = pod["metadata"]
        await asyncio.sleep(min(stop_seconds(pod, self._pace.stop), metadata.get("deletionGracePeriodSeconds", 0)))
        self._containers.stop(metadata["uid"])
        await self._tear_down(pod)
        await asyncio.sleep(self._pace.removal)
        await self._writer.delete(pod)

    async def _started(self, pod: Object, container: Object, *, again: bool = False) -> Container:
        """Running now; one that has run since before kubelet's restart is left as it is."""
        uid, name = pod["metadata"]["uid"], container["name"]
        if (found := self._containers.get(uid, name)) is not None and not again:
            return found
        allotments = self._allotments(uid, name)
        for resource, allotment in allotments.items():
            await self._prepared(resource, allotment.ids)
        given = read_answers(allotment.answer for allotment in allotments.values())
        is_init = container in (pod["spec"].get("initContainers") or ())
        seconds = container_seconds(pod, name, self._pace.init if is_init else self._pace.run)
        if is_init and container.get("restartPolicy") == "Always":
            seconds = None
        if not again and (until_restart := restart_seconds(pod, name)) is not None:
            return self._containers.start(uid, name, given, until_restart, fails=True)
        return self._containers.start(uid, name, given, seconds)

    async def _prepared(self, resource: str, ids: frozenset[str]) -> None:
        """The plugin has prepared the devices; one that fails is asked again, and the container waits."""
        while True:
            try:
                return await self._pre_start(resource, ids)
            except PluginFailed:
                await asyncio.sleep(_RETRY)

    async def _until_ended(self, pod: Object, container: Object) -> None:
        """Starts it again while it fails and the pod wants that."""
        uid, name = pod["metadata"]["uid"], container["name"]
        while (run := self._containers.get(uid, name)) is not None:
            await run.ended.wait()
            if run.succeeded or pod["spec"].get("restartPolicy") == "Never":
                break
            await self._started(pod, container, again=True)
            await self._show(pod, "Running")
        await self._show(pod, "Running")

    async def _tear_down(self, pod: Object) -> None:
        """Some time after its last container ended, the pod is over and its devices are free."""
        await asyncio.sleep(self._pace.teardown)
        await self._torn_down(pod["metadata"]["uid"])
        await self._show(pod, _last_phase(pod, self._containers))

    async def _show(self, pod: Object, phase: str) -> None:
        await self._writer.set_status(pod, pod_status(pod, self._containers, phase))


def _last_phase(pod: Object, containers: Containers) -> str:
    return "Succeeded" if all(_succeeded(pod, containers, pod["spec"]["containers"])) else "Failed"


def _succeeded(pod: Object, containers: Containers, specified: Iterable[Object]) -> Iterable[bool]:
    for container in specified:
        run = containers.get(pod["metadata"]["uid"], container["name"])
        yield run is None or run.succeeded
