"""A kubelet inside the process: it admits the pods of its node, gives them devices, runs and ends them."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path

from gas.plugin.kubelet_api import deviceplugin_v1beta1_pb2 as api
from gas.plugin.kubelet_api import podresources_v1_pb2 as resources_api
from gas.sandbox import device_checkpoint
from gas.sandbox.api_client import ApiClient
from gas.sandbox.containers import Container, Containers
from gas.sandbox.device_allocation import NoDevices, allocate_pod
from gas.sandbox.device_books import NodeAmounts
from gas.sandbox.device_plugins import DevicePlugins, PluginFailed
from gas.sandbox.event_recorder import EventRecorder
from gas.sandbox.kubelet_node import KubeletNode
from gas.sandbox.kubelet_status import refused_status
from gas.sandbox.mirror import Mirror, Object
from gas.sandbox.pod_life import PodLife
from gas.sandbox.pod_resources import PodResourcesServer, allocatable_resources, pod_resources
from gas.sandbox.pod_time import KubeletPace
from gas.sandbox.pod_writer import PodWriter, insist

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
        self._writer = PodWriter(client)
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
        self._life = PodLife(
            self.containers,
            self._pace,
            self._writer,
            allotments=lambda uid, name: self._books.allotments.get(uid, {}).get(name, {}),
            pre_start=self._plugins.pre_start,
            torn_down=self._torn_down,
        )
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            tasks.create_task(self._plugins.serve())
            tasks.create_task(PodResourcesServer(self.pod_resources, self._listed, self._allocatable).serve())
            await self._plugins.serving.wait()
            self.serving.set()
            await insist(self._node.register)
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
            self._lives[uid] = self._tasks.create_task(self._life.stop(pod))
        elif _is_over(pod):
            self._ending.add(uid)
            self._lives[uid] = self._tasks.create_task(self._writer.delete(pod))

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
        if not self._restarting:
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
            self._lives[uid] = self._tasks.create_task(self._life.live(pod))
        finally:
            device_checkpoint.write_checkpoint(self._checkpoint, self._books)

    async def _refuse(self, pod: Object, message: str) -> None:
        await self._writer.set_status(pod, refused_status(_REFUSED, message))
        await insist(lambda: self._events.record(pod, "Warning", _REFUSED, message))

    async def _torn_down(self, uid: str) -> None:
        async with self._turn:
            self._active.pop(uid, None)

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


def _age(change: _Change) -> str:
    """Pods that kubelet learns of at once are taken in the order of their creation."""
    return str(((change.after or change.before) or {})["metadata"]["creationTimestamp"])


def _is_over(pod: Object) -> bool:
    return pod.get("status", {}).get("phase") in ("Succeeded", "Failed")


def _is_running(container: Container | None) -> bool:
    return container is not None and container.is_running
