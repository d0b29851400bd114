"""NVIDIA's cards, with a double of their driver's library."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest

from gas.plugin.assembly import Plugin
from gas.plugin.discovery.card_source import CardRules
from gas.plugin.discovery.scanner import CardMemory
from gas.plugin.flags import Environment, parse_flags
from gas.plugin.metrics import Metrics
from gas.plugin.nvml.nvml_cards import NvmlCards
from gas.plugin.nvml.nvml_library import Failure, Nvml, NvmlCard, NvmlFault, NvmlUse, UseSample
from gas.plugin.nvml.part import CATALOGUE, parse_xids
from gas.values.card_facts import CardFacts, MemorySource, Scan
from gas.values.cards import FIRST_BESIDE_OTHERS, Card
from tests.plugin.nvml.nvml_double import GIB, LOST, FakeNvml, instance, nvml_card, uuid

WITHIN = 0.2


def cards_of(library: FakeNvml, root: Path = Path("/nowhere"), **options: Any) -> NvmlCards:
    return NvmlCards(root, library, within=WITHIN, **{"ignored_xids": parse_xids(CATALOGUE)} | options)


def only(found: Scan) -> CardFacts:
    (gpu,) = found.gpus
    return gpu


@pytest.fixture
def stuck() -> Iterator[FakeNvml]:
    """Yield a library of two cards, of which calls may hang until the test ends."""
    library = FakeNvml([nvml_card(0), nvml_card(1)])
    yield library
    library.released.set()


def test_a_card_is_described_as_its_driver_does(tmp_path: Path) -> None:
    node = tmp_path / "sys/bus/pci/devices/0000:3b:00.0"
    node.mkdir(parents=True)
    (node / "numa_node").write_text("1\n")
    library = FakeNvml([nvml_card(3, index=0, pci=(0, 0x3B, 0))])
    assert cards_of(library, tmp_path).read() == Scan(
        gpus=(
            CardFacts(
                card=Card(3),
                driver="nvidia",
                device_id="0x2330",
                model="NVIDIA H100 80GB HBM3",
                pci_address="0000:3b:00.0",
                uuid=uuid(3),
                numa_node=1,
                memory=79 * GIB,
                memory_size=80 * GIB,
                memory_source=MemorySource.QUERY,
                variables=(("NVIDIA_VISIBLE_DEVICES", uuid(3)),),
            ),
        )
    )


def test_beside_other_cards_numbers_begin_at_the_first_number() -> None:
    assert only(cards_of(FakeNvml([nvml_card(2)]), first_number=1000).read()).card == Card(1002)


NO_DRIVER = NvmlFault("nvmlInitWithFlags: no driver", code=9)
CLOSED_OFF = NvmlFault("nvmlDeviceGetHandleByIndex: Unknown Error", code=999)


def pci_device(root: Path, vendor: str = "0x10de", kind: str = "0x030200", driver: str = "nvidia") -> None:
    """Add a device to a tree of sysfs."""
    device = root / "sys/bus/pci/devices/0000:10:00.0"
    device.mkdir(parents=True)
    (device / "vendor").write_text(f"{vendor}\n")
    (device / "class").write_text(f"{kind}\n")
    (device / "device").write_text("0x2330\n")
    if driver:
        (device / "driver").symlink_to(f"../../drivers/{driver}")


@pytest.mark.parametrize(
    ("fields", "is_fault"),
    [
        pytest.param({}, True, id="driver-is-loaded"),
        pytest.param({"driver": ""}, True, id="driver-is-not-loaded"),
        pytest.param({"kind": "0x030000"}, True, id="with-connectors"),
        pytest.param({"driver": "vfio-pci"}, False, id="given-to-a-virtual-machine"),
        pytest.param({"driver": "nouveau"}, False, id="another-driver-has-it"),
        pytest.param({"kind": "0x040300"}, False, id="its-sound-device"),
        pytest.param({"vendor": "0x8086"}, False, id="another-vendor"),
        pytest.param(None, False, id="no-device"),
    ],
)
@pytest.mark.parametrize("fault", ["open", "count", "none"])
def test_only_a_node_with_cards_needs_a_new_container_if_the_library_shows_none(
    tmp_path: Path, fault: str, fields: dict[str, str] | None, *, is_fault: bool
) -> None:
    if fields is not None:
        pci_device(tmp_path, **fields)
    library = FakeNvml([nvml_card(0)], faults={fault: NO_DRIVER})
    cards = cards_of(library, tmp_path)
    library.cards = [] if fault == "none" else library.cards
    found = cards.read()
    assert (found.gpus, bool(found.container_fault)) == ((), is_fault)
    if fault != "none":
        end = "unhealthy" if is_fault else "not offered"
        assert found.problems == (f"NVML: nvmlInitWithFlags: no driver; NVIDIA's cards are {end}",)
    library.faults.clear()
    library.cards = [nvml_card(0)]
    assert only(cards.read()).healthy


def test_cards_that_are_left_out_ask_for_no_new_container(tmp_path: Path) -> None:
    pci_device(tmp_path)
    for rules, is_fault in ((CardRules(deny_ids=frozenset({"0x2330"})), False), (CardRules(), True)):
        library = FakeNvml([], faults={"open": NO_DRIVER})
        assert bool(cards_of(library, tmp_path, rules=rules).read().container_fault) is is_fault


@pytest.mark.parametrize(
    ("faults", "is_fault"),
    [
        pytest.param({"open": NO_DRIVER}, True, id="the-driver-is-gone"),
        pytest.param({"count": CLOSED_OFF}, True, id="the-devices-are-gone"),
        pytest.param({0: CLOSED_OFF, 1: CLOSED_OFF}, True, id="each-card-alone"),
        pytest.param({0: CLOSED_OFF}, False, id="one-card"),
        pytest.param({0: LOST, 1: LOST}, False, id="all-cards-lost"),
    ],
)
def test_cards_that_a_driver_no_longer_shows_stay_unhealthy(faults: dict[int | str, NvmlFault], is_fault: bool) -> None:
    library = FakeNvml([nvml_card(0), nvml_card(1)])
    cards, memory = cards_of(library), CardMemory()
    memory.update(cards.read(), 0)
    library.faults |= faults
    for now in (5, 500):
        found = memory.update(cards.read(), now)
        assert [gpu.healthy for gpu in found.gpus] == [not faults.keys() & {at, "open", "count"} for at in (0, 1)]
        assert found.faults.keys() == {gpu.card for gpu in found.gpus if not gpu.healthy}
        assert bool(found.container_fault) is is_fault


def test_a_library_that_was_closed_is_opened_again() -> None:
    library = FakeNvml([nvml_card(0)])
    cards = cards_of(library)
    cards.read()
    library.faults[0] = NvmlFault("nvmlDeviceGetHandleByIndex: Uninitialized", code=1, is_closed=True)
    cards.read()
    library.faults.clear()
    assert only(cards.read()).healthy
    assert library.opened == 2


def test_a_lost_card_is_unhealthy_and_hides_no_other() -> None:
    library = FakeNvml([nvml_card(0), nvml_card(1)])
    cards, memory = cards_of(library), CardMemory()
    memory.update(cards.read(), 0)
    library.faults[1] = LOST
    found = cards.read()
    assert found.broken == {Card(1)}
    assert not found.blind
    assert found.problems == (
        "card1: the card is lost, its driver no longer reaches it; reset it, or restart the node; it is unhealthy",
    )
    assert [(gpu.card, gpu.healthy) for gpu in memory.update(found, 1).gpus] == [(0, True), (1, False)]


def test_a_card_that_was_never_seen_and_is_lost_is_left_out() -> None:
    library = FakeNvml([nvml_card(0), nvml_card(1)], faults={1: LOST})
    found = cards_of(library).read()
    assert (len(found.gpus), found.broken) == (1, frozenset())
    assert found.problems[0].startswith("NVML's card 1: the card is lost")


def test_three_late_replies_are_a_fault_and_two_are_not(stuck: FakeNvml) -> None:
    cards = cards_of(stuck)
    assert len(cards.read().gpus) == 2
    stuck.hanging.add(1)
    stuck.calls.clear()
    started = time.monotonic()
    found = [cards.read() for _ in range(4)]
    assert time.monotonic() - started < 20 * WITHIN
    assert [len(each.gpus) for each in found] == [2, 2, 1, 1]
    assert found[2].faults == {Card(1): "the driver does not reply; it is unhealthy"}
    assert found[2].problems == ("card1: the driver does not reply; it is unhealthy",)
    assert stuck.calls.count(1) == 1
    stuck.hanging.clear()
    stuck.released.set()
    time.sleep(WITHIN)
    assert len(cards.read().gpus) == 2


def test_a_late_reply_after_a_fault_makes_no_card_good(stuck: FakeNvml) -> None:
    cards = cards_of(stuck)
    cards.read()
    stuck.faults["count"] = CLOSED_OFF
    cards.read()
    stuck.hanging.add("count")
    assert cards.read().gpus == ()


def test_failures_are_noticed_while_a_card_hangs(stuck: FakeNvml) -> None:
    cards = cards_of(stuck)
    stuck.hanging.add(1)
    stuck.pending.append(Failure(uuid(0), 79))
    assert not only(cards.read()).healthy


@pytest.mark.parametrize("calls", [{"open"}, {"count"}, {0, 1}])
def test_a_library_that_stays_late_is_a_fault_that_no_new_container_mends(
    stuck: FakeNvml, calls: set[int | str]
) -> None:
    cards = cards_of(stuck)
    cards.read()
    stuck.hanging |= calls
    assert [len(cards.read().gpus) for _ in range(3)] == [2, 2, 0]
    found = cards.read()
    is_blind = 0 not in calls
    assert (is_blind, found.container_fault) == (bool(found.blind), "")
    if is_blind:
        assert found.problems == ("NVML: the driver does not reply; NVIDIA's cards are unhealthy",)


def after(library: FakeNvml, *, minutes: float, clock: list[float], cards: NvmlCards) -> list[bool]:
    """Scan twice, so much later, and return which cards are healthy then."""
    for seconds in (1, 60 * minutes):
        clock[0] += seconds
        found = cards.read()
    return [gpu.healthy for gpu in found.gpus]


@pytest.mark.parametrize("xid", [48, 79, 109, None])
@pytest.mark.parametrize("recovery", [None, 0, 1])
def test_a_card_that_failed_returns_after_a_proof(xid: int | None, recovery: int | None) -> None:
    library = FakeNvml([nvml_card(0), nvml_card(1, recovery=recovery)])
    clock = [0.0]
    cards = cards_of(library, clock=lambda: clock[0])
    library.pending = [Failure(uuid(1), xid)]
    found = cards.read()
    assert [gpu.healthy for gpu in found.gpus] == [True, False]
    what = "its memory had an error of two bits" if xid is None else f"it reported Xid {xid}"
    do = "restart the node" if xid == 79 and not recovery else "reset it"
    fault = f"{what}; {do}; it returns 60 s after that"
    assert found.faults == {Card(1): fault}
    assert found.problems == (f"card1: {fault}; it is unhealthy",)
    assert after(library, minutes=2, clock=clock, cards=cards) == [True, recovery == 0]
    library.faults[1] = LOST
    assert after(library, minutes=2, clock=clock, cards=cards) == [True]
    library.faults.clear()
    library.cards[1] = nvml_card(1, recovery=recovery and 0)
    assert after(library, minutes=0.5, clock=clock, cards=cards) == [True, recovery == 0]
    assert after(library, minutes=0.6, clock=clock, cards=cards) == [True, True]
    library.pending = [Failure(uuid(1), xid)]
    assert after(library, minutes=0.5, clock=clock, cards=cards) == [True, False]


@pytest.mark.parametrize(
    ("faults", "returns"),
    [
        pytest.param([{"open": NO_DRIVER}], True, id="driver-was-reloaded"),
        pytest.param([{"open": CLOSED_OFF}], False, id="library-failed"),
        pytest.param([{0: CLOSED_OFF}], False, id="card-could-not-be-read"),
        pytest.param([{0: LOST}, {0: CLOSED_OFF}], True, id="away-and-then-not-read"),
    ],
)
def test_only_a_reset_is_a_proof(faults: list[dict[int | str, NvmlFault]], *, returns: bool) -> None:
    library = FakeNvml([nvml_card(0)], pending=[Failure(uuid(0), 48)])
    clock = [0.0]
    cards = cards_of(library, clock=lambda: clock[0])
    cards.read()
    for library.faults in (*faults, {}):
        cards.read()
    assert after(library, minutes=2, clock=clock, cards=cards) == [returns]


@pytest.mark.parametrize(
    ("recovery", "fault"),
    [(2, "its driver demands: restart the node"), (9, "its driver demands: do its recovery action 9")],
)
def test_a_demand_of_the_driver_counts_without_a_failure(recovery: int, fault: str) -> None:
    library = FakeNvml([nvml_card(0, recovery=recovery)])
    assert cards_of(library).read().faults == {Card(0): fault}


@pytest.mark.parametrize(
    ("text", "ignored", "counted"),
    [
        ("catalogue", {13, 31, 32, 43, 45, 63, 68, 94, 154}, {46, 48, 62, 64, 74, 79, 95, 109, 119, 140, 158}),
        ("catalogue,109", {94, 109}, {79}),
        ("13, 31-33", {13, 31, 32, 33}, {94, 30}),
        ("", set(), {13}),
    ],
)
def test_a_flag_says_which_xids_do_not_count(text: str, ignored: set[int], counted: set[int]) -> None:
    xids = parse_xids(text)
    assert ignored <= xids
    assert not counted & xids


@pytest.mark.parametrize("text", ["x", "13,", "13-", "1000", "-5", "catalog"])
def test_other_texts_are_no_xids(text: str) -> None:
    with pytest.raises(ValueError, match="catalogue, or numbers"):
        parse_xids(text)


@pytest.mark.parametrize("xid", [13, 31, 43, 45, 68, 94])
def test_a_failure_of_an_application_is_none_of_its_card(xid: int) -> None:
    found = cards_of(FakeNvml([nvml_card(0)], pending=[Failure(uuid(0), xid)])).read()
    assert (only(found).healthy, found.problems) == (True, ())


def test_failures_are_read_again_after_a_fault_in_a_new_set(monkeypatch: pytest.MonkeyPatch) -> None:
    sets, freed, no_place = iter((1, 2)), list[int](), 0xFFFFFFFF
    events = [
        SimpleNamespace(eventType=kind, eventData=data, gpuInstanceId=gi, computeInstanceId=no_place)
        for kind, data, gi in ((pynvml.nvmlEventTypeDoubleBitEccError, 0, no_place), (8, 79, 2))
    ]

    def wait(of: int, _milliseconds: int) -> SimpleNamespace:
        if of == 1 or not events:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_UNKNOWN if of == 1 else pynvml.NVML_ERROR_TIMEOUT)
        return events.pop(0)

    for name, replies in {
        "DeviceGetSupportedEventTypes": lambda _device: 10,
        "EventSetCreate": lambda: next(sets),
        "DeviceRegisterEvents": lambda *_: None,
        "EventSetFree": freed.append,
        "EventSetWait_v2": wait,
    }.items():
        monkeypatch.setattr(pynvml, f"nvml{name}", replies)
    library = Nvml()
    assert [bool(library._listen("u", 0)) for _ in range(4)] == [False, True, False, False]
    assert (library.take_failures(), freed) == ([Failure("u", None), Failure("u", 79, 2)], [1])


def test_failures_that_cannot_be_read_are_reported() -> None:
    assert cards_of(FakeNvml([nvml_card(0, unheard="nvmlEventSetWait_v2: Unknown Error")])).read().problems == (
        "card0: nvmlEventSetWait_v2: Unknown Error; failures that it reports are noticed later",
    )


@pytest.mark.parametrize(("override", "source"), [(None, MemorySource.SHARED), (GIB, MemorySource.OVERRIDE)])
def test_a_card_without_memory_of_its_own_is_offered(override: int | None, source: MemorySource) -> None:
    found = cards_of(FakeNvml([nvml_card(0, total=None, reserved=0)]), rules=CardRules(memory_override=override)).read()
    gpu = only(found)
    assert (gpu.memory, gpu.memory_source, gpu.healthy, found.problems) == (override, source, True, ())


def test_a_card_whose_virtual_functions_are_given_away_is_left_out(tmp_path: Path) -> None:
    for minor, count in enumerate((16, 0)):
        device = tmp_path / f"sys/bus/pci/devices/0000:1{minor}:00.0"
        device.mkdir(parents=True)
        (device / "sriov_numvfs").write_text(f"{count}\n")
    found = cards_of(FakeNvml([nvml_card(0), nvml_card(1)]), tmp_path).read()
    assert only(found).card == Card(1)
    assert found.problems == ("card0: virtual machines may have its 16 virtual functions; it is left out",)


@pytest.mark.parametrize(
    ("total", "reserved"),
    [(0, 0), (-1, 0), (2**50 + 1, 0), (80 * GIB, 80 * GIB), (80 * GIB, -1), (2**64 - 1, 2**64 - 1)],
)
def test_memory_that_cannot_be_is_unknown(total: int, reserved: int) -> None:
    found = cards_of(FakeNvml([nvml_card(0, total=total, reserved=reserved)])).read()
    gpu = only(found)
    assert (gpu.memory, gpu.memory_source, gpu.healthy) == (None, MemorySource.UNKNOWN, True)
    assert f"NVML states {total} bytes, of which {reserved} are reserved" in gpu.memory_fault
    assert found.problems == (f"card0: {gpu.memory_fault}",)


def test_memory_that_becomes_impossible_keeps_its_last_amount() -> None:
    library = FakeNvml([nvml_card(0)])
    cards, memory = cards_of(library), CardMemory()
    memory.update(cards.read(), 0)
    library.cards = [nvml_card(0, total=0)]
    assert only(memory.update(cards.read(), 1)).memory == 79 * GIB


def test_memory_never_grows() -> None:
    library = FakeNvml([nvml_card(0)])
    cards = cards_of(library)
    assert only(cards.read()).memory == 79 * GIB
    library.cards = [nvml_card(0, total=160 * GIB)]
    found = cards.read()
    assert only(found).memory == 79 * GIB
    assert found.problems == (
        f"card0: NVML states {159 * GIB} bytes of memory, and stated {79 * GIB} before; the smaller amount counts until"
        " the plugin restarts",
    )
    library.cards = [nvml_card(0, total=40 * GIB)]
    assert only(cards.read()).memory == 39 * GIB


def test_an_amount_of_the_administrator_counts_only_if_the_card_states_none() -> None:
    library = FakeNvml([nvml_card(0), nvml_card(1, total=0)])
    found = cards_of(library, rules=CardRules(memory_override=GIB, memory_reserved=2 * GIB)).read()
    assert [gpu.memory for gpu in found.gpus] == [77 * GIB, GIB]
    assert [gpu.memory_source for gpu in found.gpus] == [MemorySource.QUERY, MemorySource.OVERRIDE]


def test_nothing_is_left_of_a_card_that_is_reserved_completely() -> None:
    found = cards_of(FakeNvml([nvml_card(0)]), rules=CardRules(memory_reserved=100 * GIB)).read()
    assert only(found).memory is None
    assert found.problems == (
        f"card0: {100 * GIB} bytes are reserved of the {79 * GIB} it has; pods cannot request its memory",
    )


def test_a_card_that_is_to_be_divided_and_has_no_instances_is_unhealthy() -> None:
    library = FakeNvml([nvml_card(0), nvml_card(1, has_mig=True)])
    found = cards_of(library).read()
    assert [(int(gpu.card), gpu.healthy) for gpu in found.gpus] == [(0, True), (1, False)]
    assert found.problems == (
        "card1: MIG is enabled, and it has no instances; create some with nvidia-smi mig -cgi, or switch MIG off with"
        f" nvidia-smi -i {uuid(1)} -mig 0; it is unhealthy",
    )


def divided(*instances: NvmlCard, **fields: Any) -> NvmlCard:
    return nvml_card(1, has_mig=True, instances=instances, **fields)


def test_the_instances_of_a_divided_card_are_cards_in_its_place() -> None:
    library = FakeNvml([nvml_card(0), divided(instance(1, 1), instance(1, 2, 1, total=20 * GIB, millicores=142))])
    found = cards_of(library).read()
    assert found.problems == ()
    shown = [(int(gpu.card), gpu.uuid, gpu.memory, gpu.millicores, gpu.pci_address) for gpu in found.gpus]
    assert shown == [
        (0, uuid(0), 79 * GIB, 1000, "0000:10:00.0"),
        (20010, instance(1, 1).uuid, 40 * GIB, 428, ""),
        (20021, instance(1, 2, 1).uuid, 20 * GIB, 142, ""),
    ]
    assert found.gpus[1].variables == (("NVIDIA_VISIBLE_DEVICES", instance(1, 1).uuid),)


def test_instances_share_the_fate_of_their_card() -> None:
    library = FakeNvml([divided(instance(1, 1), instance(1, 2))])
    cards = cards_of(library)
    assert [gpu.healthy for gpu in cards.read().gpus] == [True, True]
    library.pending = [Failure(uuid(1), 79)]
    assert [gpu.healthy for gpu in cards.read().gpus] == [False, False]
    library.faults[0] = LOST
    assert cards.read().broken == {Card(20010), Card(20020)}


@pytest.mark.parametrize("card", [nvml_card(1, recovery=0), divided(instance(1, 1, recovery=0), recovery=0)])
def test_a_failure_during_the_proof_begins_it_anew(card: NvmlCard) -> None:
    library, clock = FakeNvml([card]), [0.0]
    cards = cards_of(library, clock=lambda: clock[0])
    healthy = []
    for clock[0], fails in ((0, True), (40, True), (70, False), (101, False)):
        library.pending = [Failure(uuid(1), 79)] * fails
        healthy.append(only(cards.read()).healthy)
    assert healthy == [False, False, False, True]


@pytest.mark.parametrize(
    ("places", "healthy"),
    [((1, 0), [False, True, True]), ((2, None), [True, False, False]), ((5, 0), [False, False, False])],
    ids=["one-instance", "all-of-a-gpu-instance", "one-that-is-gone"],
)
def test_a_failure_of_an_instance_is_that_of_no_other(places: tuple[int, int | None], healthy: list[bool]) -> None:
    library = FakeNvml([divided(instance(1, 1), instance(1, 2), instance(1, 2, 1))])
    library.pending = [Failure(uuid(1), 48, *places)]
    assert [gpu.healthy for gpu in cards_of(library).read().gpus] == healthy


def test_a_card_that_was_divided_is_forgotten_after_a_while() -> None:
    memory = CardMemory()
    library = FakeNvml([nvml_card(1)])
    cards = cards_of(library)
    memory.update(cards.read(), 0)
    library.cards = [divided(instance(1, 1))]
    assert [(int(gpu.card), gpu.healthy) for gpu in memory.update(cards.read(), 1).gpus] == [(1, False), (20010, True)]
    assert [int(gpu.card) for gpu in memory.update(cards.read(), 100).gpus] == [20010]


def test_nothing_links_instances() -> None:
    peers = {"peers": ((0, 0x11, 0),)}
    library = FakeNvml(
        [nvml_card(0, **peers), divided(instance(1, 1), instance(1, 2))], near={frozenset((uuid(0), uuid(1)))}
    )
    assert [(gpu.links, gpu.board) for gpu in cards_of(library).read().gpus] == [((), None)] * 3


@pytest.mark.parametrize("of", [instance(1, 16), instance(1, 1, 8), instance(1, 1, millicores=0)])
def test_an_impossible_instance_is_a_sentence(of: NvmlCard) -> None:
    (problem,) = cards_of(FakeNvml([divided(of)])).read().problems
    gi, ci = of.place
    assert problem == (
        f"NVML's card 0: MIG instance {gi}/{ci}: expected numbers below 16 and 8, and a part of the card's compute,"
        f" found {of.millicores} millicores; it is unhealthy"
    )


def test_with_device_nodes_a_container_gets_those_of_the_instance(tmp_path: Path) -> None:
    capabilities = tmp_path / "proc/driver/nvidia/capabilities/gpu1/mig/gi1"
    (capabilities / "ci0").mkdir(parents=True)
    (tmp_path / "dev/nvidia-caps").mkdir(parents=True)
    for file, minor in (("access", 12), ("ci0/access", 13)):
        (capabilities / file).write_text(f"DeviceFileMinor: {minor}\nDeviceFileMode: 292\n")
        (tmp_path / f"dev/nvidia-caps/nvidia-cap{minor}").touch()
    (tmp_path / "dev/nvidia1").touch()
    library = FakeNvml([divided(instance(1, 1), instance(1, 2))])
    first, second = cards_of(library, tmp_path, with_nodes=True).read().gpus
    assert first.other_nodes == ("nvidia1", "nvidia-caps/nvidia-cap12", "nvidia-caps/nvidia-cap13")
    assert (first.healthy, second.healthy) == (True, False)


def test_the_processes_of_each_card_have_their_memory_and_time() -> None:
    library = FakeNvml([nvml_card(0), nvml_card(1)])
    cards = cards_of(library)
    cards.read()
    assert cards.processes() == ([], [])
    at = int(time.time() * 1e6) + 1_000_000
    library.uses[uuid(0)] = NvmlUse({7: GIB, 8: 1}, [UseSample(7, at, {"sm": 50, "enc": 0})])
    (first, second), problems = cards.processes()
    assert ((first.pid, first.card, first.memory), (second.pid, second.busy), problems) == ((7, 0, GIB), (8, {}), [])
    assert 0.4e9 < first.busy["sm"] < 0.7e9
    at_once = [UseSample(pid, at + 1_000_000, {"sm": percent}) for pid, percent in ((7, 100), (8, 30))]
    library.uses[uuid(0)] = NvmlUse({7: GIB, 8: 1}, at_once)
    ((again, other), _) = cards.processes()
    assert (1.4e9 < again.busy["sm"] < 1.7e9, other.busy["sm"]) == (True, 0.3e9)
    library.faults[uuid(1)] = LOST
    assert cards.processes()[1] == [
        "card1: the card is lost, its driver no longer reaches it; reset it, or restart the node; who uses it is not"
        " known"
    ]


def test_two_cards_with_one_uuid_are_both_unhealthy() -> None:
    library = FakeNvml([nvml_card(0), nvml_card(1, uuid=uuid(0)), nvml_card(2)])
    found = cards_of(library).read()
    assert [gpu.healthy for gpu in found.gpus] == [False, False, True]
    assert found.problems == (
        f"card0: it has the UUID {uuid(0)} of card1, so neither can be chosen; it is unhealthy",
        f"card1: it has the UUID {uuid(0)} of card0, so neither can be chosen; it is unhealthy",
    )


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"uuid": "GPU-1"}, "UUID: expected GPU- or MIG- and 32 hexadecimal digits in groups, found 'GPU-1'"),
        ({"uuid": "all"}, "UUID: expected GPU- or MIG- and 32 hexadecimal digits in groups, found 'all'"),
        ({"minor": 255}, "minor number: expected 0 to 254, found 255"),
    ],
)
def test_a_card_without_an_identity_is_left_out(fields: dict[str, Any], sentence: str) -> None:
    found = cards_of(FakeNvml([nvml_card(**({"minor": 0} | fields))])).read()
    assert found == Scan(problems=(f"NVML's card 0: {sentence}; it is unhealthy",))


def test_two_cards_with_one_minor_number_are_one() -> None:
    found = cards_of(FakeNvml([nvml_card(0), nvml_card(0, uuid=uuid(9), index=1)])).read()
    assert only(found).uuid == uuid(0)
    assert found.problems == ("card0: two cards are /dev/nvidia0; only the first one counts",)


def test_more_instances_than_a_node_can_have_are_ignored() -> None:
    parts = [tuple(instance(minor, at // 8, at % 8) for at in range(128)) for minor in range(9)]
    library = FakeNvml([nvml_card(minor, has_mig=True, instances=each) for minor, each in enumerate(parts)])
    found = NvmlCards(Path("/nowhere"), library, within=30).read()
    assert len(found.gpus) == 1024
    assert found.problems[0].startswith("NVML: expected at most 1024 cards and MIG instances, found more; the others")


def test_more_cards_than_a_node_can_have_are_ignored() -> None:
    library = FakeNvml([nvml_card(minor) for minor in range(255)] + [nvml_card(3)])
    found = NvmlCards(Path("/nowhere"), library, within=30).read()
    assert len(found.gpus) == 255
    assert found.problems == ("NVML: expected at most 255 cards, found 256; the others are ignored",)


def test_cards_are_chosen_by_their_pci_device_ids() -> None:
    library = FakeNvml([nvml_card(0), nvml_card(1, pci_ids=0x20B010DE)])
    assert only(cards_of(library, rules=CardRules(allow_ids=frozenset({"0x20b0"}))).read()).card == Card(1)
    assert only(cards_of(library, rules=CardRules(deny_ids=frozenset({"0x20b0"}))).read()).card == Card(0)


def test_links_join_cards_to_their_peers_and_all_on_a_switch() -> None:
    one, other = (0, 0x10, 0), (0, 0x11, 0)
    library = FakeNvml(
        [
            nvml_card(0, peers=(other,)),
            nvml_card(1, peers=(one, (0, 0x77, 0))),
            nvml_card(2, on_switch=True),
            nvml_card(3, on_switch=True),
            nvml_card(4),
        ]
    )
    links = [gpu.links for gpu in cards_of(library).read().gpus]
    assert links == [(Card(1),), (Card(0),), (Card(3),), (Card(2),), ()]


def test_cards_behind_the_same_switches_are_one_board() -> None:
    near = [(0, 1), (1, 2), (0, 2), (4, 5)]
    library = FakeNvml([nvml_card(n) for n in range(7)], near={frozenset(map(uuid, pair)) for pair in near})
    cards = cards_of(library)
    assert [gpu.board for gpu in cards.read().gpus] == [0, 0, 0, None, 4, 4, None]
    library.calls.clear()
    cards.read()
    assert "switches" not in library.calls


def test_a_numa_node_that_cannot_be_read_is_unread(tmp_path: Path) -> None:
    node = tmp_path / "sys/bus/pci/devices/0000:10:00.0"
    node.mkdir(parents=True)
    (node / "numa_node").write_text("many")
    found = cards_of(FakeNvml([nvml_card(0)]), tmp_path).read()
    assert (only(found).numa_node, only(found).unread) == (None, frozenset({"numa_node"}))
    assert "expected a whole number, found 'many'" in found.problems[0]


def test_by_cdi_a_card_has_the_name_of_nvidias_toolkit_and_hides_from_its_runtime() -> None:
    gpu = only(cards_of(FakeNvml([nvml_card(0)]), by_cdi=True).read())
    assert (gpu.cdi_name, gpu.variables) == (f"nvidia.com/gpu={uuid(0)}", (("NVIDIA_VISIBLE_DEVICES", "void"),))


def test_by_nodes_a_card_has_those_that_exist(tmp_path: Path) -> None:
    (tmp_path / "dev").mkdir()
    for name in ("nvidia0", "nvidiactl", "nvidia-uvm"):
        (tmp_path / "dev" / name).touch()
    library = FakeNvml([nvml_card(0), nvml_card(1)])
    found = cards_of(library, tmp_path, with_nodes=True).read()
    assert [gpu.other_nodes for gpu in found.gpus] == [
        ("nvidia0", "nvidiactl", "nvidia-uvm"),
        ("nvidiactl", "nvidia-uvm"),
    ]
    assert [gpu.healthy for gpu in found.gpus] == [True, False]
    assert found.problems == ("card1: /dev/nvidia1 is missing; it is unhealthy",)
    assert found.gpus[0].variables == (("NVIDIA_VISIBLE_DEVICES", uuid(0)),)


@pytest.mark.parametrize(
    ("argv", "made", "warnings"),
    [
        pytest.param([], [], (), id="default"),
        pytest.param(["--card-sources=nvml"], [(False, False, 0, False)], (), id="alone"),
        pytest.param(
            ["--card-sources=nvml", "--nvidia-access=nodes", "--nvidia-reserved-memory"],
            [(True, False, 0, True)],
            (),
            id="by-nodes-with-all-memory",
        ),
        pytest.param(
            ["--card-sources=sysfs, nvml", "--nvidia-access=cdi"],
            [(False, True, FIRST_BESIDE_OTHERS, False)],
            (),
            id="by-cdi-after-sysfs",
        ),
        pytest.param(
            ["--nvidia-access=cdi"],
            [],
            ("ignored: --nvidia-access; it needs nvml among --card-sources",),
            id="access-alone",
        ),
    ],
)
async def test_flags(argv: list[str], made: list[tuple[bool, bool, int, bool]], warnings: tuple[str, ...]) -> None:
    flags = parse_flags(argv, environ={}, host_name="n")
    assert flags.warnings == warnings
    sources = (each for hooks in Plugin(None, flags, Environment(), Metrics("1")).hooks for each in hooks.sources)
    assert [
        (each.with_nodes, each.by_cdi, each.first_number, each.counts_reserved)
        for each in sources
        if isinstance(each, NvmlCards)
    ] == made


def test_a_card_is_named_once_for_each_link_that_joins_it() -> None:
    joined = [nvml_card(0, peers=((0, 0x11, 0),) * 2), nvml_card(1, peers=((0, 0x10, 0),) * 2)]
    assert [gpu.links for gpu in cards_of(FakeNvml(joined)).read().gpus] == [(1, 1), (0, 0)]
