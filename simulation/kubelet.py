"""Kubelets that give devices, and the device plugins beside them.

The plugin is the product's. Kubelet's device manager is a model of what 1.34 does, see docs/plugin.md. Calls between
the two take time and fail when one of them ends, but are not encoded.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from gas.plugin.devices.device_ids import known_ids
from gas.plugin.kubelet.device_server import DeviceServer
from gas.plugin.kubelet.pod_resources import ContainerIds, Listing
from gas.plugin.kubelet.registration import State
from gas.plugin.kubelet_api import deviceplugin_v1beta1_pb2 as api
from gas.values.card_facts import CardFacts, MemorySource, Scan
from gas.values.cards import Card
from simulation.chance import Chance
from simulation.loop import Process, VirtualLoop
from simulation.network import Client, Network
from simulation.nodes import Kubelet
from simulation.objects import COUNT, MEMORY, PREFIX, Object, demand

RESOURCE = PREFIX + COUNT
LISTS_NOTHING = 1.0
"""Seconds after its start in which kubelet lists no pods."""

T = TypeVar("T")


class Refused(Exception):
    """Kubelet cannot give a container its devices, and fails the pod."""


class Host:
    """One machine: what outlives its processes, and the way between them.

    cards          numbers of the cards that the plugin finds
    given          by pod and container: the ids that kubelet has given
    seen           likewise: the cards whose device nodes the container has
    pods           by UID: the pods that kubelet has taken up
    dropped        UIDs of the pods that have ended, or that it has refused
    kubelet_since  when kubelet started; None while it is away
    server         of the plugin, while kubelet knows it
    plugin         its process
    """

    def __init__(self, loop: VirtualLoop, network: Network, cards: tuple[int, ...]) -> None:
        self.loop = loop
        self.cards = cards
        self.given: dict[str, dict[str, frozenset[str]]] = {}
        self.seen: dict[str, dict[str, set[str]]] = {}
        self.pods: dict[str, Object] = {}
        self.dropped: set[str] = set()
        self.kubelet_since: float | None = None
        self.server: DeviceServer | None = None
        self.plugin: Process | None = None
        self.calls = 0
        self._network = network
        self._pending: set[asyncio.Future[Any]] = set()

    def kubelet_starts(self) -> None:
        """Note that kubelet starts: it takes up its pods again, and plugins have to register again."""
        self.kubelet_since = self.loop.time()
        self.pods.clear()

    def kubelet_ends(self) -> None:
        """Note that kubelet has ended."""
        self.kubelet_since = self.server = None

    def plugin_ends(self) -> None:
        """Note that the plugin has ended: kubelet's calls fail, and it offers no devices any more."""
        self.server = None
        for reply in self._pending:
            self._later(_fail, reply)
        self._pending.clear()

    @property
    def plugin_runs(self) -> bool:
        """True while the plugin's process is there."""
        return self.plugin is not None and self.plugin.alive

    def drop(self, uid: str) -> None:
        """Forget a pod that has ended."""
        self.pods.pop(uid, None)
        self.given.pop(uid, None)
        self.seen.pop(uid, None)
        self.dropped.add(uid)

    async def call(self, work: Callable[[DeviceServer], Awaitable[T]]) -> T:
        """Let the plugin do something for kubelet. Raises Refused if it is away or fails."""
        server, plugin = self.server, self.plugin
        if server is None or plugin is None or not plugin.alive:
            raise Refused("no plugin")
        reply: asyncio.Future[T] = self.loop.create_future()
        self._pending.add(reply)
        self.calls += 1

        async def run() -> None:
            try:
                result = await work(server)
            except Exception:  # noqa: BLE001 -- kubelet sees an error of the call
                self._later(_fail, reply)
            else:
                self._later(_succeed, reply, result)

        self._later(lambda: self.loop.start(plugin, run()))
        try:
            return await reply
        finally:
            self._pending.discard(reply)

    async def delay(self) -> None:
        """Let the time of one message pass."""
        await asyncio.sleep(self._network.delay(0.0) / 4)

    def listing(self) -> Listing:
        """Return what kubelet lists: the pods that it has taken up, without their ordinary init containers."""
        return {f"default/{pod['metadata']['name']}": self._entry(uid, pod) for uid, pod in self.pods.items()}

    def given_cards(self, uid: str) -> dict[str, set[str]]:
        """Return the cards that each container of a pod has."""
        return {name: self.seen[uid].get(name, set()) for name in self.given.get(uid, {})}

    def _entry(self, uid: str, pod: Object) -> ContainerIds:
        given = self.given.get(uid, {})
        return {
            name: {RESOURCE: frozenset(known_ids(given[name]))} if given.get(name) else {}
            for name in (each["name"] for each in pod["spec"]["containers"])
        }

    def _later(self, action: Callable[..., object], *args: Any) -> None:
        seconds = self._network.delay(0.0) / 4
        self.loop.call_later(seconds, action, *args, context=self._network.process.context)


def _fail(reply: asyncio.Future[Any]) -> None:
    if not reply.done():
        reply.set_exception(Refused("the plugin failed"))


def _succeed(reply: asyncio.Future[Any], result: object) -> None:
    if not reply.done():
        reply.set_result(result)


class PodResources:
    """Stand in for the plugin's client of kubelet's PodResources."""

    def __init__(self, host: Host) -> None:
        self._host = host

    async def pods(self) -> Listing | None:
        await self._host.delay()
        since = self._host.kubelet_since
        found = None if since is None else self._host.listing()
        if since is not None and self._host.loop.time() < since + LISTS_NOTHING:
            found = {}
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
        self.state = State.NO_CARDS
        self.registrations = 0
        self.trouble: str | None = None
        self.server = server
        self._host = host
        self._on_kubelet = on_kubelet
        self._on_state = on_state

    async def run(self) -> None:
        """Keep the resource registered until cancelled."""
        while self.server.devices is None:
            await self.server.news()
        known: float | None = None
        while True:
            since = self._host.kubelet_since
            if since is not None and since != known:
                known = since
                self._on_kubelet(since)
                await self._host.delay()
                self._host.server = self.server
                self.registrations += 1
                self.state = State.WATCHED
                self._on_state()
            await asyncio.sleep(0.5)


class Cards:
    """The cards of a machine, in place of sysfs."""

    drivers = ("i915",)

    def __init__(self, host: Host) -> None:
        self._host = host

    def read(self) -> Scan:
        """Return the cards that are there."""
        return Scan(
            gpus=tuple(
                CardFacts(
                    card=Card(number),
                    driver="i915",
                    device_id="0x56c0",
                    pci_address=f"0000:{number:02x}:00.0",
                    memory=MEMORY,
                    memory_source=MemorySource.SYSFS,
                    device_nodes=(f"card{number}", f"renderD{128 + number}"),
                )
                for number in self._host.cards
            )
        )


class DeviceKubelet(Kubelet):
    """A kubelet that gives devices. It admits one pod at a time, those that come at once in any order."""

    def __init__(self, node: str, client: Client, chance: Chance, host: Host) -> None:
        super().__init__(node, client, chance)
        self._host = host
        self._one_at_a_time = asyncio.Lock()
        self._ended: set[str] = set()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(super().run())
            await self._mirror.complete.wait()
            for uid in self._host.given.keys() - self._mirror.objects.keys():
                self._host.drop(uid)

    def _changed(self, before: dict[str, Any] | None, after: dict[str, Any] | None) -> None:
        super()._changed(before, after)
        pod = after or before
        if pod is not None and (after is None or pod.get("status", {}).get("phase") in ("Succeeded", "Failed")):
            self._ended.add(pod["metadata"]["uid"])
            self._host.drop(pod["metadata"]["uid"])

    async def _admitted(self, pod: dict[str, Any]) -> bool:
        await asyncio.sleep(self._chance.between(0.0, 0.1))
        # Once begun, it goes on even if the pod is deleted meanwhile.
        return await asyncio.shield(self._tasks.create_task(self._admit(pod)))

    async def _admit(self, pod: dict[str, Any]) -> bool:
        uid = pod["metadata"]["uid"]
        async with self._one_at_a_time:
            if uid in self._ended:
                return False
            self._host.pods[uid] = pod
            try:
                await self._give(uid, pod["spec"])
            except Refused:
                self._host.drop(uid)
                return False
            if uid in self._ended:
                self._host.drop(uid)
            return True

    async def _give(self, uid: str, spec: Object) -> None:
        given, seen = self._host.given.setdefault(uid, {}), self._host.seen.setdefault(uid, {})
        reusable: set[str] = set()
        init = spec.get("initContainers") or []
        for container in [*init, *spec["containers"]]:
            name, count = container["name"], demand(container)[0]
            if count and name not in given:
                given[name], seen[name] = await self._choose(count, reusable)
            ids = given.get(name, frozenset())
            reusable = reusable | ids if container in init else reusable - ids

    async def _choose(self, count: int, reusable: set[str]) -> tuple[frozenset[str], set[str]]:
        """Return the ids of one container, chosen in the way of kubelet's device manager, and its cards.

        Raises Refused.
        """
        ids = set(self._in_any_order(reusable)[:count])
        if len(ids) < count:
            taken = {id_ for pod in self._host.given.values() for each in pod.values() for id_ in each}
            healthy = self._host.server.healthy_ids if self._host.server is not None else frozenset[str]()
            free = set(healthy) - taken
            if len(free) < count - len(ids):
                raise Refused("too few devices")
            question = api.ContainerPreferredAllocationRequest(
                available_deviceIDs=self._in_any_order(free | ids),
                must_include_deviceIDs=sorted(ids),
                allocation_size=count,
            )
            preferred = (await self._host.call(lambda server: server.preferred(question))).deviceIDs
            rest = [id_ for id_ in preferred if id_ in free and id_ not in ids]
            rest += [id_ for id_ in self._in_any_order(free) if id_ not in rest]
            ids.update(rest[: count - len(ids)])
        request = api.ContainerAllocateRequest(devices_ids=sorted(ids))

        async def allocate(server: DeviceServer) -> list[str]:
            return [each.container_path for each in server.allocated(request).devices]

        paths = await self._host.call(allocate)
        missing = {card for card in map(_card_of, ids) if int(card.removeprefix("card")) not in self._host.cards}
        return frozenset(ids), missing | {_card_at(path) for path in paths}

    def _in_any_order(self, ids: set[str] | frozenset[str]) -> list[str]:
        left, order = sorted(ids), []
        while left:
            order.append(left.pop(self._chance.whole(0, len(left) - 1)))
        return order


def _card_of(id_: str) -> str:
    return id_.partition("-")[0]


def _card_at(path: str) -> str:
    """Return the card of a device node."""
    name = path.removeprefix("/dev/dri/")
    return f"card{int(name.removeprefix('renderD')) - 128}" if name.startswith("renderD") else name
