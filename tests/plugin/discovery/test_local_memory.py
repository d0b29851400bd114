"""How much memory of its own a card has, on each kind of kernel and driver. Contract P1.8."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from gas.plugin.discovery.card_models import is_integrated, model_of
from gas.plugin.discovery.local_memory import MEMORY_OF_MODELS
from gas.plugin.discovery.render_node import CannotAsk
from gas.plugin.discovery.sysfs import SysfsCards
from gas.plugin.discovery.sysfs_files import UnreadableFile
from gas.values.card_facts import MemorySource, Scan
from sandbox.hardware.fake_sysfs import (
    FLEX_170,
    MAX_1550,
    MAX_1550_XE,
    FakeGpu,
    Model,
    device_directory,
    fake_gpus,
    write_tree,
)
from tests.broken_files import break_file
from tests.fake_gpus import ARC_A770, ARC_B580, FLEX_140, card_directory, with_virtual_functions
from tests.plugin.gpus import read_gpus
from tests.stock_kernels import STOCK_KERNELS, StockKernel

GIB = 2**30
STOCK_A770 = replace(ARC_A770, memory=None)
STOCK_FLEX = replace(FLEX_170, memory=None)
STOCK_MAX = replace(MAX_1550_XE, memory=None)
UHD_770 = replace(STOCK_A770, device_id="0x4680")
OF_NO_KNOWN_MODEL = replace(STOCK_A770, device_id="0xffff")

NOT_OPENED = "cannot open /dev/dri/renderD128: Operation not permitted"
UNKNOWN = (
    f"its memory is unknown: sysfs does not state it, and {NOT_OPENED}; pods that request memory do not get this card; "
    "let the plugin open its render node, or set GPU_MEMORY_OVERRIDE"
)


class Drivers:
    """A test double of render nodes: what drivers reply, and how often they were asked."""

    def __init__(self, *replies: tuple[int, ...] | Exception) -> None:
        self.asked: list[tuple[str, str]] = []
        self._replies = list(replies)

    def __call__(self, node: Path, driver: str) -> tuple[int, ...]:
        self.asked.append((node.name, driver))
        reply = self._replies.pop(0) if len(self._replies) > 1 else self._replies[0]
        if isinstance(reply, Exception):
            raise reply
        return reply


class HangingDrivers:
    """A test double of render nodes, of which the driver of one does not reply before `reply_now`.

    asked  how often that one was asked
    """

    def __init__(self, hanging: str, reply: tuple[int, ...] | Exception) -> None:
        self.asked = 0
        self.reply = reply
        self._hanging = hanging
        self._may_reply = threading.Event()
        self._has_replied = threading.Event()

    def __call__(self, node: Path, driver: str) -> tuple[int, ...]:
        reply = self.reply
        if node.name == self._hanging:
            self.asked += 1
            assert self._may_reply.wait(10)
            self._has_replied.set()
        if isinstance(reply, Exception):
            raise reply
        return reply

    def reply_now(self) -> None:
        """Let the driver reply, and wait until its thread has the reply."""
        self._may_reply.set()
        assert self._has_replied.wait(10)
        for thread in threading.enumerate():
            if thread.name == "driver":
                thread.join(10)


CLOSED = Drivers(CannotAsk(NOT_OPENED))
"""The render nodes that a container without access to devices sees."""


@pytest.fixture
def tree(tmp_path: Path) -> Callable[[Model], FakeGpu]:
    """Write a tree with one card of a model."""

    def write(model: Model) -> FakeGpu:
        (gpu,) = fake_gpus(model, 1)
        write_tree(tmp_path, (gpu,))
        return gpu

    return write


@pytest.fixture
def one(tree: Callable[[Model], FakeGpu]) -> FakeGpu:
    """Return the only card of the tree, of which sysfs states the memory."""
    return tree(FLEX_170)


def known(scan: Scan) -> tuple[int | None, MemorySource]:
    (gpu,) = scan.gpus
    return gpu.memory, gpu.memory_source


def integrated(model: Model) -> FakeGpu:
    """Return a card at the PCI address of integrated GPUs."""
    return FakeGpu(card=0, model=model, pci_path=("pci0000:00", "0000:00:02.0"))


class TestFilesOfOutOfTreeDrivers:
    # contract P1.8
    @pytest.mark.parametrize(
        ("per_tile", "override", "reserved", "expected"),
        [
            pytest.param("1000", None, 0, 2000, id="lmem-total-bytes-is-per-tile"),
            pytest.param("1000", None, 300, 1700, id="reserved-once-per-card"),
            pytest.param("1000", 5, 0, 2000, id="no-override-of-what-can-be-read"),
            pytest.param(None, 5000, 0, 5000, id="override"),
            pytest.param(None, 5000, 300, 5000, id="nothing-is-reserved-of-the-override"),
            pytest.param(None, None, 300, None, id="unknown"),
            pytest.param("1000", None, 2000, None, id="all-of-it-reserved"),
            pytest.param("0", None, 0, None, id="none"),
        ],
    )
    def test_memory(
        self, tmp_path: Path, per_tile: str | None, override: int | None, reserved: int, expected: int | None
    ) -> None:
        (gpu,) = fake_gpus(replace(MAX_1550, device_id="0x0bd7", memory=None), 1)
        write_tree(tmp_path, (gpu,))
        if per_tile is not None:
            (card_directory(tmp_path, gpu) / "lmem_total_bytes").write_text(f"{per_tile}\n")
        scan = read_gpus(tmp_path, memory_override=override, memory_reserved=reserved)
        assert [gpu.memory for gpu in scan.gpus] == [expected]
        assert [gpu.memory_size for gpu in scan.gpus] == [2 * int(per_tile or 0) or None]
        assert all("memory is unknown" in problem for problem in scan.problems)

    # contract P1.8
    def test_more_reserved_than_there_is(self, tmp_path: Path, one: FakeGpu) -> None:
        (card_directory(tmp_path, one) / "lmem_total_bytes").write_text("1000\n")
        scan = read_gpus(tmp_path, memory_override=7, memory_reserved=1001)
        assert [gpu.memory for gpu in scan.gpus] == [None]
        assert scan.problems == ("card0: 1001 bytes are reserved of the 1000 it has; pods cannot request its memory",)

    @pytest.mark.parametrize("text", ["-1", "1125899906842625", "0x10", "5Gi", "1 2"])
    def test_invalid_memory_counts_as_unreadable(self, tmp_path: Path, one: FakeGpu, text: str) -> None:
        (card_directory(tmp_path, one) / "lmem_total_bytes").write_text(text)
        assert read_gpus(tmp_path).gpus[0].memory is None
        scan = read_gpus(tmp_path, memory_override=7)
        assert scan.gpus[0].memory == 7
        (problem,) = scan.problems
        assert problem.startswith("card0: lmem_total_bytes: expected ")
        assert problem.endswith("; unless it was read before, the memory counts as 7 bytes")

    def test_0_bytes_leave_the_amount_to_the_driver(self, tmp_path: Path, tree: Callable[[Model], FakeGpu]) -> None:
        gpu = tree(STOCK_A770)
        (card_directory(tmp_path, gpu) / "lmem_total_bytes").write_text("0\n")
        assert known(read_gpus(tmp_path, query=Drivers((16 * GIB,)))) == (16 * GIB, MemorySource.QUERY)

    def test_0_bytes_are_unknown_if_the_driver_cannot_be_asked(
        self, tmp_path: Path, tree: Callable[[Model], FakeGpu]
    ) -> None:
        gpu = tree(OF_NO_KNOWN_MODEL)
        (card_directory(tmp_path, gpu) / "lmem_total_bytes").write_text("0\n")
        scan = read_gpus(tmp_path, query=CLOSED)
        assert known(scan) == (None, MemorySource.UNKNOWN)
        assert scan.gpus[0].memory_fault.startswith(
            f"its memory is unknown: sysfs states 0 bytes, and {NOT_OPENED}; pods that request memory"
        )

    def test_xe_states_the_bytes_of_each_tile(self, tmp_path: Path, tree: Callable[[Model], FakeGpu]) -> None:
        gpu = tree(MAX_1550_XE)
        (device_directory(tmp_path, gpu) / "tile1/physical_vram_size_bytes").write_text("1000\n")
        assert known(read_gpus(tmp_path)) == (64 * GIB + 1000, MemorySource.SYSFS)

    def test_a_tile_without_its_file_leaves_the_amount_to_the_driver(
        self, tmp_path: Path, tree: Callable[[Model], FakeGpu]
    ) -> None:
        gpu = tree(MAX_1550_XE)
        (device_directory(tmp_path, gpu) / "tile1/physical_vram_size_bytes").unlink()
        scan = read_gpus(tmp_path, query=Drivers((60 * GIB, 60 * GIB)))
        assert known(scan) == (120 * GIB, MemorySource.QUERY)
        assert scan.problems == (
            "card0: only 1 of 2 tiles have physical_vram_size_bytes; its memory is known from another source: query",
        )

    def test_the_driver_is_not_asked_if_sysfs_says_it(self, tmp_path: Path, tree: Callable[[Model], FakeGpu]) -> None:
        tree(FLEX_170)
        drivers = Drivers((1,))
        assert known(read_gpus(tmp_path, query=drivers)) == (16 * GIB, MemorySource.SYSFS)
        assert drivers.asked == []


class TestStockKernels:
    """Neither stock driver states the memory in sysfs, so the driver is asked."""

    @pytest.mark.parametrize("kernel", [pytest.param(each, id=each.name) for each in STOCK_KERNELS])
    def test_the_driver_is_asked(self, tmp_path: Path, tree: Callable[[Model], FakeGpu], kernel: StockKernel) -> None:
        gpu = tree(kernel.model)
        kernel.write(tmp_path, gpu)
        drivers = Drivers(kernel.regions)
        scan = read_gpus(tmp_path, query=drivers)
        assert known(scan) == (sum(kernel.regions), MemorySource.QUERY)
        assert (scan.problems, scan.gpus[0].tiles) == ((), kernel.model.tiles)
        assert drivers.asked == [("renderD128", kernel.model.driver)]

    def test_reserved_memory_is_subtracted_once(self, tmp_path: Path, tree: Callable[[Model], FakeGpu]) -> None:
        tree(STOCK_MAX)
        scan = read_gpus(tmp_path, query=Drivers((1000, 1000)), memory_reserved=300)
        assert known(scan) == (1700, MemorySource.QUERY)

    def test_a_card_is_asked_once(self, tmp_path: Path, tree: Callable[[Model], FakeGpu]) -> None:
        tree(STOCK_FLEX)
        drivers = Drivers((16 * GIB,))
        cards = SysfsCards(tmp_path, query=drivers)
        assert [known(cards.read()) for _ in range(3)] == [(16 * GIB, MemorySource.QUERY)] * 3
        assert len(drivers.asked) == 1

    def test_a_driver_that_fails_is_asked_again(self, tmp_path: Path, tree: Callable[[Model], FakeGpu]) -> None:
        tree(STOCK_FLEX)
        failure = UnreadableFile("cannot ask /dev/dri/renderD128 for its memory regions: Input/output error")
        cards = SysfsCards(tmp_path, query=Drivers(failure, (16 * GIB,)))
        first = cards.read()
        assert known(first) == (None, MemorySource.UNKNOWN)
        assert first.gpus[0].unread == {"memory", "memory_size", "memory_source", "memory_fault"}
        assert first.problems == (f"card0: {failure}; unless it was read before, the memory is unknown",)
        assert known(cards.read()) == (16 * GIB, MemorySource.QUERY)

    def test_another_card_in_the_same_place_is_asked_anew(
        self, tmp_path: Path, tree: Callable[[Model], FakeGpu]
    ) -> None:
        gpu = tree(STOCK_FLEX)
        cards = SysfsCards(tmp_path, query=Drivers((16 * GIB,), (6 * GIB,)))
        cards.read()
        link = card_directory(tmp_path, gpu)
        target = link.readlink()
        link.unlink()
        assert cards.read().gpus == ()
        link.symlink_to(target)
        assert known(cards.read()) == (6 * GIB, MemorySource.QUERY)

    def test_a_driver_that_does_not_reply_hides_no_other_card(self, tmp_path: Path) -> None:
        write_tree(tmp_path, fake_gpus(STOCK_FLEX, 3))
        drivers = HangingDrivers("renderD129", reply=(16 * GIB,))
        cards = SysfsCards(tmp_path, query=drivers, within=0.05)
        first = cards.read()
        assert [gpu.memory for gpu in first.gpus] == [16 * GIB, None, 16 * GIB]
        silent = "the driver has not replied on /dev/dri/renderD129 within 0.05 s"
        assert first.problems == (f"card1: {silent}; unless it was read before, the memory is unknown",)
        assert first.gpus[1].memory_fault.startswith(f"its memory is unknown: {silent}; pods that request memory")
        assert cards.read() == first
        assert drivers.asked == 1, "it is neither asked nor waited for again"

        drivers.reply_now()
        second = cards.read()
        assert [gpu.memory for gpu in second.gpus] == [16 * GIB] * 3
        assert (second.problems, drivers.asked) == ((), 1)

    def test_the_late_reply_of_another_card_does_not_count(
        self, tmp_path: Path, tree: Callable[[Model], FakeGpu]
    ) -> None:
        """The first scan asks for a card that is replaced before its driver replies."""
        gpu = tree(STOCK_FLEX)
        drivers = HangingDrivers("renderD128", reply=(16 * GIB,))
        cards = SysfsCards(tmp_path, query=drivers, within=0.05)
        cards.read()
        (device_directory(tmp_path, gpu) / "device").write_text(ARC_A770.device_id)
        assert known(cards.read()) == (None, MemorySource.UNKNOWN)
        drivers.reply_now()
        drivers.reply = (8 * GIB,)
        assert known(cards.read()) == (8 * GIB, MemorySource.QUERY)
        assert drivers.asked == 2

    def test_a_late_failure_is_reported_and_the_driver_asked_again(
        self, tmp_path: Path, tree: Callable[[Model], FakeGpu]
    ) -> None:
        tree(OF_NO_KNOWN_MODEL)
        drivers = HangingDrivers("renderD128", reply=CannotAsk(NOT_OPENED))
        cards = SysfsCards(tmp_path, query=drivers, within=0.05)
        cards.read()
        drivers.reply_now()
        assert cards.read().problems == (f"card0: {UNKNOWN}",)
        drivers.reply = (12 * GIB,)
        assert known(cards.read()) == (12 * GIB, MemorySource.QUERY)

    def test_one_card_does_not_cost_another_its_memory(self, tmp_path: Path) -> None:
        write_tree(tmp_path, fake_gpus(STOCK_FLEX, 3))
        drivers = Drivers((GIB,), UnreadableFile("the reply has only 3 bytes"), (GIB,))
        assert [gpu.memory for gpu in read_gpus(tmp_path, query=drivers).gpus] == [GIB, None, GIB]


class TestWithoutADriverThatCanBeAsked:
    def test_an_unknown_amount_says_why_and_what_to_do(self, tmp_path: Path, tree: Callable[[Model], FakeGpu]) -> None:
        tree(OF_NO_KNOWN_MODEL)
        scan = read_gpus(tmp_path, query=CLOSED)
        assert known(scan) == (None, MemorySource.UNKNOWN)
        assert scan.gpus[0].memory_fault == UNKNOWN
        assert scan.problems == (f"card0: {UNKNOWN}",)
        assert scan.gpus[0].unread == frozenset()

    def test_a_card_without_a_render_node(self, tmp_path: Path, tree: Callable[[Model], FakeGpu]) -> None:
        tree(OF_NO_KNOWN_MODEL)
        (tmp_path / "dev/dri/renderD128").unlink()
        (problem,) = read_gpus(tmp_path, query=CLOSED).problems
        assert "sysfs does not state it, and it has no render node under /dev/dri; pods" in problem

    def test_the_override_is_not_a_problem(self, tmp_path: Path, tree: Callable[[Model], FakeGpu]) -> None:
        tree(ARC_B580)
        scan = read_gpus(tmp_path, query=CLOSED, memory_override=12 * GIB, memory_reserved=GIB)
        assert known(scan) == (12 * GIB, MemorySource.OVERRIDE)
        assert (scan.problems, scan.gpus[0].memory_fault) == ((), "")


class TestModels:
    """The memory that all cards of a model have, the last source."""

    # contract P1.8
    @pytest.mark.parametrize(
        ("model", "mib"),
        [
            (ARC_B580, 12165),
            (STOCK_FLEX, 14090),
            (FLEX_140, 5283),
            (STOCK_A770, 8110),
            (MAX_1550, 129761),
            (replace(ARC_A770, device_id="0x0bda"), 48660),
        ],
    )
    def test_a_model_with_one_size_of_memory_has_that(
        self, tmp_path: Path, tree: Callable[[Model], FakeGpu], model: Model, mib: int
    ) -> None:
        tree(replace(model, memory=None))
        scan = read_gpus(tmp_path, query=CLOSED, memory_reserved=1)
        assert known(scan) == (mib * 2**20 - 1, MemorySource.TABLE)
        assert (scan.problems, scan.gpus[0].memory_fault) == ((), "")

    def test_every_model_of_the_table_has_its_own_memory_and_a_name(self) -> None:
        assert all(model_of(each) and not is_integrated(each) for each in MEMORY_OF_MODELS)

    def test_a_virtual_function_has_a_part_of_it(self, tmp_path: Path) -> None:
        (physical,) = fake_gpus(ARC_B580, 1)
        gpus = with_virtual_functions(physical, 1, first=1)
        write_tree(tmp_path, gpus)
        (device_directory(tmp_path, gpus[1]) / "physfn").symlink_to(device_directory(tmp_path, physical))
        assert known(read_gpus(tmp_path, query=CLOSED)) == (None, MemorySource.UNKNOWN)


WINDOWS = (
    "0x0000004000000000 0x0000004000ffffff 0x0000000000140204\n"
    "0x0000000000000000 0x0000000000000000 0x0000000000000000\n"
    "0x0000006000000000 0x{last:016x} 0x000000000014220c\n"
)
UP_TO_16_GIB = "0000000000007f00\n"
"""256 MiB to 16 GiB."""


class TestWindow:
    """The PCI window through which the processor sees the card's memory."""

    def read(self, tmp_path: Path, gpu: FakeGpu, window: int, sizes: str | None) -> tuple[int | None, MemorySource]:
        device = device_directory(tmp_path, gpu)
        (device / "resource").write_text(WINDOWS.format(last=0x6000000000 + window - 1))
        if sizes is not None:
            (device / "resource2_resize").write_text(sizes)
        return known(read_gpus(tmp_path, query=CLOSED))

    def test_the_largest_one_shows_all_memory(self, tmp_path: Path, tree: Callable[[Model], FakeGpu]) -> None:
        found = self.read(tmp_path, tree(STOCK_A770), 16 * GIB, UP_TO_16_GIB)
        assert found == (16 * GIB * 99 // 100, MemorySource.BAR)

    @pytest.mark.parametrize(
        ("model", "window", "sizes"),
        [
            pytest.param(STOCK_A770, GIB // 4, UP_TO_16_GIB, id="a-small-window"),
            pytest.param(STOCK_A770, 8 * GIB, UP_TO_16_GIB, id="half-of-it"),
            pytest.param(STOCK_A770, 16 * GIB, None, id="a-kernel-that-does-not-list-sizes"),
            pytest.param(STOCK_MAX, 16 * GIB, UP_TO_16_GIB, id="another-model"),
        ],
    )
    def test_any_other_says_nothing(
        self, tmp_path: Path, tree: Callable[[Model], FakeGpu], model: Model, window: int, sizes: str | None
    ) -> None:
        assert self.read(tmp_path, tree(model), window, sizes)[1] is MemorySource.TABLE

    def test_a_virtual_function_says_nothing(self, tmp_path: Path) -> None:
        (physical,) = fake_gpus(STOCK_A770, 1)
        gpus = with_virtual_functions(physical, 1, first=1)
        write_tree(tmp_path, gpus)
        (device_directory(tmp_path, gpus[1]) / "physfn").symlink_to(device_directory(tmp_path, physical))
        assert self.read(tmp_path, gpus[1], 16 * GIB, UP_TO_16_GIB) == (None, MemorySource.UNKNOWN)

    @pytest.mark.parametrize(
        ("name", "text"),
        [("resource", "0x1 0x2\n"), ("resource", "x\ny\n0x1 0x2 z\n"), ("resource2_resize", "all\n")],
    )
    def test_an_invalid_file_is_reported(
        self, tmp_path: Path, tree: Callable[[Model], FakeGpu], name: str, text: str
    ) -> None:
        gpu = tree(STOCK_A770)
        self.read(tmp_path, gpu, 16 * GIB, UP_TO_16_GIB)
        (device_directory(tmp_path, gpu) / name).write_text(text)
        scan = read_gpus(tmp_path, query=CLOSED)
        assert known(scan) == (None, MemorySource.UNKNOWN)
        assert scan.problems[0].startswith("card0: device/resource: expected a PCI window, found ")

    def test_an_unreadable_file_is_reported(self, tmp_path: Path, tree: Callable[[Model], FakeGpu]) -> None:
        gpu = tree(STOCK_A770)
        self.read(tmp_path, gpu, 16 * GIB, UP_TO_16_GIB)
        break_file(device_directory(tmp_path, gpu) / "resource2_resize", "directory")
        (problem,) = read_gpus(tmp_path, query=CLOSED).problems
        assert problem.startswith("card0: cannot read device/resource2_resize: Is a directory")


class TestIntegratedGpus:
    """An integrated GPU uses the node's memory, which kubelet gives to pods as ``memory``."""

    @pytest.mark.parametrize(
        ("model", "drivers"),
        [
            pytest.param(UHD_770, Drivers(()), id="the-driver-lists-no-memory-of-its-own"),
            pytest.param(UHD_770, CLOSED, id="known-by-its-model"),
            pytest.param(OF_NO_KNOWN_MODEL, Drivers(()), id="of-a-model-that-only-the-driver-knows"),
        ],
    )
    def test_no_memory_is_published_without_a_problem(self, tmp_path: Path, model: Model, drivers: Drivers) -> None:
        write_tree(tmp_path, (integrated(model),))
        scan = read_gpus(tmp_path, query=drivers)
        assert known(scan) == (None, MemorySource.SHARED)
        assert (scan.problems, scan.gpus[0].memory_fault) == ((), "")

    def test_the_address_alone_makes_no_gpu_integrated(self, tmp_path: Path) -> None:
        write_tree(tmp_path, (integrated(OF_NO_KNOWN_MODEL),))
        scan = read_gpus(tmp_path, query=CLOSED)
        assert known(scan) == (None, MemorySource.UNKNOWN)
        assert scan.problems == (f"card0: {UNKNOWN}",)

    def test_a_card_of_its_own_may_have_that_address_in_a_virtual_machine(self, tmp_path: Path) -> None:
        write_tree(tmp_path, (integrated(STOCK_A770),))
        assert known(read_gpus(tmp_path, query=Drivers((16 * GIB,)))) == (16 * GIB, MemorySource.QUERY)

    def test_the_override_counts(self, tmp_path: Path) -> None:
        write_tree(tmp_path, (integrated(UHD_770),))
        scan = read_gpus(tmp_path, query=Drivers(()), memory_override=4 * GIB)
        assert known(scan) == (4 * GIB, MemorySource.OVERRIDE)
