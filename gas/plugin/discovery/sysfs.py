"""Read the GPUs of this node from sysfs and ``/dev/dri``. Source: contract P1.1 to P1.9.

A card that cannot be read does not affect other cards. If its identity cannot be read (vendor, model, driver, virtual
functions), the card is left out. If only its description cannot be read (NUMA node, tiles, memory, links), those fields
are left out and named in `CardFacts.unread`.
"""

import os
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import dropwhile
from pathlib import Path, PurePosixPath
from uuid import UUID, uuid5

from gas.plugin.discovery.card_models import model_of, parse_pci_id
from gas.plugin.discovery.card_source import ALL_CARDS, MEMORY_FIELDS, CardRules
from gas.plugin.discovery.local_memory import REPLY_WITHIN, MemoryReader
from gas.plugin.discovery.render_node import Query, memory_regions
from gas.plugin.discovery.sysfs_files import (
    UnreadableFile,
    device_nodes_of,
    entries,
    is_there,
    link_target,
    read_numa_node,
    read_number,
    read_text,
)
from gas.values.card_facts import CardFacts, Scan
from gas.values.card_records import MOST_RECORDS, MOST_TILES
from gas.values.cards import Card, MalformedCard
from gas.values.quoted import listed, quoted

SOURCE = "sysfs"  # the value of --card-sources that selects these cards

_INTEL = "0x8086"
_DRIVERS = ("i915", "xe")
_PCI_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]", re.ASCII)
_SERIAL = re.compile(r"[0-9a-f]{2}(?:-[0-9a-f]{2}){7}", re.ASCII)
_SERIAL_NUMBERS = UUID("3f5c1e0a-6f0b-5d6e-9a3e-0d6a5b8b7c11")  # namespace of UUIDs that are made from serial numbers
_CONTROL_NODE = re.compile(r"controlD[0-9]+", re.ASCII)
_TILE_OF_CARD = re.compile(r"gt[0-9]+", re.ASCII)
_TILE_OF_DEVICE = re.compile(r"tile[0-9]+", re.ASCII)
_MEI_NODE = re.compile(r"mei[0-9]+", re.ASCII)
_REMOVED = (
    "/dev/dri is a directory that was removed, as when a driver is reloaded: a new container gets the present one"
)
FAKE_TREE_MARKER = "gas-fake-gpus"  # name of the file that marks the root of a generated tree


def fake_tree_warning(root: Path) -> str | None:
    """Return a warning if ``root`` is a generated tree, whose devices are not GPUs; else None."""
    if not is_there(f"{root}/{FAKE_TREE_MARKER}"):
        return None
    return f"THE GPUS OF THIS NODE ARE FAKE: {root} is a generated tree, for demonstrations and tests only"


class SysfsCards:
    """Intel's GPUs of this node, which the kernel shows in sysfs: a `CardSource`."""

    drivers = _DRIVERS

    def __init__(
        self,
        root: Path,  # the directory of ``/sys`` and ``/dev``; it does not appear in the result
        rules: CardRules = ALL_CARDS,
        # asks a driver for a card's memory; may block as long as the card does not respond
        query: Query = memory_regions,
        *,
        within: float = REPLY_WITHIN,  # seconds to wait for a driver
    ) -> None:
        self._root = str(root.resolve()).rstrip("/")
        self._dri = f"{device_nodes_of(self._root)}/dri"
        self._rules = rules
        self._memory = MemoryReader(root, rules, query, within=within)

    def read(self) -> Scan:
        """Scan the whole node once. Never raises, whatever the tree contains."""
        try:
            names = entries(f"{self._root}/sys/class/drm", "/sys/class/drm")
        except UnreadableFile as error:
            return Scan(problems=(str(error),), blind=dict.fromkeys(_DRIVERS, str(error)))
        if names is None:
            return Scan(problems=("/sys/class/drm is missing: the kernel has loaded no graphics driver",))
        problems: list[str] = []
        by_path: tuple[str, ...] = ()
        try:
            by_path = entries(f"{self._dri}/by-path", "/dev/dri/by-path") or ()
        except UnreadableFile as error:
            problems.append(f"{error}; no card gets links there")
        gpus: list[CardFacts] = []
        faults: dict[Card, str] = {}
        cards = sorted(_cards(names))
        if len(cards) > MOST_RECORDS:
            expected = f"/sys/class/drm: expected at most {MOST_RECORDS} cards, found {len(cards)}"
            problems.append(f"{expected}; the others are ignored; reload the driver")
        for card in cards[:MOST_RECORDS]:
            reader = _CardReader(self._root, self._dri, card, self._memory, problems)
            try:
                gpu = reader.read(self._rules, by_path)
            except UnreadableFile as error:
                reader.report(f"{error}; the card is left out")
                faults[card] = f"{error}; it is unhealthy until it can be read"
                continue
            if gpu is not None:
                gpus.append(gpu)
                if not gpu.healthy:
                    faults[card] = "none of its device nodes is under /dev/dri; reload its driver"
        self._memory.forget_others([gpu.card for gpu in gpus])
        return Scan(
            gpus=_with_boards(gpus),
            problems=tuple(problems),
            faults=faults,
            container_fault=_REMOVED if gpus and _was_removed(self._dri) else "",
        )


def _was_removed(directory: str) -> bool:
    """Return whether a directory was removed from the node after it was mounted in this container."""
    try:
        return Path(directory).stat().st_nlink == 0
    except OSError:
        return False


def _with_boards(gpus: Sequence[CardFacts]) -> tuple[CardFacts, ...]:
    """Return the cards, with the lowest number of those behind the same root port, and so behind PCIe switches."""
    behind: dict[tuple[str, ...], list[Card]] = {}
    for gpu in gpus:
        if len(gpu.pci_path) > 2:
            behind.setdefault(gpu.pci_path[:2], []).append(gpu.card)
    boards = {card: int(cards[0]) for cards in behind.values() if len(cards) > 1 for card in cards}
    return tuple(replace(gpu, board=boards.get(gpu.card)) for gpu in gpus)


def _cards(names: Iterable[str]) -> Iterable[Card]:
    """Yield the cards among the names; others belong to connectors, render nodes and files."""
    for name in names:
        with suppress(MalformedCard):
            yield Card.parse(name)


class _CardReader:
    """Read one card, and report optional fields that cannot be read in ``problems``."""

    def __init__(self, root: str, dri: str, card: Card, memory: MemoryReader, problems: list[str]) -> None:
        self._root = root
        self._dri = dri
        self._card = card
        self._memory = memory
        self._directory = f"{root}/sys/class/drm/{card}"
        self._device = f"{self._directory}/device"
        self._problems = problems
        self._unread: set[str] = set()

    def report(self, sentence: str, *unread: str) -> None:
        """Report a problem and the fields of `CardFacts` that it leaves unknown."""
        self._problems.append(f"{self._card}: {sentence}")
        self._unread.update(unread)

    def read(self, rules: CardRules, by_path: tuple[str, ...]) -> CardFacts | None:
        """Return the card; None if the plugin does not handle it. Raises UnreadableFile if it cannot tell."""
        if not self._is_of_intel():
            return None
        if (device_id := self._pci_id("device", "0x56c0")) is None:
            raise UnreadableFile("device/device is missing")
        if not rules.admit(device_id) or (driver := self._driver()) is None:
            return None
        if (read_number(f"{self._device}/sriov_numvfs", "device/sriov_numvfs") or 0) > 0:
            self._report_given_functions()
            return None  # a physical function, whose virtual functions are the cards
        device_nodes = self._device_nodes()
        in_device = self._names(self._device, "device", "tiles", *MEMORY_FIELDS, "mei")
        tiles = self._tiles(in_device)
        address = self._pci_address()
        facts = CardFacts(
            card=self._card,
            driver=driver,
            device_id=device_id,
            model=model_of(device_id),
            pci_address=address,
            uuid=self._uuid(),
            numa_node=self._numa_node(),
            tiles=tiles,
            device_nodes=device_nodes,
            by_path=self._by_path(address, by_path),
            mei=self._mei(in_device),
            pci_path=self._pci_path(),
            healthy=bool(device_nodes),
            unread=frozenset(self._unread),
        )
        tile_names = [name for name in in_device if _TILE_OF_DEVICE.fullmatch(name) is not None]
        return self._memory.read(facts, tile_names, self.report)

    def _report_given_functions(self) -> None:
        """Report the virtual functions that other drivers have, such as ``vfio-pci`` for virtual machines."""
        functions = [name for name in self._names(self._device, "device") if name.startswith("virtfn")]
        targets = [link_target(f"{self._device}/{name}/driver") for name in functions]
        if given := sum(target is not None and PurePosixPath(target).name not in _DRIVERS for target in targets):
            self.report(f"virtual machines may have {given} of its {len(functions)} virtual functions; it is left out")

    def _is_of_intel(self) -> bool:
        if not is_there(self._directory):
            raise UnreadableFile("its directory is a dangling link")
        vendor = self._pci_id("vendor", _INTEL)
        if vendor is None and Path(self._device).is_symlink() and not is_there(self._device):
            raise UnreadableFile("device is a dangling link")
        return vendor == _INTEL  # None: not a PCI device, but a virtual display or the firmware's frame buffer

    def _pci_id(self, name: str, example: str) -> str | None:
        if (text := read_text(f"{self._device}/{name}", f"device/{name}")) is None:
            return None
        if (pci_id := parse_pci_id(text)) is None:
            raise UnreadableFile(f"device/{name}: expected a PCI id such as {example}, found {quoted(text)}")
        return pci_id

    def _driver(self) -> str | None:
        """Return the card's driver; None if it is not one of Intel's."""
        if (target := link_target(f"{self._device}/driver")) is None:
            raise UnreadableFile("device/driver is not a link: the card has no driver")
        if (driver := PurePosixPath(target).name) in _DRIVERS:
            return driver
        self.report(f"expected driver {' or '.join(_DRIVERS)}, found {quoted(driver)}; the card is left out")
        return None

    def _device_nodes(self) -> tuple[str, ...]:
        names = entries(f"{self._device}/drm", "device/drm")
        if names is None:
            raise UnreadableFile("device/drm is missing")
        wanted = [name for name in names if _CONTROL_NODE.fullmatch(name) is None]
        found = tuple(name for name in wanted if is_there(f"{self._dri}/{name}"))
        if not found:
            self.report(
                f"none of its device nodes is under /dev/dri ({listed(wanted) or 'it has none'}); it is unhealthy"
            )
        return found

    def _tiles(self, in_device: tuple[str, ...]) -> int:
        """Count the tiles: i915 lists them in the card's directory, xe in the device's."""
        in_card = self._names(f"{self._directory}/gt", "gt", "tiles", *MEMORY_FIELDS)
        count = sum(_TILE_OF_CARD.fullmatch(name) is not None for name in in_card)
        count += sum(_TILE_OF_DEVICE.fullmatch(name) is not None for name in in_device)
        if count > MOST_TILES:
            raise UnreadableFile(f"expected at most {MOST_TILES} tiles, found {count}; reload the driver")
        return count or 1

    def _numa_node(self) -> int | None:
        try:
            return read_numa_node(f"{self._device}/numa_node", "device/numa_node")
        except UnreadableFile as error:
            self.report(f"{error}; unless it was read before, the card has no NUMA node", "numa_node")
            return None

    def _uuid(self) -> str:
        """Return a UUID made from the card's PCI serial number, which Linux shows since 6.18 if the card has one.

        Only administrators may read serial numbers, so the number itself is not published.
        """
        try:
            serial = read_text(f"{self._device}/serial_number", "device/serial_number")
            if serial is not None and _SERIAL.fullmatch(serial) is None:
                raise UnreadableFile(f"device/serial_number: expected 8 bytes in hexadecimal, found {quoted(serial)}")
        except UnreadableFile as error:
            self.report(f"{error}; unless it was read before, the card has no UUID", "uuid")
            return ""
        if serial is None or set(serial) <= set("0-") or set(serial) <= set("f-"):
            return ""
        return str(uuid5(_SERIAL_NUMBERS, serial))

    def _pci_address(self) -> str:
        target = PurePosixPath(link_target(self._directory) or "")
        device = PurePosixPath(link_target(self._device) or "")
        for name in (*reversed(target.parts), device.name):
            if _PCI_ADDRESS.fullmatch(name) is not None:
                return name
        self.report("neither the link to it nor its link device names a PCI address; it gets no links in by-path")
        return ""

    def _by_path(self, address: str, names: tuple[str, ...]) -> tuple[str, ...]:
        """Return the card's links that resolve: a runtime mounts what they point to, or fails the container."""
        if not address:
            return ()
        directory = f"{self._dri}/by-path"
        return tuple(name for name in names if name.startswith(f"pci-{address}") and is_there(f"{directory}/{name}"))

    def _pci_path(self) -> tuple[str, ...]:
        path = os.path.realpath(self._device)
        if not path.startswith(f"{self._root}/"):
            return ()
        names = path.removeprefix(self._root).split("/")
        return tuple(dropwhile(lambda name: not name.startswith("pci"), names))

    def _mei(self, in_device: tuple[str, ...]) -> tuple[str, ...]:
        """Return the names of the management engine's device nodes, as sysfs has them.

        The nodes themselves are not checked: a plugin that runs in a pod sees only ``/dev/dri``, and the kernel creates
        the nodes together with their entries in sysfs.
        """
        return tuple(
            name
            for engine in in_device
            if ".mei-" in engine
            for name in self._names(f"{self._device}/{engine}/mei", f"device/{engine}/mei", "mei")
            if _MEI_NODE.fullmatch(name) is not None
        )

    def _names(self, path: str, place: str, *unread: str) -> tuple[str, ...]:
        """Return the entries of an optional directory. Without it, the fields ``unread`` are unknown."""
        try:
            return entries(path, place) or ()
        except UnreadableFile as error:
            self.report(str(error), *unread)
            return ()
