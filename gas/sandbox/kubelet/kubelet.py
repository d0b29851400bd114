"""A kubelet inside the process: it admits the pods of its node, gives them devices, runs and ends them."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from gas.plugin.kubelet_api import deviceplugin_v1beta1_pb2 as api
from gas.plugin.kubelet_api import podresources_v1_pb2 as resources_api
from gas.sandbox.api.client import ApiClient, EventRecorder, Mirror, Object, RefusedByApi
from gas.sandbox.api.quantities import is_extended
from gas.sandbox.kubelet.containers import Container, Containers, KubeletPace
from gas.sandbox.kubelet.device_manager import (
    CHECKPOINT_FILE,
    NodeAmounts,
    NoDevices,
    allocate_pod,
    read_checkpoint,
    write_checkpoint,
)
from gas.sandbox.kubelet.device_plugins import DevicePlugins, PluginFailed
from gas.sandbox.kubelet.pod_lifecycle import PodLife, PodWriter, insist, refused_status
from gas.sandbox.kubelet.pod_resources import PodResourcesServer, allocatable_resources, pod_resources

_SIZE = {"cpu": "1000", "memory": "4000Gi", "pods": "1000"}


class KubeletNode:
    """One node of the API, as its kubelet writes it."""

    def __init__(self, client: ApiClient, name: str) -> None:
        self._client = client
        self._name = name

    @property
    def _path(self) -> str:
        return f"/api/v1/nodes/{self._name}"

    async def register(self) -> None:
        """Make the node, unless it is there. Raises RefusedByApi, and aiohttp.ClientError."""
        node = {"metadata": {"name": self._name, "labels": {"kubernetes.io/hostname": self._name}}}
        status = {"capacity": _SIZE, "allocatable": _SIZE, "conditions": [{"type": "Ready", "status": "True"}]}
        with suppress(RefusedByApi):  # it is there already
            await self._client.post("/api/v1/nodes", {**node, "status": status})

    async def keep(self, capacity: NodeAmounts, allocatable: NodeAmounts) -> None:
        """Write the amounts of all device resources; what others wrote as capacity is allocatable as well."""
        with suppress(RefusedByApi, aiohttp.ClientError, TimeoutError):
            found = (await self._client.get(self._path)).get("status", {})
            before: Object = {field: found.get(field) or {} for field in ("capacity", "allocatable")}
            now = {name: amount for name, amount in before["capacity"].items() if name not in capacity}
            wanted = {
                "capacity": {name: str(amount) for name, amount in capacity.items()},
                "allocatable": {
                    **{name: amount for name, amount in now.items() if is_extended(name)},
                    **{name: None for name in before["allocatable"] if is_extended(name) and name not in now},
                    **{name: str(amount) for name, amount in allocatable.items()},
                },
            }
            if any(before[field].get(name) != amount for field in wanted for name, amount in wanted[field].items()):
                await self._client.patch(f"{self._path}/status", {"status": wanted})

    async def keep_while(self, amounts: Any, every: float) -> None:
        """Until cancelled. ``amounts`` answers capacity and allocatable."""
        while True:
            await self.keep(*amounts())
            await asyncio.sleep(every)


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
        self._checkpoint = self.device_plugins / CHECKPOINT_FILE
        self._books = read_checkpoint(self._checkpoint)
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
            write_checkpoint(self._checkpoint, self._books)

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
        write_checkpoint(self._checkpoint, self._books)

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
