"""Run the machines of the nodes: their kubelets, and the device plugins next to them.

Kubelet is the sandbox's, the plugin the product's. Calls between the two take time and fail when one of them ends, but
are not encoded.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

from gas.plugin.devices.device_ids import known_ids
from gas.plugin.kubelet.device_server import DeviceServer
from gas.plugin.kubelet.pod_resources import ContainerIds, Listing
from gas.plugin.kubelet.registration import Phase
from gas.plugin.kubelet_api import deviceplugin_v1beta1_pb2 as api
from gas.values.card_facts import CardFacts, MemorySource, Scan
from gas.values.cards import Card
from sandbox.api.client import ApiRequests
from sandbox.kubelet.containers import ContainerDevices, Containers, KubeletPace, container_devices
from sandbox.kubelet.device_manager import DeviceManager, DeviceState, PluginFailed
from sandbox.kubelet.pod_resources import shown_containers
from sandbox.kubelet.sync_loop import SyncLoop
from simulation.chance import Chance
from simulation.loop import Process, VirtualLoop
from simulation.network import Network
from simulation.objects import COUNT, MEMORY, PREFIX, TILE_VARIABLE, TILES_OF_A_CARD

RESOURCE = PREFIX + COUNT

T = TypeVar("T")


class Host:
    """One machine: what outlives its processes, and the connection between them.

    cards       numbers of the cards that the plugin finds
    """

    def __init__(self, loop: VirtualLoop, network: Network, cards: tuple[int, ...]) -> None:
        self.loop = loop
        self.cards = cards
        self.dropped: set[str] = set()  # UIDs of the pods whose devices are free again
        self.state = _State(self.dropped)  # which container has which devices
        self.containers = Containers(self._later)
        self.kubelet: SyncLoop | None = None  # its sync loop; None while it is away
        self.server: DeviceServer | None = None  # of the plugin, while kubelet knows it
        self.plugin: Process | None = None  # its process; None if there is no plugin
        self.calls = 0
        self._network = network
        self._pending: set[asyncio.Future[Any]] = set()

    def new_kubelet(self, node: str, client: ApiRequests, chance: Chance, now: Callable[[], datetime]) -> SyncLoop:
        """Return a new kubelet, with which plugins have to register again."""
        self.state.restart()
        devices = DeviceManager(self.state, _Plugins(self, chance), in_any_order=chance.in_any_order)
        pace = pace_by(chance)
        self.kubelet = SyncLoop(client, node, devices, containers=self.containers, pace=pace, now=now)
        return self.kubelet

    def plugin_ends(self) -> None:
        """Note that the plugin has ended: kubelet's calls fail, and it offers no devices any more."""
        self.server = None
        self.state.mark_plugin_gone(RESOURCE)
        for reply in self._pending:
            self._soon(_fail, reply)
        self._pending.clear()

    async def call(self, work: Callable[[DeviceServer], Awaitable[T]]) -> T:
        """Call the plugin for kubelet. Raises PluginFailed if it is away or fails."""
        server, plugin = self.server, self.plugin
        if server is None or plugin is None or not plugin.alive:
            raise PluginFailed("no plugin")
        reply: asyncio.Future[T] = self.loop.create_future()
        self._pending.add(reply)
        self.calls += 1

        async def run() -> None:
            try:
                result = await work(server)
            except Exception:  # noqa: BLE001 -- kubelet sees an error of the call
                self._soon(_fail, reply)
            else:
                self._soon(_succeed, reply, result)

        self._soon(lambda: self.loop.start(plugin, run()))
        try:
            return await reply
        finally:
            self._pending.discard(reply)

    async def delay(self) -> None:
        await asyncio.sleep(self._network.delay(0.0) / 4)

    def report(self, kubelet: SyncLoop, server: DeviceServer, devices: api.ListAndWatchResponse) -> None:
        """Send the devices of a plugin to the kubelet with which it has registered."""

        def arrive() -> None:
            if self.kubelet is kubelet and self.server is server:
                self.state.report(RESOURCE, devices)

        self._soon(arrive)

    def listing(self) -> Listing | None:
        """Return kubelet's list: the pods that it has admitted, without their ordinary init containers."""
        if self.kubelet is None:
            return None
        pods = self.kubelet.active_pods()
        return {f"{pod['metadata']['namespace']}/{pod['metadata']['name']}": self._entry(pod) for pod in pods}

    def given_cards(self, uid: str) -> dict[str, set[str]]:
        return {name: {_card_at(path) for path in has.device_nodes} for name, has in self._given(uid)}

    def tile_variables(self, uid: str) -> dict[str, str]:
        """Return by container the variable that limits it to tiles; empty if it has none."""
        return {name: has.env.get(TILE_VARIABLE, "") for name, has in self._given(uid)}

    def _given(self, uid: str) -> Iterator[tuple[str, ContainerDevices]]:
        for name, has in self.state.allocations.get(uid, {}).items():
            yield name, container_devices(each.response for each in has.values())

    def _entry(self, pod: dict[str, Any]) -> ContainerIds:
        return {
            each["name"]: {
                resource: frozenset(known_ids(allocation.ids))
                for resource, allocation in self.state.allocations_of(pod["metadata"]["uid"], each["name"]).items()
            }
            for each in shown_containers(pod)
        }

    def _soon(self, action: Callable[..., object], *args: Any) -> None:
        self._later(self._network.delay(0.0) / 4, action, *args)

    def _later(self, seconds: float, action: Callable[..., object], *args: Any) -> None:
        self.loop.call_later(seconds, action, *args, context=self._network.process.context)


class _State(DeviceState):
    """The devices of a machine, which note the pods whose devices become free."""

    def __init__(self, dropped: set[str]) -> None:
        super().__init__()
        self._dropped = dropped

    def keep_only(self, uids: Collection[str]) -> None:
        self._dropped.update(uid for uid in self.allocations if uid not in uids)
        super().keep_only(uids)


def pace_by(chance: Chance) -> KubeletPace:
    """Return the times of a kubelet, which come from chance."""
    return KubeletPace(
        start=2.0,
        init=1.0,
        stop=2.0,
        sources=1.0,
        teardown=0.5,
        removal=0.5,
        retry=1.0,
        spread=lambda seconds: chance.between(seconds / 20, seconds),
    )


class _Plugins:
    def __init__(self, host: Host, chance: Chance) -> None:
        self._host = host
        self._chance = chance

    async def prefer(
        self, _resource: str, available: frozenset[str], must_include: frozenset[str], size: int
    ) -> frozenset[str]:
        question = api.ContainerPreferredAllocationRequest(
            available_deviceIDs=self._chance.in_any_order(available),
            must_include_deviceIDs=sorted(must_include),
            allocation_size=size,
        )
        return frozenset((await self._host.call(lambda server: server.preferred(question))).deviceIDs)

    async def allocate(self, _resource: str, ids: frozenset[str]) -> bytes:
        async def allocated(server: DeviceServer) -> api.ContainerAllocateResponse:
            return server.allocated(api.ContainerAllocateRequest(devices_ids=sorted(ids)))

        response = await self._host.call(allocated)
        for card in sorted({id_.partition("-")[0] for id_ in ids}):
            if int(card.removeprefix("card")) not in self._host.cards:  # it is gone, and counts as given
                response.devices.add(container_path=f"/dev/dri/{card}")
        encoded: bytes = response.SerializeToString(deterministic=True)
        return encoded

    async def pre_start(self, _resource: str, _ids: frozenset[str]) -> None:
        """Do nothing: no part of the plugin that asks for this is on."""


def _fail(reply: asyncio.Future[Any]) -> None:
    if not reply.done():
        reply.set_exception(PluginFailed("the plugin failed"))


def _succeed(reply: asyncio.Future[Any], result: object) -> None:
    if not reply.done():
        reply.set_result(result)


class PodResources:
    """Stand in for the plugin's client of kubelet's PodResources."""

    def __init__(self, host: Host) -> None:
        self._host = host

    async def pods(self) -> Listing | None:
        await self._host.delay()
        found = self._host.listing()
        await self._host.delay()
        return found

    async def pod(self, namespace: str, name: str) -> ContainerIds | None:
        return ((await self.pods()) or {}).get(f"{namespace}/{name}")

    async def allocatable(self) -> Mapping[str, frozenset[str]] | None:
        return None

    async def close(self) -> None:
        """Do nothing: nothing is open."""


class Registration:
    """Stand in for the plugin's registration with kubelet: the plugin looks for a new kubelet twice a second."""

    def __init__(
        self,
        host: Host,
        server: DeviceServer,
        _directory: Path,
        *,
        allocatable: object,
        on_kubelet: Callable[[Any], None],
        on_state: Callable[[], None],
    ) -> None:
        del allocatable
        self.state = Phase.NO_CARDS
        self.registrations = 0
        self.trouble: str | None = None
        self.server = server
        self._host = host
        self._on_kubelet = on_kubelet
        self._on_state = on_state

    async def run(self) -> None:
        while self.server.devices is None:
            await self.server.news()
        known: SyncLoop | None = None
        watch: asyncio.Task[None] | None = None
        while True:
            kubelet = self._host.kubelet
            if kubelet is not None and kubelet is not known:
                known = kubelet
                if watch is not None:
                    watch.cancel()
                self._on_kubelet(kubelet)
                await self._host.delay()
                self._host.server = self.server
                watch = asyncio.create_task(self._report(kubelet))
                self.registrations += 1
                self.state = Phase.WATCHED
                self._on_state()
            await asyncio.sleep(0.5)

    async def _report(self, kubelet: SyncLoop) -> None:
        async for devices in self.server.watched():
            self._host.report(kubelet, self.server, devices)


class Cards:
    """Stand in for sysfs with the cards of a machine."""

    drivers = ("i915",)

    def __init__(self, host: Host) -> None:
        self._host = host

    def read(self) -> Scan:
        return Scan(
            gpus=tuple(
                CardFacts(
                    card=Card(number),
                    driver="i915",
                    device_id="0x56c0",
                    pci_address=f"0000:{number:02x}:00.0",
                    memory=MEMORY,
                    tiles=TILES_OF_A_CARD,
                    memory_source=MemorySource.SYSFS,
                    device_nodes=(f"card{number}", f"renderD{128 + number}"),
                )
                for number in self._host.cards
            )
        )


def _card_at(path: str) -> str:
    name = path.removeprefix("/dev/dri/")
    return f"card{int(name.removeprefix('renderD')) - 128}" if name.startswith("renderD") else name
