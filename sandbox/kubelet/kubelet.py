"""A kubelet inside the process: it registers its node, admits pods, gives them devices, runs and ends them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import aiohttp

from gas.plugin.kubelet_api import deviceplugin_v1beta1_pb2 as api
from gas.plugin.kubelet_api import podresources_v1_pb2 as resources_api
from sandbox.api.client import ApiClient, EventRecorder, Mirror, Object, RefusedByApi
from sandbox.api.kinds import is_over
from sandbox.api.quantities import is_extended
from sandbox.kubelet.containers import Container, Containers, KubeletPace
from sandbox.kubelet.device_manager import (
    CHECKPOINT_FILE,
    NodeAmounts,
    NoDevices,
    allocate_pod,
    read_checkpoint,
    write_checkpoint,
)
from sandbox.kubelet.device_plugins import NEWEST, DevicePlugins, PluginFailed
from sandbox.kubelet.pod_lifecycle import PodLifecycle, PodWriter, rejected_status, retry
from sandbox.kubelet.pod_resources import PodResourcesServer, allocatable_resources, pod_resources

_NODE_RESOURCES = {"cpu": "1000", "memory": "4000Gi", "pods": "1000"}


class NodeStatusWriter:
    """Register a node, and keep the amounts of devices in its status current."""

    def __init__(self, client: ApiClient, name: str) -> None:
        self._client = client
        self._name = name

    @property
    def _path(self) -> str:
        return f"/api/v1/nodes/{self._name}"

    async def register(self) -> None:
        """Create the node, or say that it is ready if it exists. Raises aiohttp.ClientError."""
        node = {"metadata": {"name": self._name, "labels": {"kubernetes.io/hostname": self._name}}}
        ready = {"conditions": [{"type": "Ready", "status": "True"}]}
        status = {"capacity": _NODE_RESOURCES, "allocatable": _NODE_RESOURCES, **ready}
        try:
            await self._client.post("/api/v1/nodes", {**node, "status": status})
        except RefusedByApi:  # it already exists
            with suppress(RefusedByApi):
                await self._client.patch(f"{self._path}/status", {"status": ready})

    async def update(self, capacity: NodeAmounts, allocatable: NodeAmounts) -> None:
        """Write the amounts of all device resources.

        Extended resources that other programs wrote as capacity become allocatable too.
        """
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

    async def run(self, amounts: Callable[[], tuple[NodeAmounts, NodeAmounts]], every: float) -> None:
        """Update the status every ``every`` seconds until cancelled. ``amounts`` returns capacity and allocatable."""
        while True:
            await self.update(*amounts())
            await asyncio.sleep(every)


_REJECTED = "UnexpectedAdmissionError"


@dataclass(frozen=True, slots=True)
class _Change:
    before: Object | None
    after: Object | None


class Kubelet:
    """Run the pods of one node as kubelet does, as far as the API and device plugins can see.

    Cancelling `run` is like killing kubelet: containers keep running and its sockets stay. A new Kubelet with the same
    ``root`` and ``containers`` is its restart. All admissions, starts and ends wait while a plugin is called.

    release     minor release of Kubernetes whose kubelet this one behaves as, 34 to 37
    root        replaces ``/var/lib/kubelet``: holds sockets and the checkpoint; its path must be short
    containers  the containers of the node
    """

    def __init__(
        self,
        client: ApiClient,
        node: str,
        root: Path,
        *,
        release: int = NEWEST,
        containers: Containers | None = None,
        pace: KubeletPace | None = None,
    ) -> None:
        self._release = release
        self.device_plugins = root / "device-plugins"
        self.pod_resources = root / "pod-resources" / "kubelet.sock"
        self.containers = containers or Containers()
        self.serving = asyncio.Event()
        """Set when plugins can register."""
        self._client = client
        self._node_name = node
        self._pace = pace or KubeletPace()
        self._node = NodeStatusWriter(client, node)
        self._writer = PodWriter(client)
        self._events = EventRecorder(client, "kubelet")
        self._changes: asyncio.Queue[_Change] = asyncio.Queue()
        self._turn = asyncio.Lock()
        self._active: dict[str, Object] = {}
        self._pod_tasks: dict[str, asyncio.Task[None]] = {}
        self._rejected: set[str] = set()
        self._ending: set[str] = set()
        self._restarting = True

    async def run(self) -> None:
        """Run until cancelled. Raises CannotListen if a socket cannot be created."""
        self.device_plugins.mkdir(parents=True, exist_ok=True)
        self._checkpoint = self.device_plugins / CHECKPOINT_FILE
        self._state = read_checkpoint(self._checkpoint)
        self._plugins = DevicePlugins(
            self.device_plugins,
            release=self._release,
            connecting=self._pace.connecting,
            on_devices=self._devices_reported,
            on_lost=self._devices_lost,
        )
        self._lifecycle = PodLifecycle(
            self.containers,
            self._pace,
            self._writer,
            allocations=lambda uid, name: self._state.allocations.get(uid, {}).get(name, {}),
            pre_start=self._plugins.pre_start,
            on_torn_down=self._torn_down,
        )
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            tasks.create_task(self._plugins.serve())
            tasks.create_task(PodResourcesServer(self.pod_resources, self._list_pods, self._allocatable).serve())
            await self._plugins.serving.wait()
            self.serving.set()
            await retry(self._node.register)
            tasks.create_task(self._node.run(self._amounts, self._pace.status))
            await asyncio.sleep(self._pace.sources)
            tasks.create_task(Mirror(self._client, "/api/v1/pods", self._pod_changed).run())
            await self._process_changes()

    def _pod_changed(self, before: Object | None, after: Object | None) -> None:
        pod = after or before
        if pod is not None and pod["spec"].get("nodeName") == self._node_name:
            self._changes.put_nowait(_Change(before, after))

    async def _process_changes(self) -> None:
        while True:
            changes = [await self._changes.get()]
            while not self._changes.empty():
                changes.append(self._changes.get_nowait())
            async with self._turn:
                for change in sorted(changes, key=_age):
                    await self._process(change)
            self._restarting = False

    async def _process(self, change: _Change) -> None:
        pod = change.after or change.before
        if pod is None:
            return
        uid = pod["metadata"]["uid"]
        if change.after is None:
            self._remove(uid)
            return
        if uid in self._active:
            self._active[uid] = pod
        elif uid not in self._pod_tasks and uid not in self._rejected and not is_over(pod):
            await self._admit(pod)
        if "deletionTimestamp" not in pod["metadata"] or uid in self._ending:
            return
        if uid in self._pod_tasks:
            self._ending.add(uid)
            self._cancel_task(uid)
            self._pod_tasks[uid] = self._tasks.create_task(self._lifecycle.stop(pod))
        elif is_over(pod):
            self._ending.add(uid)
            self._pod_tasks[uid] = self._tasks.create_task(self._writer.delete(pod))

    def _remove(self, uid: str) -> None:
        """Forget a pod that is gone from the API. Its devices are free at once, even if its containers still stop."""
        seconds = self._pace.stop if self._active.pop(uid, None) is not None else 0
        asyncio.get_running_loop().call_later(seconds, self.containers.forget, uid)
        self._cancel_task(uid)
        self._ending.discard(uid)
        self._rejected.discard(uid)
        self._events.forget(uid)

    def _cancel_task(self, uid: str) -> None:
        if (task := self._pod_tasks.pop(uid, None)) is not None:
            task.cancel()

    async def _admit(self, pod: Object) -> None:
        """Allocate devices and run the pod, or reject it for good."""
        uid = pod["metadata"]["uid"]
        self._active[uid] = pod
        if not self._restarting:
            self._state.keep_only(self._active)
        try:
            await allocate_pod(
                pod,
                self._state,
                self._plugins,
                runs_already=lambda name: self._restarting and _is_running(self.containers.get(uid, name)),
            )
        except (NoDevices, PluginFailed) as failure:
            del self._active[uid]
            self._rejected.add(uid)
            self.containers.stop(uid)
            message = f"Pod was rejected: Allocate failed due to {failure}, which is unexpected"
            self._tasks.create_task(self._reject(pod, message))
        else:
            self._pod_tasks[uid] = self._tasks.create_task(self._lifecycle.run(pod))
        finally:
            write_checkpoint(self._checkpoint, self._state)

    async def _reject(self, pod: Object, message: str) -> None:
        await self._writer.set_status(pod, rejected_status(_REJECTED, message))
        await retry(lambda: self._events.record(pod, "Warning", _REJECTED, message))

    async def _torn_down(self, uid: str) -> None:
        async with self._turn:
            self._active.pop(uid, None)

    def _devices_reported(self, resource: str, response: api.ListAndWatchResponse) -> None:
        devices = {device.ID: device.health == "Healthy" for device in response.devices}
        numa = {device.ID: frozenset(node.ID for node in device.topology.nodes) for device in response.devices}
        self._state.set_devices(resource, devices, numa)
        write_checkpoint(self._checkpoint, self._state)

    def _devices_lost(self, resource: str) -> None:
        self._state.mark_plugin_gone(resource)

    def _amounts(self) -> tuple[NodeAmounts, NodeAmounts]:
        return self._state.capacity(), self._state.allocatable()

    def _list_pods(self) -> resources_api.ListPodResourcesResponse:
        if not self._restarting:
            self._state.keep_only(self._active)
        return pod_resources(self._active.values(), self._state)

    def _allocatable(self) -> resources_api.AllocatableResourcesResponse:
        return allocatable_resources(self._state)


def _age(change: _Change) -> str:
    """Return the sort key by which kubelet processes pods that it learns of at the same time: their creation."""
    return str(((change.after or change.before) or {})["metadata"]["creationTimestamp"])


def _is_running(container: Container | None) -> bool:
    return container is not None and container.is_running
