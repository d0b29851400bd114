"""A kubelet inside the process: it admits the pods of its node, gives them devices, runs and ends them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from gas.plugin.kubelet_api import deviceplugin_v1beta1_pb2 as api
from gas.plugin.kubelet_api import podresources_v1_pb2 as resources_api
from gas.sandbox import device_checkpoint
from gas.sandbox.api_client import ApiClient, RefusedByApi
from gas.sandbox.containers import Container, Containers, read_answers
from gas.sandbox.device_allocation import NoDevices, allocate_pod
from gas.sandbox.device_books import NodeAmounts
from gas.sandbox.device_plugins import DevicePlugins, PluginFailed
from gas.sandbox.event_recorder import EventRecorder
from gas.sandbox.kubelet_node import KubeletNode
from gas.sandbox.kubelet_status import pod_status, refused_status
from gas.sandbox.mirror import Mirror, Object
from gas.sandbox.pod_resources import PodResourcesServer, allocatable_resources, pod_resources
from gas.sandbox.pod_time import KubeletPace, container_seconds, restart_seconds, stop_seconds

_RETRY = 0.2
_REFUSED = "UnexpectedAdmissionError"


@dataclass(frozen=True, slots=True)
class _Change:
    before: Object | None
    after: Object | None


class Kubelet:
    """Runs the pods of one node as kubelet 1.34 does, as far as the API and device plugins can see.

    Cancelling `run` is killing it: containers run on, its sockets stay. Another one with the same ``root`` and
    ``containers`` is its restart. All admissions, starts and ends stand still while a plugin is asked.

    root        in the place of ``/var/lib/kubelet``: sockets and checkpoint; its path must be short
    containers  what runs on the node
    """

    def __init__(
        self,
        client: ApiClient,
        node: str,
        root: Path,
        *,
        containers: Containers | None = None,
        pace: KubeletPace | None = None,
    ) -> None:
        self.device_plugins = root / "device-plugins"
        self.pod_resources = root / "pod-resources" / "kubelet.sock"
        self.containers = containers or Containers()
        self.serving = asyncio.Event()
        """Set when plugins can register."""
        self._client = client
        self._node_name = node
        self._pace = pace or KubeletPace()
        self._node = KubeletNode(client, node)
        self._events = EventRecorder(client, "kubelet")
        self._changes: asyncio.Queue[_Change] = asyncio.Queue()
        self._turn = asyncio.Lock()
        self._active: dict[str, Object] = {}
        self._lives: dict[str, asyncio.Task[None]] = {}
        self._refused: set[str] = set()
        self._ending: set[str] = set()
        self._restarting = True

    async def run(self) -> None:
        """Until cancelled. Raises CannotListen when its sockets cannot be made."""
        self.device_plugins.mkdir(parents=True, exist_ok=True)
        self._checkpoint = self.device_plugins / device_checkpoint.NAME
        self._books = device_checkpoint.read_checkpoint(self._checkpoint)
        self._plugins = DevicePlugins(
            self.device_plugins,
            connecting=self._pace.connecting,
            told=self._devices_told,
            lost=self._devices_lost,
        )
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            tasks.create_task(self._plugins.serve())
            tasks.create_task(PodResourcesServer(self.pod_resources, self._listed, self._allocatable).serve())
            await self._plugins.serving.wait()
            self.serving.set()
            await self._insist(self._node.register)
            tasks.create_task(self._node.keep_while(self._amounts, self._pace.status))
            await asyncio.sleep(self._pace.sources)
            tasks.create_task(Mirror(self._client, "/api/v1/pods", self._pod_changed).run())
            await self._go_over_changes()

    def _pod_changed(self, before: Object | None, after: Object | None) -> None:
        pod = after or before
        if pod is not None and pod["spec"].get("nodeName") == self._node_name:
            self._changes.put_nowait(_Change(before, after))

    async def _go_over_changes(self) -> None:
        while True:
            changes = [await self._changes.get()]
            while not self._changes.empty():
                changes.append(self._changes.get_nowait())
            async with self._turn:
                for change in sorted(changes, key=_age):
                    await self._change(change)
            self._restarting = False

    async def _change(self, change: _Change) -> None:
        pod = change.after or change.before
        if pod is None:
            return
        uid = pod["metadata"]["uid"]
        if change.after is None:
            self._remove(uid)
            return
        if uid in self._active:
            self._active[uid] = pod
        elif uid not in self._lives and uid not in self._refused and not _is_over(pod):
            await self._admit(pod)
        if "deletionTimestamp" not in pod["metadata"] or uid in self._ending:
            return
        if uid in self._lives:
            self._ending.add(uid)
            self._end_life(uid)
            self._lives[uid] = self._tasks.create_task(self._stop(pod))
        elif _is_over(pod):
            self._ending.add(uid)
            self._lives[uid] = self._tasks.create_task(self._delete(pod))

    def _remove(self, uid: str) -> None:
        """Gone from the API: nothing is waited for, its devices are free while its containers are still told to end."""
        seconds = self._pace.stop if self._active.pop(uid, None) is not None else 0
        asyncio.get_running_loop().call_later(seconds, self.containers.forget, uid)
        self._end_life(uid)
        self._ending.discard(uid)
        self._refused.discard(uid)
        self._events.forget(uid)

    def _end_life(self, uid: str) -> None:
        if (life := self._lives.pop(uid, None)) is not None:
            life.cancel()

    async def _admit(self, pod: Object) -> None:
        """Give it its devices and let it live; or refuse it for good."""
        uid = pod["metadata"]["uid"]
        self._active[uid] = pod
        self._books.keep_only(self._active)
        try:
            await allocate_pod(
                pod,
                self._books,
                self._plugins,
                runs_already=lambda name: self._restarting and _is_running(self.containers.get(uid, name)),
            )
        except (NoDevices, PluginFailed) as failure:
            del self._active[uid]
            self._refused.add(uid)
            self.containers.stop(uid)
            message = f"Pod was rejected: Allocate failed due to {failure}, which is unexpected"
            self._tasks.create_task(self._refuse(pod, message))
        else:
            self._lives[uid] = self._tasks.create_task(self._live(pod))
        finally:
            device_checkpoint.write_checkpoint(self._checkpoint, self._books)

    async def _refuse(self, pod: Object, message: str) -> None:
        await self._set_status(pod, refused_status(_REFUSED, message))
        await self._insist(lambda: self._events.record(pod, "Warning", _REFUSED, message))

    async def _live(self, pod: Object) -> None:
        """From its first container to the end of its last."""
        for container in pod["spec"].get("initContainers") or ():
            started = await self._started(pod, container)
            if container.get("restartPolicy") != "Always":
                await started.ended.wait()
        for container in pod["spec"]["containers"]:
            await self._started(pod, container)
        await self._set_status(pod, pod_status(pod, self.containers, "Running"))
        async with asyncio.TaskGroup() as tasks:
            for container in pod["spec"]["containers"]:
                tasks.create_task(self._until_ended(pod, container))
        self.containers.stop(pod["metadata"]["uid"])
        await self._tear_down(pod)

    async def _started(self, pod: Object, container: Object, *, again: bool = False) -> Container:
        """Running now; one that has run since before kubelet's restart is left as it is."""
        uid, name = pod["metadata"]["uid"], container["name"]
        if (found := self.containers.get(uid, name)) is not None and not again:
            return found
        allotments = self._books.allotments.get(uid, {}).get(name, {})
        for resource, allotment in allotments.items():
            await self._pre_started(resource, allotment.ids)
        given = read_answers(allotment.answer for allotment in allotments.values())
        is_init = container in (pod["spec"].get("initContainers") or ())
        seconds = container_seconds(pod, name, self._pace.init if is_init else self._pace.run)
        if is_init and container.get("restartPolicy") == "Always":
            seconds = None
        if not again and (until_restart := restart_seconds(pod, name)) is not None:
            return self.containers.start(uid, name, given, until_restart, fails=True)
        return self.containers.start(uid, name, given, seconds)

    async def _pre_started(self, resource: str, ids: frozenset[str]) -> None:
        """The plugin has prepared the devices; one that fails is asked again, and the container waits."""
        while True:
            try:
                return await self._plugins.pre_start(resource, ids)
            except PluginFailed:
                await asyncio.sleep(_RETRY)

    async def _until_ended(self, pod: Object, container: Object) -> None:
        """Starts it again while it fails and the pod wants that."""
        uid, name = pod["metadata"]["uid"], container["name"]
        while (run := self.containers.get(uid, name)) is not None:
            await run.ended.wait()
            if run.succeeded or pod["spec"].get("restartPolicy") == "Never":
                break
            await self._started(pod, container, again=True)
            await self._set_status(pod, pod_status(pod, self.containers, "Running"))
        await self._set_status(pod, pod_status(pod, self.containers, "Running"))

    async def _stop(self, pod: Object) -> None:
        """What a deleted pod goes through."""
        metadata = pod["metadata"]
        await asyncio.sleep(min(stop_seconds(pod, self._pace.stop), metadata.get("deletionGracePeriodSeconds", 0)))
        self.containers.stop(metadata["uid"])
        await self._tear_down(pod)
        await asyncio.sleep(self._pace.removal)
        await self._delete(pod)

    async def _delete(self, pod: Object) -> None:
        options = {"gracePeriodSeconds": 0, "preconditions": {"uid": pod["metadata"]["uid"]}}
        await self._insist(lambda: self._client.delete(_path(pod), options))

    async def _tear_down(self, pod: Object) -> None:
        """Some time after its last container ended, the pod is over and its devices are free."""
        uid = pod["metadata"]["uid"]
        await asyncio.sleep(self._pace.teardown)
        async with self._turn:
            self._active.pop(uid, None)
        await self._set_status(pod, pod_status(pod, self.containers, _last_phase(pod, self.containers)))

    def _devices_told(self, resource: str, said: api.ListAndWatchResponse) -> None:
        devices = {device.ID: device.health == "Healthy" for device in said.devices}
        numa = {device.ID: frozenset(node.ID for node in device.topology.nodes) for device in said.devices}
        self._books.tell(resource, devices, numa)
        device_checkpoint.write_checkpoint(self._checkpoint, self._books)

    def _devices_lost(self, resource: str) -> None:
        self._books.lose(resource)

    def _amounts(self) -> tuple[NodeAmounts, NodeAmounts]:
        return self._books.capacity(), self._books.allocatable()

    def _listed(self) -> resources_api.ListPodResourcesResponse:
        if not self._restarting:
            self._books.keep_only(self._active)
        return pod_resources(self._active.values(), self._books)

    def _allocatable(self) -> resources_api.AllocatableResourcesResponse:
        return allocatable_resources(self._books)

    async def _set_status(self, pod: Object, status: Object) -> None:
        patch = {"metadata": {"uid": pod["metadata"]["uid"]}, "status": status}
        await self._insist(lambda: self._client.patch(f"{_path(pod)}/status", patch))

    async def _insist(self, send: Callable[[], Awaitable[Any]]) -> None:
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


def _age(change: _Change) -> str:
    """Pods that kubelet learns of at once are taken in the order of their creation."""
    return str(((change.after or change.before) or {})["metadata"]["creationTimestamp"])


def _is_over(pod: Object) -> bool:
    return pod.get("status", {}).get("phase") in ("Succeeded", "Failed")


def _is_running(container: Container | None) -> bool:
    return container is not None and container.is_running


def _last_phase(pod: Object, containers: Containers) -> str:
    return "Succeeded" if all(_succeeded(pod, containers, pod["spec"]["containers"])) else "Failed"


def _succeeded(pod: Object, containers: Containers, specified: Iterable[Object]) -> Iterable[bool]:
    for container in specified:
        run = containers.get(pod["metadata"]["uid"], container["name"])
        yield run is None or run.succeeded
