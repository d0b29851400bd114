"""What a pod goes through on a node once its kubelet has admitted it: its containers start, run, and end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

from gas.sandbox.containers import Container, Containers, read_answers
from gas.sandbox.device_books import Allotment
from gas.sandbox.device_plugins import PluginFailed
from gas.sandbox.kubelet_status import pod_status
from gas.sandbox.pod_time import KubeletPace, container_seconds, restart_seconds, stop_seconds
from gas.sandbox.pod_writer import PodWriter

Object = dict[str, Any]

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
