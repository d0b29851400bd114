"""Run a day on one node, in an hour of virtual time: drivers, cards, labels and the plugin fail in an order by chance.

The plugin is the product's, with its scans, events and writes. Stand-ins are the driver's library, the tree of Intel's
cards, and kubelet, which gives pods the devices that it is shown and makes the container again when a probe fails. The
laws compare what the plugin shows with what is true:

- *unhealthy cards*: a card that cannot be used is given to no pod, and a card that can be used is offered;
- *records*: what was recorded on the node stays, whichever plugin runs;
- *probe*: it fails if a new container would help, within the stated time, and never otherwise;
- *events*: every loss has one.

``python -m simulation.days`` runs many.
"""

import asyncio
import json
import os
import shutil
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

from gas.plugin.assembly import NodeInterfaces, Plugin
from gas.plugin.devices.device_ids import known_ids
from gas.plugin.discovery.scanner import AGAIN_AFTER, INTERVAL, RESTART_AFTER
from gas.plugin.discovery.sysfs import SysfsCards
from gas.plugin.flags import Environment, parse_flags
from gas.plugin.kubelet.device_server import DeviceServer
from gas.plugin.kubelet.registration import Phase
from gas.plugin.metrics import Metrics
from gas.plugin.nvml.failures import RECOVERED_AFTER
from gas.plugin.nvml.nvml_cards import NvmlCards
from gas.plugin.nvml.nvml_library import Failure, Nvml, NvmlCard, NvmlFault
from gas.plugin.nvml.part import CATALOGUE, parse_xids
from gas.values.card_records import ANNOTATION
from gas.values.cards import FIRST_BESIDE_OTHERS, Card, instance
from gas.values.timing import Timing, seconds_of
from sandbox.api.kinds import EVENTS, NODES
from sandbox.hardware.fake_sysfs import FLEX_170, add_gpu, fake_gpus, write_tree
from simulation import objects
from simulation.api import EPOCH
from simulation.loop import Process
from simulation.observed import LawBroken
from simulation.plan import Plan
from simulation.run import Outcome, quietly
from simulation.system import at_once, connect
from simulation.world import World

NODE = "n0"
DAY = 3600.0  # virtual seconds
NOTICED = 35.0  # seconds after which the plugin must show what is true: three late scans, and a write
QUIET = 300.0  # seconds in which an equal event is counted, but not written again
PROBE, PROBES = 10.0, 6  # kubelet's period, and the failures after which it makes the container again
INTELS = fake_gpus(FLEX_170, 2)
WHOLE = range(3)  # NVIDIA's cards by index; the next one is divided
DIVIDED = 3
INSTANCES = (1, 2)
FATAL, HARMLESS = (48, 79, 109), (13, 31, 94)


def _uuid(index: int, gi: int = 0) -> str:
    return f"{'MIG' if gi else 'GPU'}-00000000-0000-4000-8000-{index:06x}{gi:06x}"


def _number(index: int, gi: int = 0) -> Card:
    card = Card(FIRST_BESIDE_OTHERS + index)
    return instance(card, 10 * gi) if gi else card


NVIDIAS = {
    **{_number(index): (index, 0) for index in WHOLE},
    **{_number(DIVIDED, gi): (DIVIDED, gi) for gi in INSTANCES},
}


class Machine:
    """The truth about drivers and cards, and what the plugin's present container was given of them."""

    def __init__(self, root: Path, *, states_recovery: bool) -> None:
        self.root = root
        self.states_recovery = states_recovery
        self.driver: int | None = 1  # the version that is loaded
        self.lost: set[tuple[int, int]] = set()
        self.failed: set[tuple[int, int]] = set()
        self.reports: dict[int, list[Failure]] = {}
        self.slow: dict[int | str, int] = {}  # by call, how many scans its reply takes
        self.is_intel_loaded = True
        self.library: int | None = 1  # of the container
        self.has_devices = True
        self.removed: int | None = None  # the descriptor of the removed /dev/dri that the container has
        write_tree(root, INTELS)
        (root / "dev/dri").rename(root / "dev/host-dri")
        (root / "dev/dri").symlink_to("host-dri")
        for index in (*WHOLE, DIVIDED):
            device = root / f"sys/bus/pci/devices/0000:{0x50 + index:02x}:00.0"
            device.mkdir(parents=True)
            (device / "vendor").write_text("0x10de\n")
            (device / "class").write_text("0x030200\n")

    def new_container(self) -> None:
        self.library, self.has_devices = self.driver, True
        self._keep_removed(None)

    def _keep_removed(self, descriptor: int | None) -> None:
        """Let /dev/dri of the container be the host's directory, or a removed one."""
        dri = self.root / "dev/dri"
        dri.unlink()
        dri.symlink_to("host-dri" if descriptor is None else f"/proc/self/fd/{descriptor}")
        if self.removed is not None and descriptor != self.removed:
            os.close(self.removed)
        self.removed = descriptor

    def unload_intel(self) -> None:
        self.is_intel_loaded = False
        for gpu in INTELS:
            for name in (f"card{gpu.card}", gpu.render_node):
                (self.root / "sys/class/drm" / name).unlink()
            shutil.rmtree(self.root.joinpath("sys/devices", *gpu.pci_path))
        shutil.rmtree(self.root / "dev/host-dri")
        (self.root / "dev/host-dri").mkdir()

    def load_intel(self, *, removed: bool) -> None:
        """Load Intel's driver; ``removed`` if it made /dev/dri again."""
        self.is_intel_loaded = True
        before = self.removed
        if removed and before is None:
            gone = self.root / "dev/gone"
            gone.mkdir()
            before = os.open(gone, os.O_RDONLY)
            gone.rmdir()
        self.removed = None
        self._keep_removed(None)
        for gpu in INTELS:
            add_gpu(self.root, gpu)
        if before is not None:
            self._keep_removed(before)

    @property
    def has_container_fault(self) -> bool:
        """True if a new container would see more."""
        misses = self.driver is not None and self.library != self.driver
        return misses or not self.has_devices or (self.removed is not None and self.is_intel_loaded)

    def bad_cards(self) -> set[Card]:
        bad = {gpu.card for gpu in INTELS} if not self.is_intel_loaded or self.removed is not None else set()
        if self.driver is None or self.library != self.driver or not self.has_devices:
            return {*map(Card, bad), *NVIDIAS}
        for number, (index, gi) in NVIDIAS.items():
            if {(index, 0), (index, gi)} & (self.lost | self.failed):
                bad.add(number)
        return {Card(int(each)) for each in bad}


class Library(Nvml):
    """The driver's library in a container."""

    def __init__(self, machine: Machine) -> None:
        super().__init__()
        self.machine = machine
        self.go_on = threading.Event()

    def open(self) -> None:
        machine = self.machine
        if machine.library is None:
            raise NvmlFault("nvmlInit: no library", code=12)
        if machine.driver is None:
            raise NvmlFault("nvmlInit: Driver Not Loaded", code=9)
        if machine.library != machine.driver:
            raise NvmlFault("nvmlInit: Driver/library version mismatch", code=18)

    def close(self) -> None: ...

    def count(self) -> int:
        self._wait("count")
        self.open()
        return DIVIDED + 1

    def card(self, index: int) -> NvmlCard:
        self._wait(index)
        self.open()
        machine = self.machine
        if not machine.has_devices:
            raise NvmlFault("nvmlDeviceGetHandleByIndex: Unknown Error", code=999)
        if (index, 0) in machine.lost:
            raise NvmlFault("nvmlDeviceGetHandleByIndex: GPU is lost", code=15, is_lost=True)
        self._reported += machine.reports.pop(index, [])
        recovery = int((index, 0) in machine.failed) if machine.states_recovery else None
        whole = self._described(index, recovery=recovery, has_mig=index == DIVIDED)
        if index != DIVIDED:
            return whole
        there = [gi for gi in INSTANCES if (index, gi) not in machine.lost]
        parts = [
            self._described(index, gi, card_uuid=whole.uuid, place=(gi, 0), millicores=428, recovery=recovery)
            for gi in there
        ]
        return self._described(index, recovery=recovery, has_mig=True, instances=tuple(parts))

    def share_a_switch(self, _one: str, _other: str) -> bool:
        return False

    def _described(self, index: int, gi: int = 0, **fields: Any) -> NvmlCard:
        pci, uuid = (0, 0x50 + index, 0), _uuid(index, gi)
        return NvmlCard(
            index=index,
            uuid=uuid,
            minor=index,
            pci=pci,
            pci_ids=0x233010DE,
            model="H100",
            total=2**36,
            reserved=0,
            **fields,
        )

    def _wait(self, call: int | str) -> None:
        if call in self.machine.slow:
            self.go_on.wait()


class Cards(NvmlCards):
    """NVIDIA's cards, whose late replies take real time only as long as they are late."""

    def read(self) -> Any:
        library = cast(Library, self.library)
        slow = library.machine.slow
        for call in list(slow):
            slow[call] -= 1
            if slow[call] <= 0:
                del slow[call]
        if not slow:
            library.go_on.set()
            library.go_on = threading.Event()
        self.within = 0.2 if slow else 10.0
        return super().read()


class Watched:
    """Stand in for the plugin's registration: kubelet watches what is offered."""

    state, registrations, trouble = Phase.WATCHED, 0, None

    def __init__(self, server: DeviceServer, _directory: Path, **_: object) -> None:
        self.server = server

    async def run(self) -> None:
        while True:
            await self.server.news()


class NoPods:
    """Stand in for kubelet's list of pods, which have no devices yet."""

    async def pods(self) -> dict[str, Any]:
        return {}

    async def allocatable(self) -> None: ...

    async def close(self) -> None: ...


class Day:
    def __init__(self, seed: int, root: Path) -> None:
        self.world = World(Plan(seed=seed, nodes=((),), webhooks=False, steps=()), keep_trace=True)
        self.chance = self.world.chance.stream("day")
        self.machine = Machine(root, states_recovery=self.chance.happens(0.5))
        self.figures = {"scans": 0, "pods": 0, "restarts by probe": 0, "losses": 0, "faults": 0}
        self.plugin: Plugin | None = None
        self.process: Process | None = None
        self.is_other = False  # the plugin is that of another DaemonSet, for Intel's cards only
        self.since = 0.0  # when the plugin started
        self._bad_since: dict[Card, float] = {}
        self._good_since: dict[Card, float] = {}
        self._fault_since: float | None = None
        self._can_ask, self._asked_since = True, 0.0  # whether no probe should fail, and since when that is so
        self._recorded: set[int] = set()
        self._failures = 0
        self._truth = ""
        self.world.api.api.create(NODES, None, objects.node(NODE, ()))

    @property
    def now(self) -> float:
        return self.world.loop.time()

    def run(self) -> None:
        """Run it. Raises LawBroken."""
        world = self.world
        world.loop.set_exception_handler(lambda _loop, context: world.fail("no exception at the top", str(context)))
        try:
            world.loop.run_until_complete(self._day())
        finally:
            world.end()
        if world.broken is not None:
            raise world.broken

    async def _day(self) -> None:
        self.start()
        for work in (self._act, self._probe, self._watch):
            self.world.loop.start(self.world.outside, self.world.watched("the day", work))
        self.world.later(DAY, self.world.over.set)
        await self.world.over.wait()

    def start(self, *, is_other: bool = False) -> None:
        if self.process is not None:
            self.process.kill()
            self.world.network.client_gone(self.process)
        self.is_other, self.since, self._failures, self._saw_all = is_other, self.now, 0, False
        self.machine.reports.clear()  # a new plugin does not know earlier failures
        if not self.machine.states_recovery:
            self.machine.failed.clear()
        self.process = self.world.new_process(f"plugin-{NODE}")
        self.world.trace("kubelet", f"starts the plugin{' of another DaemonSet' * is_other}")
        self.world.loop.start(self.process, self.world.watched(self.process.name, partial(self._run, self.process)))

    async def _run(self, process: Process) -> None:
        world, root = self.world, self.machine.root
        timing = Timing(
            monotonic=world.loop.time,
            nanoseconds=lambda: int((EPOCH + world.loop.time()) * 1e9),
            spread=self.chance.between,
        )
        xids = parse_xids(CATALOGUE)
        nvidia = Cards(
            root,
            Library(self.machine),
            first_number=FIRST_BESIDE_OTHERS,
            ignored_xids=xids,
            clock=world.loop.time,
        )
        sysfs = SysfsCards(root, query=lambda *_: ())
        interfaces = NodeInterfaces(
            resources=lambda *_: cast(Any, NoPods()),
            registration=cast(Any, Watched),
            off_loop=at_once,
            cards=lambda *_: [sysfs] if self.is_other else [sysfs, nvidia],
            timing=timing,
        )
        arguments = [f"--node-name={NODE}", f"--prefix={root}", "--vocabularies=intel,vendor,koordinator"]
        flags = parse_flags(arguments, environ={}, host_name=NODE)
        api = await connect(world, process, timing)
        self.plugin = Plugin(api, flags, Environment(), Metrics("simulation"), parts=(), interfaces=interfaces)
        await self.plugin.run()

    async def _act(self) -> None:
        """Let something fail, and come back some time later."""
        acts: list[tuple[float, Callable[[], None]]] = [
            (2, self._xid),
            (2, self._lose_a_card),
            (2, self._slow_calls),
            (1, partial(self._unload, upgrades=False)),
            (1, partial(self._unload, upgrades=True)),
            (2, self._lose_devices),
            (1, self._reload_intel),
            (1, self._flap),
            (1, self.start),
        ]
        while True:
            await asyncio.sleep(self.chance.between(10, 200))
            self.figures["faults"] += 1
            self.chance.weighted(acts)()

    def _xid(self) -> None:
        index = self.chance.one_of([*WHOLE, DIVIDED])
        if (xid := self.chance.one_of([*FATAL, *HARMLESS])) in HARMLESS:
            self.machine.reports.setdefault(index, []).append(Failure(_uuid(index), xid))
            return
        # With a driver that states what it demands, the failure of an instance alone would pass by itself.
        gi = self.chance.one_of(INSTANCES) if index == DIVIDED and not self.machine.states_recovery else 0
        self.machine.reports.setdefault(index, []).append(
            Failure(_uuid(index), xid, *((gi, 0) if gi else (None, None)))
        )
        self.machine.failed.add((index, gi))
        self.world.later(self.chance.between(20, 300), self._lose, index, gi)

    def _lose_a_card(self) -> None:
        self._lose(self.chance.one_of([*WHOLE, DIVIDED]), 0)

    def _lose(self, index: int, gi: int) -> None:
        """Let a card, or an instance, be away for a while, after which it has been reset."""
        self.machine.lost.add((index, gi))
        self.machine.reports.pop(index, None)
        self.world.later(self.chance.between(16, 40), self._return, index, gi)

    def _return(self, index: int, gi: int) -> None:
        self.machine.lost.discard((index, gi))
        if self.machine.driver is None or self._has_watched:
            self.machine.failed.discard((index, gi))
        else:
            self._lose(index, gi)  # the plugin has not seen that it was away

    @property
    def _has_watched(self) -> bool:
        """True if the plugin could see in the last seconds what happened to cards."""
        sees = self.machine.library == self.machine.driver and self.machine.has_devices and not self.machine.slow
        return sees and not self.is_other and self.now - self.since > 16

    def _slow_calls(self) -> None:
        if self.machine.slow:
            return
        for call in self.chance.in_any_order(["0", "1", "2", "3", "count"])[: self.chance.whole(1, 3)]:
            self.machine.slow[call if call == "count" else int(call)] = 2

    def _unload(self, *, upgrades: bool) -> None:
        if (version := self.machine.driver) is not None:
            self.machine.driver = None
            self.machine.failed.clear()
            self.machine.reports.clear()
            self.world.later(self.chance.between(20, 250), self._load, version + upgrades)

    def _load(self, version: int) -> None:
        self.machine.driver = version

    def _lose_devices(self) -> None:
        self.machine.has_devices = False

    def _reload_intel(self) -> None:
        if self.machine.is_intel_loaded:
            self.machine.unload_intel()
            removed = self.chance.happens(0.5)
            self.world.later(self.chance.between(10, 40), partial(self.machine.load_intel, removed=removed))

    def _flap(self) -> None:
        self.start(is_other=True)
        self.world.later(self.chance.between(30, 200), self._return_label)

    def _return_label(self) -> None:
        if self.is_other:
            self.machine.new_container()
            self.start()

    async def _probe(self) -> None:
        while True:
            await asyncio.sleep(PROBE)
            fails = self.plugin is not None and self.plugin.scanner.needs_restart is not None
            self._failures = self._failures + 1 if fails else 0
            if self._failures >= PROBES:
                self.figures["restarts by probe"] += 1
                self.machine.new_container()
                self.start(is_other=self.is_other)

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(INTERVAL)
            self.world.check(self._look)

    def _look(self) -> None:
        """Compare what the plugin shows with what is true. Raises LawBroken."""
        plugin, bad, machine = self.plugin, self.machine.bad_cards(), self.machine
        container = f"library {machine.library}, devices {machine.has_devices}, /dev/dri {machine.removed is None}"
        of_cards = f"lost {machine.lost}, failed {machine.failed}, bad {sorted(map(int, bad))}"
        truth = f"driver {machine.driver}, Intel's {machine.is_intel_loaded}, {container}, {of_cards}"
        if truth != self._truth:
            self.world.trace("true", truth)
            self._truth = truth
        if plugin is None:
            return
        cards = {*NVIDIAS, *(Card(gpu.card) for gpu in INTELS)}
        self._bad_since = {card: self._bad_since.get(card, self.now) for card in cards & bad}
        self._good_since = {card: self._good_since.get(card, self.now) for card in cards - bad}
        is_fault = self.machine.has_container_fault
        self._fault_since = (self.now if self._fault_since is None else self._fault_since) if is_fault else None
        can_ask = not is_fault and self.machine.driver is not None
        if can_ask is not self._can_ask:
            self._can_ask, self._asked_since = can_ask, self.now
        self._saw_all |= can_ask and self.now - max(self.since, self._asked_since) > NOTICED
        self.figures["scans"] = max(self.figures["scans"], plugin.scanner.finished)
        self._check_records()
        if self.now - self.since > NOTICED:
            self._check_cards(plugin)
            self._check_probe(plugin)

    def _check_records(self) -> None:
        annotations = self.world.api.api.get(NODES, None, NODE).value["metadata"].get("annotations", {})
        recorded = {record["card"] for record in json.loads(annotations.get(ANNOTATION, "[]"))}
        if gone := self._recorded - recorded:
            raise LawBroken("records", f"{ANNOTATION} lost {sorted(gone)}")
        self._recorded |= recorded

    def _check_cards(self, plugin: Plugin) -> None:
        offered = {id_.card for server in plugin.registrations for id_ in known_ids(server.healthy_ids)}
        if offered:
            self.figures["pods"] += 1
            given = self.chance.one_of(sorted(offered))
            if self.now - self._bad_since.get(given, self.now) > NOTICED:
                raise LawBroken("unhealthy cards", f"a pod was given {given}, which is bad")
        lost = [
            event
            for each in self.world.api.storage.objects(EVENTS.plural)
            if (event := each.value)["reason"] == "GPUCardUnhealthy"
        ]
        for card in [*NVIDIAS, *(Card(gpu.card) for gpu in INTELS)] if not self.is_other else ():
            if (since := self._bad_since.get(card)) is not None and self.now - since > NOTICED:
                times = [
                    seconds_of(each["lastTimestamp"]) - EPOCH
                    for each in lost
                    if each["message"].startswith(f"{card}: ")
                ]
                if not any(each >= since - QUIET for each in times):
                    raise LawBroken("events", f"{card} is bad since {since:g}, and its last events are of {times}")
            settled = max(self._good_since.get(card, self.now), self.since)
            if card not in offered and self.now - settled > RECOVERED_AFTER + NOTICED:
                raise LawBroken("unhealthy cards", f"{card} is good since {settled:g} and not offered")
        self.figures["losses"] = sum(plugin.losses.lost.values())

    def _check_probe(self, plugin: Plugin) -> None:
        fails = plugin.scanner.needs_restart is not None
        since = self.since if self._fault_since is None else max(self._fault_since, self.since)
        if (
            self._fault_since is not None
            and not self.is_other
            and not fails
            and self.now - since > (RESTART_AFTER if self._saw_all else AGAIN_AFTER) + NOTICED
        ):
            raise LawBroken("probe", f"a new container would help since {since:g}, and /healthz is good")
        lasted = self.now - self._asked_since
        if fails and (lasted > NOTICED if self._can_ask else lasted < RESTART_AFTER - INTERVAL):
            raise LawBroken("probe", f"/healthz fails although {self._can_ask=} for {lasted:g} s")


def run_day(seed: int) -> Outcome:
    with quietly(), TemporaryDirectory(prefix="gas-day-") as name:
        day = Day(seed, Path(name).resolve())
        law = sentence = ""
        try:
            day.run()
        except LawBroken as broken:
            law, sentence = broken.law, broken.sentence
        return Outcome(seed, law, sentence, dict(day.figures), "", day.world.trace_lines or ())
