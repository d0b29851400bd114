"""Run a kubelet in this process, with its sockets, its checkpoint and the status of its node."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

from gas.plugin.kubelet_api import deviceplugin_v1beta1_pb2 as api
from sandbox.api.client import API_FAILURES, ApiClient, ApiRequests, Object, RefusedByApi
from sandbox.api.quantities import is_extended
from sandbox.kubelet.containers import Containers, KubeletPace
from sandbox.kubelet.device_manager import (
    CHECKPOINT_FILE,
    DeviceManager,
    NodeAmounts,
    read_checkpoint,
    write_checkpoint,
)
from sandbox.kubelet.device_plugins import NEWEST, DevicePlugins
from sandbox.kubelet.pod_resources import PodResourcesServer
from sandbox.kubelet.sync_loop import SyncLoop, insist

_NODE_RESOURCES = {"cpu": "1000", "memory": "4000Gi", "pods": "1000"}


class NodeStatusWriter:
    """Register a node, and keep the amounts of devices in its status current."""

    def __init__(self, client: ApiRequests, name: str) -> None:
        self._client = client
        self._name = name
        self._path = f"/api/v1/nodes/{name}"

    async def register(self) -> None:
        """Create the node, or mark it as ready if it exists. Raises aiohttp.ClientError."""
        node = {"metadata": {"name": self._name, "labels": {"kubernetes.io/hostname": self._name}}}
        ready = {"conditions": [{"type": "Ready", "status": "True"}]}
        status = {"capacity": _NODE_RESOURCES, "allocatable": _NODE_RESOURCES, **ready}
        try:
            await self._client.post("/api/v1/nodes", {**node, "status": status})
        except RefusedByApi:  # it already exists
            with suppress(RefusedByApi):
                await self._client.patch(f"{self._path}/status", {"status": ready})

    async def update(self, capacity: NodeAmounts, allocatable: NodeAmounts) -> None:
        """Write the amounts of devices that changed. Capacity that other programs wrote becomes allocatable too."""
        with suppress(*API_FAILURES):
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
            changed = {
                field: {name: amount for name, amount in wanted[field].items() if before[field].get(name) != amount}
                for field in wanted
            }
            if any(changed.values()):  # only these: another program may have changed the others since they were read
                await self._client.patch(f"{self._path}/status", {"status": changed})

    async def run(self, amounts: Callable[[], tuple[NodeAmounts, NodeAmounts]], every: float) -> None:
        """Update the status every ``every`` seconds until cancelled. ``amounts`` returns capacity and allocatable."""
        while True:
            await self.update(*amounts())
            await asyncio.sleep(every)


class Kubelet:
    """Run the pods of one node as `SyncLoop` does, with device plugins that register at a socket.

    Cancelling `run` is like killing kubelet: containers keep running and its sockets stay. A new Kubelet with the same
    ``root`` and ``containers`` is its restart.
    """

    def __init__(
        self,
        client: ApiClient,
        node: str,
        root: Path,  # replaces ``/var/lib/kubelet``: for sockets and the checkpoint; its path must be short
        *,
        release: int = NEWEST,  # minor release of Kubernetes whose kubelet this one behaves as, 35 to 37
        containers: Containers | None = None,
        pace: KubeletPace | None = None,
    ) -> None:
        self._release = release
        self.device_plugins = root / "device-plugins"
        self.pod_resources = root / "pod-resources" / "kubelet.sock"
        self.containers = containers or Containers()
        self.serving = asyncio.Event()  # set when plugins can register
        self._client = client
        self._node_name = node
        self._pace = pace or KubeletPace()

    async def run(self) -> None:
        """Run until cancelled. Raises CannotListen if a socket cannot be created."""
        self.device_plugins.mkdir(parents=True, exist_ok=True)
        checkpoint = self.device_plugins / CHECKPOINT_FILE
        state, node = read_checkpoint(checkpoint), NodeStatusWriter(self._client, self._node_name)
        save = partial(write_checkpoint, checkpoint, state)

        def on_devices(resource: str, devices: api.ListAndWatchResponse) -> None:
            state.report(resource, devices)
            save()

        plugins = DevicePlugins(
            self.device_plugins,
            release=self._release,
            connecting=self._pace.connecting,
            on_devices=on_devices,
            on_lost=state.mark_plugin_gone,
        )
        devices = DeviceManager(state, plugins, save=save)
        loop = SyncLoop(self._client, self._node_name, devices, containers=self.containers, pace=self._pace)
        server = PodResourcesServer(self.pod_resources, state, loop.active_pods)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(plugins.serve())
            tasks.create_task(server.serve())
            await plugins.serving.wait()
            self.serving.set()
            await insist(node.register, self._pace.retry)
            tasks.create_task(node.run(lambda: (state.capacity(), state.allocatable()), self._pace.status))
            await loop.run()
