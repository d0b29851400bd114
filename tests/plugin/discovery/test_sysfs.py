"""Reading the node's cards. Contract P1.1 to P1.11."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gas.plugin.discovery.sysfs_files import MOST_ENTRIES
from gas.values.card_facts import CardFacts, MemorySource
from gas.values.card_records import MOST_RECORDS, MOST_TILES
from gas.values.cards import Card
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
from tests.broken_files import BREAKS, break_file
from tests.fake_gpus import ARC_B580, FLEX_140, card_directory, with_virtual_functions
from tests.hostile import hostile
from tests.lines import at_most
from tests.plugin.gpus import read_gpus


def only(root: Path) -> CardFacts:
    """Return the only card of a tree without problems."""
    scan = read_gpus(root)
    assert scan.problems == ()
    assert scan.broken == frozenset()
    (gpu,) = scan.gpus
    return gpu


def cards(root: Path) -> list[int]:
    return [int(gpu.card) for gpu in read_gpus(root).gpus]


def as_plain_directory(root: Path, gpu: FakeGpu) -> Path:
    """Replace the card in ``/sys/class/drm`` by a directory that has only a link to its device, and return it."""
    link = card_directory(root, gpu)
    link.unlink()
    link.mkdir()
    (link / "device").symlink_to("../../../devices/" + "/".join(gpu.pci_path))
    return link


@pytest.fixture
def one(tmp_path: Path) -> FakeGpu:
    """Return the only card of the tree at ``tmp_path``."""
    (gpu,) = fake_gpus(FLEX_170, 1)
    write_tree(tmp_path, (gpu,))
    return gpu


def test_a_card_with_everything(tmp_path: Path) -> None:
    gpu = FakeGpu(
        card=3,
        model=FLEX_170,
        pci_path=("pci0000:4a", "0000:4a:02.0", "0000:4b:00.0", "0000:4c:01.0", "0000:4d:00.0"),
        numa_node=1,
        mei=7,
        serial="88-00-1c-ff-ff-12-34-56",
    )
    write_tree(tmp_path, (gpu,))
    assert only(tmp_path) == CardFacts(
        card=Card(3),
        driver="i915",
        device_id="0x56c0",
        model="Data Center GPU Flex 170",
        pci_address="0000:4d:00.0",
        uuid="74a02e7d-5418-5234-b1c9-e2be181045bc",
        numa_node=1,
        tiles=1,
        memory=16 * 2**30,
        memory_size=16 * 2**30,
        memory_source=MemorySource.SYSFS,
        device_nodes=("card3", "renderD131"),
        by_path=("pci-0000:4d:00.0-card", "pci-0000:4d:00.0-render"),
        mei=("mei7",),
        pci_path=("pci0000:4a", "0000:4a:02.0", "0000:4b:00.0", "0000:4c:01.0", "0000:4d:00.0"),
        healthy=True,
    )


def test_cards_come_in_natural_order(tmp_path: Path) -> None:
    write_tree(tmp_path, fake_gpus(FLEX_140, 16))
    assert cards(tmp_path) == list(range(16))


# contract P1.2
def test_both_drivers_in_one_node(tmp_path: Path) -> None:
    write_tree(tmp_path, fake_gpus(FLEX_170, 2) + fake_gpus(ARC_B580, 1, first=2))
    assert [(gpu.driver, gpu.memory) for gpu in read_gpus(tmp_path).gpus] == [
        ("i915", 16 * 2**30),
        ("i915", 16 * 2**30),
        ("xe", 12165 * 2**20),
    ]


class TestWhatIsACard:
    # contract P1.1
    @pytest.mark.parametrize("name", ["card0-DP-1", "renderD128", "version", "card", "card00", "xcard1", "card1x"])
    def test_other_entries_are_skipped(self, tmp_path: Path, one: FakeGpu, name: str) -> None:
        (tmp_path / "sys/class/drm" / name).unlink(missing_ok=True)
        shutil.copytree(card_directory(tmp_path, one), tmp_path / "sys/class/drm" / name, symlinks=True)
        assert only(tmp_path).card == 0

    # contract P1.1
    def test_cards_of_other_vendors_are_skipped(self, tmp_path: Path, one: FakeGpu) -> None:
        (device_directory(tmp_path, one) / "vendor").write_text("0x1a03\n")
        scan = read_gpus(tmp_path)
        assert (scan.gpus, scan.problems) == ((), ())

    def test_a_display_without_pci_device_is_skipped(self, tmp_path: Path, one: FakeGpu) -> None:
        platform = tmp_path / "sys/devices/platform/simple-framebuffer.0/drm/card1"
        platform.mkdir(parents=True)
        (platform / "device").symlink_to("../..")
        (tmp_path / "sys/class/drm/card1").symlink_to("../../devices/platform/simple-framebuffer.0/drm/card1")
        assert only(tmp_path).card == 0

    # contract P1.1
    @pytest.mark.parametrize(
        ("how", "problem"),
        [
            pytest.param("missing", "device/drm is missing", id="missing"),
            pytest.param("empty", "cannot list device/drm: Not a directory", id="a-file"),
            pytest.param("unreadable", "cannot list device/drm: Too many levels of symbolic links", id="unreadable"),
        ],
    )
    def test_a_card_without_device_drm_is_left_out(self, tmp_path: Path, one: FakeGpu, how: str, problem: str) -> None:
        as_plain_directory(tmp_path, one)
        break_file(device_directory(tmp_path, one) / "drm", how)
        scan = read_gpus(tmp_path)
        assert scan.problems == (f"card0: {problem}; the card is left out",)
        assert scan.gpus == ()
        assert scan.broken == {Card(0)}

    def test_a_card_with_another_driver_is_left_out_and_reported(self, tmp_path: Path, one: FakeGpu) -> None:
        driver = device_directory(tmp_path, one) / "driver"
        driver.unlink()
        driver.symlink_to("../../../bus/pci/drivers/vfio-pci")
        scan = read_gpus(tmp_path)
        assert scan.problems == ("card0: expected driver i915 or xe, found 'vfio-pci'; the card is left out",)
        assert scan.gpus == ()

    def test_a_card_without_driver_is_left_out_and_reported(self, tmp_path: Path, one: FakeGpu) -> None:
        (device_directory(tmp_path, one) / "driver").unlink()
        scan = read_gpus(tmp_path)
        assert scan.problems == ("card0: device/driver is not a link: the card has no driver; the card is left out",)
        assert scan.broken == {Card(0)}


class TestAllowedAndDeniedIds:
    # contract P1.10
    @pytest.mark.parametrize(
        ("allow", "deny", "expected"),
        [
            pytest.param(set(), set(), [0, 1, 2], id="no-list"),
            pytest.param({"0x56c0"}, set(), [0], id="only-these"),
            pytest.param({"0x56c0", "0x0bd5"}, set(), [0, 2], id="several"),
            pytest.param(set(), {"0x56c0"}, [1, 2], id="not-these"),
            pytest.param({"0x56c"}, set(), [], id="whole-ids-are-compared"),
            pytest.param(set(), {""}, [0, 1, 2], id="an-empty-text-matches-nothing"),
        ],
    )
    def test_lists(self, tmp_path: Path, allow: set[str], deny: set[str], expected: list[int]) -> None:
        write_tree(tmp_path, fake_gpus(FLEX_170, 1) + fake_gpus(FLEX_140, 1, first=1) + fake_gpus(MAX_1550, 1, first=2))
        scan = read_gpus(tmp_path, allow_ids=frozenset(allow), deny_ids=frozenset(deny))
        assert [gpu.card for gpu in scan.gpus] == expected
        assert scan.problems == ()

    def test_capitals_of_the_kernel_do_not_count(self, tmp_path: Path, one: FakeGpu) -> None:
        (device_directory(tmp_path, one) / "device").write_text("0x56C0\n")
        assert read_gpus(tmp_path, allow_ids=frozenset({"0x56c0"})).gpus[0].device_id == "0x56c0"


class TestVirtualFunctions:
    def test_one_virtual_function_is_enough(self, tmp_path: Path) -> None:
        (physical,) = fake_gpus(FLEX_170, 1)
        write_tree(tmp_path, with_virtual_functions(physical, 1, first=1))
        assert cards(tmp_path) == [1]

    # contract P1.3
    def test_a_physical_function_with_virtual_ones_is_left_to_the_host(self, tmp_path: Path) -> None:
        (physical,) = fake_gpus(FLEX_170, 1)
        write_tree(tmp_path, with_virtual_functions(physical, 2, first=1))
        scan = read_gpus(tmp_path)
        assert [(gpu.card, gpu.pci_address) for gpu in scan.gpus] == [(1, "0000:90:00.1"), (2, "0000:90:00.2")]
        assert scan.problems == ()
        assert scan.gpus[0].by_path == ("pci-0000:90:00.1-card", "pci-0000:90:00.1-render")

    def test_functions_that_virtual_machines_may_have_are_reported(self, tmp_path: Path) -> None:
        physical, *virtual = with_virtual_functions(fake_gpus(FLEX_170, 1)[0], 3, first=1)
        write_tree(tmp_path, (physical, virtual[0]))
        for at, driver in enumerate(("i915", "vfio-pci", "vfio-pci")):
            function = device_directory(tmp_path, physical) / f"virtfn{at}"
            function.mkdir()
            (function / "driver").symlink_to(f"../../drivers/{driver}")
        found = read_gpus(tmp_path)
        assert [gpu.card for gpu in found.gpus] == [1]
        assert found.problems == ("card0: virtual machines may have 2 of its 3 virtual functions; it is left out",)

    def test_one_without_virtual_functions_is_a_card(self, tmp_path: Path) -> None:
        (physical,) = fake_gpus(FLEX_170, 1)
        write_tree(tmp_path, (replace(physical, virtual_functions=0),))
        assert only(tmp_path).card == 0

    def test_a_card_with_unreadable_virtual_functions_is_left_out(self, tmp_path: Path) -> None:
        (physical,) = fake_gpus(FLEX_170, 1)
        write_tree(tmp_path, (replace(physical, virtual_functions=2),))
        (device_directory(tmp_path, physical) / "sriov_numvfs").write_text("many")
        scan = read_gpus(tmp_path)
        assert scan.problems == (
            "card0: device/sriov_numvfs: expected a whole number, found 'many'; the card is left out",
        )
        assert scan.broken == {Card(0)}


class TestDeviceNodes:
    # contract P1.4
    def test_control_nodes_are_not_given_out(self, tmp_path: Path, one: FakeGpu) -> None:
        (tmp_path / "dev/dri/controlD64").touch()
        assert only(tmp_path).device_nodes == ("card0", "renderD128")

    # contract P1.4
    def test_only_what_is_under_dev_dri(self, tmp_path: Path, one: FakeGpu) -> None:
        (tmp_path / "dev/dri/renderD128").unlink()
        gpu = only(tmp_path)
        assert (gpu.device_nodes, gpu.healthy) == (("card0",), True)

    def test_a_card_without_any_is_unhealthy(self, tmp_path: Path, one: FakeGpu) -> None:
        shutil.rmtree(tmp_path / "dev/dri")
        scan = read_gpus(tmp_path)
        assert [(gpu.device_nodes, gpu.by_path, gpu.healthy) for gpu in scan.gpus] == [((), (), False)]
        assert scan.problems == (
            "card0: none of its device nodes is under /dev/dri ('card0', 'renderD128'); it is unhealthy",
        )

    def test_a_dangling_node_is_none(self, tmp_path: Path, one: FakeGpu) -> None:
        break_file(tmp_path / "dev/dri/card0", "dangling")
        assert only(tmp_path).device_nodes == ("renderD128",)

    # contract P1.6
    def test_management_engines_as_sysfs_has_them(self, tmp_path: Path, one: FakeGpu) -> None:
        engine = device_directory(tmp_path, one) / "i915.mei-gsc.768/mei"
        for name in ("mei5", "mei6", "meiX"):
            (engine / name).mkdir(parents=True)
        (device_directory(tmp_path, one) / "i915.other.1/mei/mei9").mkdir(parents=True)
        assert only(tmp_path).mei == ("mei5", "mei6", "mei0")

    def test_a_pod_sees_nothing_of_dev_but_dri(self, tmp_path: Path, one: FakeGpu) -> None:
        (tmp_path / "dev/mei0").unlink()
        gpu = only(tmp_path)
        assert (gpu.device_nodes, gpu.mei) == (("card0", "renderD128"), ("mei0",))


class TestPciAddress:
    # contract P1.5
    def test_from_the_link_to_the_card(self, tmp_path: Path, one: FakeGpu) -> None:
        break_file(device_directory(tmp_path, one) / "drm/card0/device", "missing")
        (device_directory(tmp_path, one) / "drm/card0/device").symlink_to("../..")
        assert only(tmp_path).pci_address == "0000:90:00.0"

    # contract P1.5
    def test_else_from_the_link_device(self, tmp_path: Path, one: FakeGpu) -> None:
        (as_plain_directory(tmp_path, one) / "lmem_total_bytes").write_text("5\n")
        gpu = only(tmp_path)
        assert (gpu.pci_address, gpu.pci_path, gpu.memory) == ("0000:90:00.0", one.pci_path, 5)

    def test_a_card_without_address_still_counts(self, tmp_path: Path, one: FakeGpu) -> None:
        link = as_plain_directory(tmp_path, one)
        (link / "device").unlink()
        shutil.copytree(device_directory(tmp_path, one), link / "device", symlinks=True)
        scan = read_gpus(tmp_path)
        assert [(gpu.pci_address, gpu.pci_path, gpu.by_path) for gpu in scan.gpus] == [("", (), ())]
        assert scan.problems[:1] == (
            "card0: neither the link to it nor its link device names a PCI address; it gets no links in by-path",
        )

    def test_a_wide_domain(self, tmp_path: Path) -> None:
        write_tree(tmp_path, (FakeGpu(card=0, model=FLEX_170, pci_path=("pci10000:00", "10000:01:00.0")),))
        assert only(tmp_path).pci_address == "10000:01:00.0"

    def test_a_link_in_by_path_that_leads_nowhere_is_none(self, tmp_path: Path, one: FakeGpu) -> None:
        break_file(tmp_path / "dev/dri/by-path/pci-0000:90:00.0-card", "dangling")
        assert only(tmp_path).by_path == ("pci-0000:90:00.0-render",)

    def test_only_its_own_links_in_by_path(self, tmp_path: Path) -> None:
        write_tree(tmp_path, fake_gpus(FLEX_170, 2))
        assert [gpu.by_path for gpu in read_gpus(tmp_path).gpus] == [
            ("pci-0000:90:00.0-card", "pci-0000:90:00.0-render"),
            ("pci-0000:91:00.0-card", "pci-0000:91:00.0-render"),
        ]

    # contract P1.13
    def test_the_prefix_is_not_in_the_result(self, tmp_path: Path) -> None:
        root = tmp_path / "pci-tree"
        write_tree(root, fake_gpus(FLEX_170, 1))
        assert "pci-tree" not in str(read_gpus(root))


class TestTiles:
    # contract P1.7
    @pytest.mark.parametrize("model", [MAX_1550, MAX_1550_XE], ids=["gt-of-the-card-i915", "tile-of-the-device-xe"])
    def test_tiles(self, tmp_path: Path, model: Model) -> None:
        write_tree(tmp_path, fake_gpus(model, 1))
        assert only(tmp_path).tiles == 2

    # contract P1.7
    def test_none_is_one_tile(self, tmp_path: Path, one: FakeGpu) -> None:
        shutil.rmtree(card_directory(tmp_path, one) / "gt")
        assert only(tmp_path).tiles == 1

    def test_ten_and_more(self, tmp_path: Path) -> None:
        write_tree(tmp_path, fake_gpus(replace(MAX_1550_XE, tiles=12), 1))
        assert only(tmp_path).tiles == 12

    def test_other_entries_are_no_tiles(self, tmp_path: Path, one: FakeGpu) -> None:
        (card_directory(tmp_path, one) / "gt/gtx").touch()
        (device_directory(tmp_path, one) / "tiles").touch()
        assert only(tmp_path).tiles == 1


class TestNumaNode:
    # contract P1.11
    @pytest.mark.parametrize(("text", "expected"), [("0", 0), ("1", 1), ("-1", None), ("1023", 1023)])
    def test_numa_node(self, tmp_path: Path, one: FakeGpu, text: str, expected: int | None) -> None:
        (device_directory(tmp_path, one) / "numa_node").write_text(f"{text}\n")
        assert only(tmp_path).numa_node == expected

    @pytest.mark.parametrize("text", ["1024", "99999999999999999999", "one", "0.5", "٣"])
    def test_an_invalid_one_counts_as_none_and_is_reported(self, tmp_path: Path, one: FakeGpu, text: str) -> None:
        (device_directory(tmp_path, one) / "numa_node").write_text(text)
        scan = read_gpus(tmp_path)
        assert [(gpu.numa_node, gpu.healthy) for gpu in scan.gpus] == [(None, True)]
        (problem,) = scan.problems
        assert problem.endswith("; unless it was read before, the card has no NUMA node")


class TestUuid:
    SERIAL = "88-00-1c-ff-ff-12-34-56"

    def test_it_comes_from_the_serial_number_and_moves_with_the_card(self, tmp_path: Path) -> None:
        for place, (number, address) in enumerate(((0, 1), (1, 0))):
            (gpu,) = fake_gpus(FLEX_170, 1, first=address)
            write_tree(tmp_path / str(place), (replace(gpu, card=number, serial=self.SERIAL),))
        before, after = (only(tmp_path / place) for place in "01")
        assert before.pci_address != after.pci_address
        assert before.uuid == after.uuid
        assert UUID(before.uuid).version == 5
        assert self.SERIAL.replace("-", "") not in before.uuid.replace("-", "")

    @pytest.mark.parametrize("serial", ["00-00-00-00-00-00-00-00", "ff-ff-ff-ff-ff-ff-ff-ff"])
    def test_a_serial_number_that_was_never_set_identifies_no_card(
        self, tmp_path: Path, one: FakeGpu, serial: str
    ) -> None:
        (device_directory(tmp_path, one) / "serial_number").write_text(serial)
        scan = read_gpus(tmp_path)
        assert ([gpu.uuid for gpu in scan.gpus], scan.problems) == ([""], ())

    @pytest.mark.parametrize("text", ["", "12-34", "88-00-1C-FF-FF-12-34-56", "x" * 23])
    def test_an_invalid_one_is_reported_and_costs_nothing_else(self, tmp_path: Path, one: FakeGpu, text: str) -> None:
        (device_directory(tmp_path, one) / "serial_number").write_text(text)
        scan = read_gpus(tmp_path)
        assert [(gpu.uuid, gpu.healthy, gpu.unread) for gpu in scan.gpus] == [("", True, frozenset({"uuid"}))]
        (problem,) = scan.problems
        assert problem.endswith("; unless it was read before, the card has no UUID")


DECIDING = ("device/vendor", "device/device", "device/driver")
DESCRIBING = ("device/numa_node", "lmem_total_bytes", "gt")


class TestBrokenFiles:
    """Card 1 of three is broken; the others are not affected."""

    @pytest.fixture
    def middle(self, tmp_path: Path) -> FakeGpu:
        gpus = fake_gpus(FLEX_170, 3)
        write_tree(tmp_path, gpus)
        return gpus[1]

    @pytest.mark.parametrize("how", sorted(BREAKS))
    @pytest.mark.parametrize("name", DECIDING)
    def test_a_card_that_cannot_be_identified_is_left_out(
        self, tmp_path: Path, middle: FakeGpu, name: str, how: str
    ) -> None:
        break_file(card_directory(tmp_path, middle) / name, how)
        scan = read_gpus(tmp_path)
        described = [gpu for gpu in scan.gpus if gpu.card != 1]
        assert [(gpu.card, gpu.memory, gpu.healthy) for gpu in described] == [(0, 2**34, True), (2, 2**34, True)]
        assert not any(gpu.healthy for gpu in scan.gpus if gpu.card == 1)
        if (name, how) == ("device/vendor", "missing"):
            assert scan.problems == ()  # as a display without a PCI device
        else:
            assert all(problem.startswith("card1: ") and len(problem) < 260 for problem in scan.problems)
            assert len(scan.problems) == 1

    @pytest.mark.parametrize("how", sorted(BREAKS))
    @pytest.mark.parametrize("name", DESCRIBING)
    def test_a_card_that_is_badly_described_still_counts(
        self, tmp_path: Path, middle: FakeGpu, name: str, how: str
    ) -> None:
        whole = {gpu.card: gpu for gpu in read_gpus(tmp_path).gpus}
        break_file(card_directory(tmp_path, middle) / name, how)
        scan = read_gpus(tmp_path)
        assert [gpu.card for gpu in scan.gpus] == [0, 1, 2]
        assert all(gpu.healthy and gpu.device_nodes for gpu in scan.gpus)
        assert (scan.gpus[0], scan.gpus[2]) == (whole[Card(0)], whole[Card(2)])
        assert all(problem.startswith("card1: ") and len(problem) < 260 for problem in scan.problems)
        # A directory in the place of a directory, and a card without one of these files, are nothing unusual.
        if (name, how) == ("lmem_total_bytes", "missing"):
            assert scan.gpus[1].memory_source == MemorySource.TABLE
            return
        assert len(scan.problems) == (0 if how == "missing" or (name, how) == ("gt", "directory") else 1)

    @pytest.mark.parametrize("name", ["gt", "device/drm"])
    def test_a_card_with_more_of_something_than_any_is_left_out(
        self, tmp_path: Path, middle: FakeGpu, name: str
    ) -> None:
        (directory := card_directory(tmp_path, middle) / name).mkdir(exist_ok=True)
        for number in range(MOST_TILES + 1 if name == "gt" else MOST_ENTRIES + 1):
            (directory / f"gt{number}").touch()
        scan = read_gpus(tmp_path)
        assert [gpu.card for gpu in scan.gpus] == [0, 2]
        found = "256 tiles, found 257" if name == "gt" else "4096 entries, found more"
        (problem,) = scan.problems
        assert problem.endswith(f"expected at most {found}; reload the driver; the card is left out")

    def test_more_cards_than_any_node_has_are_ignored(self, tmp_path: Path, middle: FakeGpu) -> None:
        for number in range(1000, 1000 + MOST_RECORDS):
            (tmp_path / f"sys/class/drm/card{number}").mkdir()
        scan = read_gpus(tmp_path)
        assert [gpu.card for gpu in scan.gpus] == [0, 1, 2]
        assert scan.problems[-1] == (
            "/sys/class/drm: expected at most 1024 cards, found 1027; the others are ignored; reload the driver"
        )

    @pytest.mark.parametrize("how", ["dangling", "unreadable"])
    def test_a_card_that_is_a_link_to_nowhere(self, tmp_path: Path, middle: FakeGpu, how: str) -> None:
        break_file(tmp_path / "sys/class/drm/card1", how)
        scan = read_gpus(tmp_path)
        assert [gpu.card for gpu in scan.gpus] == [0, 2]
        assert scan.broken == {Card(1)}
        assert scan.problems == ("card1: its directory is a dangling link; the card is left out",)

    def test_a_device_that_is_a_link_to_nowhere(self, tmp_path: Path, middle: FakeGpu) -> None:
        break_file(card_directory(tmp_path, middle) / "device", "dangling")
        scan = read_gpus(tmp_path)
        assert scan.broken == {Card(1)}
        assert scan.problems == ("card1: device is a dangling link; the card is left out",)

    @pytest.mark.parametrize(
        ("path", "how", "problem"),
        [
            pytest.param(
                "sys/class/drm",
                "missing",
                "/sys/class/drm is missing: the kernel has loaded no graphics driver",
                id="no-driver-loaded",
            ),
            pytest.param("sys/class/drm", "empty", "cannot list /sys/class/drm: Not a directory", id="a-file"),
            pytest.param("sys/class/drm", "dangling", "/sys/class/drm is a dangling link", id="a-dangling-link"),
        ],
    )
    def test_a_tree_without_cards(self, tmp_path: Path, middle: FakeGpu, path: str, how: str, problem: str) -> None:
        break_file(tmp_path / path, how)
        scan = read_gpus(tmp_path)
        assert (scan.gpus, scan.problems) == ((), (problem,))

    def test_an_unreadable_by_path_costs_only_the_links(self, tmp_path: Path, middle: FakeGpu) -> None:
        break_file(tmp_path / "dev/dri/by-path", "empty")
        scan = read_gpus(tmp_path)
        assert [(gpu.card, gpu.by_path, gpu.healthy) for gpu in scan.gpus] == [
            (0, (), True), (1, (), True), (2, (), True)
        ]  # fmt: skip
        assert scan.problems == ("cannot list /dev/dri/by-path: Not a directory; no card gets links there",)

    def test_names_that_a_kernel_never_creates_are_skipped(self, tmp_path: Path, middle: FakeGpu) -> None:
        nodes = tmp_path / "dev/dri"
        for name in ("caf\u00e9", "a\nb"):
            (nodes / name).touch()
            (device_directory(tmp_path, middle) / "drm" / name).mkdir()
        assert [gpu.device_nodes for gpu in read_gpus(tmp_path).gpus][1] == ("card1", "renderD129")

    # contract P1.9
    @hostile(40)
    @given(data=st.data())
    def test_no_damage_makes_a_scan_fail_or_affects_a_complete_card(
        self, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
    ) -> None:
        root = tmp_path_factory.mktemp("tree")
        gpus = [replace(gpu, serial="88-00-1c-ff-ff-12-34-56") for gpu in fake_gpus(MAX_1550_XE, 3)]
        write_tree(root, tuple(gpus))
        whole = {int(gpu.card): gpu for gpu in read_gpus(root).gpus}
        hurt = data.draw(st.sets(st.integers(0, 2)))
        for number in sorted(hurt):
            link, device = root / f"sys/class/drm/card{number}", device_directory(root, gpus[number])
            for path in data.draw(st.lists(st.sampled_from([link, *sorted(device.rglob("*"))]), max_size=3)):
                if path.parent.is_dir():
                    break_file(path, data.draw(st.sampled_from(sorted(BREAKS))))
        with at_most(20_000):
            scan = read_gpus(root)
        assert {int(gpu.card): gpu for gpu in scan.gpus if gpu.card not in hurt} == {
            number: gpu for number, gpu in whole.items() if number not in hurt
        }
        assert scan == read_gpus(root)
        assert not scan.broken & {gpu.card for gpu in scan.gpus}
        assert all(len(problem) < 500 for problem in scan.problems)
        shutil.rmtree(root)


def test_cards_behind_one_root_port_are_on_one_board(tmp_path: Path) -> None:
    write_tree(tmp_path, fake_gpus(FLEX_140, 5, per_board=2))
    assert [gpu.board for gpu in read_gpus(tmp_path).gpus] == [0, 0, 2, 2, None]


def test_device_nodes_are_looked_for_in_the_nodes_own_directory_if_it_is_mounted(tmp_path: Path) -> None:
    write_tree(tmp_path, fake_gpus(FLEX_170, 1))
    (tmp_path / "host").mkdir()
    (tmp_path / "dev").rename(tmp_path / "host/dev")
    before = read_gpus(tmp_path)
    assert (before.gpus[0].device_nodes, before.problems) == (("card0", "renderD128"), ())
    (tmp_path / "dev/dri").mkdir(parents=True)
    assert read_gpus(tmp_path) == before


def test_a_directory_of_device_nodes_that_was_removed_needs_a_new_container(tmp_path: Path) -> None:
    """A container keeps the directory that was mounted when it was made."""
    (gpu,) = fake_gpus(FLEX_170, 1)
    write_tree(tmp_path, (gpu,))
    assert not read_gpus(tmp_path).container_fault
    mounted = tmp_path / "dev/dri"
    shutil.copytree(mounted, tmp_path / "mounted")
    descriptor = os.open(tmp_path / "mounted", os.O_RDONLY)
    try:
        shutil.rmtree(mounted)
        mounted.symlink_to(f"/proc/self/fd/{descriptor}")
        assert (read_gpus(tmp_path).container_fault, read_gpus(tmp_path).faults) == ("", {})
        shutil.rmtree(tmp_path / "mounted")
        found = read_gpus(tmp_path)
    finally:
        os.close(descriptor)
    assert found.container_fault.startswith("/dev/dri is a directory that was removed")
    assert found.faults == {Card(0): "none of its device nodes is under /dev/dri; reload its driver"}
