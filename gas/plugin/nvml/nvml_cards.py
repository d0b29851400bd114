"""Find NVIDIA's cards through their driver's library: a `CardSource` next to sysfs.

A card is ``cardN`` for N of ``/dev/nvidiaN``. On a node with Intel's cards, which have the kernel's numbers, NVIDIA's
begin at `FIRST_BESIDE_OTHERS`, so that no number depends on which cards of the other kind are there. Of a card that is
divided (MIG), each instance is a card in its place, numbered by `gas.values.cards.instance`.

A call of the library may never return when a card fails. So each card is read in a thread of its own, which is waited
for only so long, and which no further call joins until it returns. A late reply is not a fault; three in a row are.

A card that cannot be given to containers reliably is unhealthy or left out, with a sentence: one that is lost, does not
reply, has reported a failure of its hardware, is to be divided and has no instance, or has the UUID of another.

The library and the devices are given to the plugin's container when it is made, so no call helps once they are lost or
were never given. That is known from the node's PCI devices and from cards that were found before
(`Scan.container_fault`).
"""

import re
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import partial
from pathlib import Path, PurePosixPath

from gas.plugin.daemon_thread import NoReply, Questions
from gas.plugin.discovery.card_source import ALL_CARDS, MEMORY_FIELDS, CardProcess, CardRules
from gas.plugin.discovery.sysfs_files import (
    UnreadableFile,
    entries,
    is_there,
    link_target,
    read_numa_node,
    read_number,
    read_text,
)
from gas.plugin.nvml.failures import Failures
from gas.plugin.nvml.nvml_library import DRIVER_NOT_LOADED, Nvml, NvmlCard, NvmlFault, NvmlUse
from gas.values.amounts import MILLICORES_OF_A_CARD
from gas.values.card_facts import MOST_MEMORY, CardFacts, MemorySource, Scan
from gas.values.card_records import MOST_RECORDS, is_model
from gas.values.cards import Card, instance
from gas.values.errors import InvalidValue
from gas.values.quoted import quoted

DRIVER = "nvidia"

REPLY_WITHIN = 2.0  # seconds to wait for all cards of a scan together
LATE_REPLIES = 3  # scans in a row without a reply after which a card, or the library, counts as faulty

VARIABLE = "NVIDIA_VISIBLE_DEVICES"
"""The variable by which NVIDIA's container runtime chooses cards. An image may set it to ``all``."""

NO_CARD = "void"  # the value of the variable that makes the runtime leave the container alone
CDI_KIND = "nvidia.com/gpu"  # the kind of the CDI devices that NVIDIA's container toolkit describes, by UUID

_CONTROL_NODES = ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset")
_UUID = re.compile(r"(?:GPU|MIG)-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.ASCII)
_DEVICE_MINOR = re.compile(r"^DeviceFileMinor: ([0-9]{1,7})$", re.ASCII | re.MULTILINE)
_LAST_MINOR = 254
_MOST_CARDS = 255
_NVIDIA = 0x10DE
_DISPLAY = "0x03"  # begin of the PCI classes of graphics devices, with and without connectors


@dataclass(eq=False)
class NvmlCards:
    """NVIDIA's cards of this node: a `CardSource`."""

    drivers = (DRIVER,)

    root: Path  # the directory of ``/sys`` and ``/dev``; it does not appear in the result
    library: Nvml  # called in other threads only
    rules: CardRules = ALL_CARDS
    _: KW_ONLY
    with_nodes: bool = False  # containers get the device nodes as well
    by_cdi: bool = False  # containers get the cards by CDI names, not by `VARIABLE`
    first_number: int = 0  # number of the card with the minor number 0
    counts_reserved: bool = False  # whether what the driver reserves counts as memory
    within: float = REPLY_WITHIN  # seconds to wait for the cards
    ignored_xids: frozenset[int] = frozenset()  # messages of the driver after which a card is still good
    clock: Callable[[], float] = time.monotonic  # measures how long cards have been good again
    _counts: Questions[int] = field(init=False, default_factory=lambda: Questions("nvml-count"))
    _cards: Questions[NvmlCard] = field(init=False, default_factory=lambda: Questions("nvml-card"))
    _pairs: Questions[dict[tuple[str, str], bool]] = field(
        init=False, default_factory=lambda: Questions("nvml-switches")
    )
    _uses: Questions[NvmlUse] = field(init=False, default_factory=lambda: Questions("nvml-processes"))
    _failures: Failures = field(init=False)
    _must_reopen: bool = field(init=False, default=False)
    _count: int | None = field(init=False, default=None)  # of the last reply
    _replies: dict[int, NvmlCard | NvmlFault] = field(init=False, default_factory=dict)  # by index, the last one
    _described: dict[int, NvmlCard] = field(init=False, default_factory=dict)  # by index, the last good reply
    _at_index: dict[int, frozenset[Card]] = field(init=False, default_factory=dict)
    _least_memory: dict[str, int] = field(init=False, default_factory=dict)
    _near: dict[tuple[str, str], bool] = field(init=False, default_factory=dict)
    _uuids: Mapping[Card, str] = field(init=False, default_factory=dict)
    _used_at: dict[Card, int] = field(init=False, default_factory=dict)
    _busy: dict[tuple[Card, int], Counter[str]] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self._failures = Failures(self.ignored_xids)

    def read(self) -> Scan:
        """Scan once. Never raises, whatever the library returns, and returns soon, whatever it waits for."""
        deadline = time.monotonic() + self.within
        self._counts.ask("count", self._opened_count)
        try:
            count = self._count = self._counts.reply("count", deadline)
        except NoReply as error:
            hangs = self._counts.late["count"] >= LATE_REPLIES
            if self._count is None or hangs:
                return self._blind(str(error), hangs=hangs)
            count = self._count
        except NvmlFault as fault:
            self._must_reopen, self._count = True, None
            if fault.code == DRIVER_NOT_LOADED:
                self._failures.update((), (), self.clock())
            return self._blind(str(fault))
        if not count and _devices(self.root, self.rules):
            return self._blind("it lists no card")
        problems: list[str] = []
        if count > _MOST_CARDS:
            problems.append(f"NVML: expected at most {_MOST_CARDS} cards, found {count}; the others are ignored")
        indexes = range(min(count, _MOST_CARDS))
        found, faults, unread, blind = self._read_cards(indexes, deadline, problems)
        self._failures.update(found.values(), self.library.take_failures(), self.clock(), unread=set().union(*unread))
        self._uuids = {card: each.uuid for card, each in found.items()}
        whole = {card: each for card, each in found.items() if not each.card_uuid}
        boards = self._boards(whole, max(deadline, time.monotonic() + self.within / 4))
        gpus = [self._facts(card, found, boards, problems, faults) for card in sorted(found)]
        hangs = any(self._cards.late[index] >= LATE_REPLIES for index in indexes)
        none = f"NVML: none of its {count} cards can be read" if count and len(unread) == count and not hangs else ""
        return Scan(gpus=tuple(gpus), problems=tuple(problems), faults=faults, blind=blind, container_fault=none)

    def _blind(self, cause: str, *, hangs: bool = False) -> Scan:
        """Return a scan that could not look for cards. If the node has none, as far as is known, it is no fault.

        While a call hangs, a new container is of no use: the kernel may not even end this one.
        """
        has_cards = bool(_devices(self.root, self.rules) or self._described)
        consequence = "unhealthy" if has_cards else "not offered"
        return Scan(
            problems=(f"NVML: {cause}; NVIDIA's cards are {consequence}",),
            blind={DRIVER: f"NVML: {cause}"},
            container_fault=f"NVML: {cause}, and the node has cards of NVIDIA" if has_cards and not hangs else "",
        )

    def processes(self) -> tuple[Sequence[CardProcess], Sequence[str]]:
        """Return who uses the cards of the last scan. Called in a thread of its own; returns soon, as `read` does."""
        deadline = time.monotonic() + self.within
        uuids, now = self._uuids, int(time.time() * 1e6)
        for card, uuid in uuids.items():
            since = self._used_at.setdefault(card, now)
            self._uses.ask(card, partial(self.library.use, uuid, since))
        found: list[CardProcess] = []
        problems: list[str] = []
        for card in uuids:
            try:
                use = self._uses.reply(card, deadline)
            except (NoReply, NvmlFault) as error:
                problems.append(f"{card}: {_cause(error)}; who uses it is not known")
                continue
            self._add_busy(card, use)
            found += [CardProcess(pid, card, memory, self._busy[card, pid]) for pid, memory in use.memory.items()]
        self._busy = {(each.card, each.pid): self._busy[each.card, each.pid] for each in found}
        return found, problems

    def _add_busy(self, card: Card, use: NvmlUse) -> None:
        """Add the time for which processes kept the card busy: a sample counts for the time since the one before."""
        for pid in use.memory:
            self._busy.setdefault((card, pid), Counter())
        before = self._used_at[card]
        for sample in use.samples:
            self._used_at[card] = max(self._used_at[card], sample.at)
            if (busy := self._busy.get((card, sample.pid))) is not None and sample.at > before:
                for engine, percent in sample.percent.items():
                    busy[engine] += percent * (sample.at - before) * 10  # of microseconds, in nanoseconds

    def _opened_count(self) -> int:
        if self._must_reopen:
            self.library.close()
            self._must_reopen = False
        self.library.open()
        return self.library.count()

    def _read_cards(
        self, indexes: Sequence[int], deadline: float, problems: list[str]
    ) -> tuple[dict[Card, NvmlCard], dict[Card, str], list[set[str]], dict[str, str]]:
        """Return the cards that can be described, and the rest of what `Scan` has about the others.

        Those are why known ones cannot be described, the UUIDs of each that may not be lost, and `Scan.blind`.
        """
        blind: dict[str, str] = {}
        for index in indexes:
            self._cards.ask(index, lambda index=index: self.library.card(index))  # type: ignore[misc]
        found: dict[Card, NvmlCard] = {}
        faults: dict[Card, str] = {}
        unread: list[set[str]] = []
        for index in indexes:
            known = self._at_index.get(index, frozenset())
            name = ", ".join(map(str, sorted(known))) or f"NVML's card {index}"
            try:
                described = self._reply(index, deadline)
                card = self._number(described)
                cards = {self._number(each): each for each in described.instances} or {card: described}
            except (NoReply, NvmlFault, InvalidValue) as error:
                fault = f"{_cause(error)}; it is unhealthy"
                problems.append(f"{name}: {fault}")
                faults |= dict.fromkeys(known, fault)
                if not known and not isinstance(error, InvalidValue):
                    blind = {DRIVER: f"{name}: {fault}"}
                if isinstance(error, NoReply) or (isinstance(error, NvmlFault) and not error.is_lost):
                    last = self._described.get(index)
                    unread.append({each.uuid for each in (last, *last.instances)} if last is not None else set())
                if isinstance(error, NvmlFault) and error.is_closed:
                    self._must_reopen = True
                continue
            self._described[index] = described
            if not self.rules.admit(_device_id(described)):
                continue
            if (functions := _virtual_functions(self.root, described)) > 0:
                problems.append(f"{card}: virtual machines may have its {functions} virtual functions; it is left out")
                continue
            if cards.keys() & found.keys():
                problems.append(f"{card}: two cards are /dev/nvidia{described.minor}; only the first one counts")
                continue
            if len(found) + len(cards) > MOST_RECORDS:
                expected = f"NVML: expected at most {MOST_RECORDS} cards and MIG instances, found more"
                problems.append(f"{expected}; the others are ignored; destroy some instances")
                break
            self._at_index[index] = frozenset(cards)
            found |= cards
        return found, {card: fault for card, fault in faults.items() if card not in found}, unread, blind

    def _reply(self, index: int, deadline: float) -> NvmlCard:
        """Return a card's description, or raise NvmlFault, as in its last reply while one is late. Raises NoReply."""
        try:
            self._replies[index] = self._cards.reply(index, deadline)
        except NvmlFault as fault:
            self._replies[index] = fault
        except NoReply:
            if index not in self._replies or self._cards.late[index] >= LATE_REPLIES:
                raise
        reply = self._replies[index]
        if isinstance(reply, NvmlFault):
            raise reply
        return reply

    def _number(self, card: NvmlCard) -> Card:
        """Return the number of a card. Raises InvalidValue."""
        if _UUID.fullmatch(card.uuid) is None:
            raise InvalidValue(
                f"UUID: expected GPU- or MIG- and 32 hexadecimal digits in groups, found {quoted(card.uuid)}"
            )
        if not 0 <= card.minor <= _LAST_MINOR:
            raise InvalidValue(f"minor number: expected 0 to {_LAST_MINOR}, found {card.minor}")
        whole = Card(self.first_number + card.minor)
        if not card.card_uuid:
            return whole
        of_card, within = card.place
        if not (0 <= of_card < 16 and 0 <= within < 8 and 0 < card.millicores <= MILLICORES_OF_A_CARD):
            raise InvalidValue(
                f"MIG instance {of_card}/{within}: expected numbers below 16 and 8, and a part of the card's compute,"
                f" found {card.millicores} millicores"
            )
        return instance(whole, 10 * of_card + within)

    def _boards(self, found: Mapping[Card, NvmlCard], deadline: float) -> Mapping[Card, int]:
        """Return by card the lowest number among the cards that share PCIe switches with it; none for a card alone."""
        cards = sorted(found, key=lambda card: found[card].uuid)
        pairs = [(one, other) for at, one in enumerate(cards) for other in cards[at + 1 :]]
        uuids = {(one, other): (found[one].uuid, found[other].uuid) for one, other in pairs}
        if unknown := [pair for pair in uuids.values() if pair not in self._near]:
            self._pairs.ask("switches", lambda: self._compared(unknown))
            with suppress(NoReply):  # its reply counts in a later scan
                self._near |= self._pairs.reply("switches", deadline)
        boards: dict[Card, int] = {}
        for one, other in sorted((min(pair), max(pair)) for pair in pairs if self._near.get(uuids[pair])):
            boards.setdefault(other, boards.setdefault(one, int(one)))
        return boards

    def _compared(self, pairs: Sequence[tuple[str, str]]) -> dict[tuple[str, str], bool]:
        """Return which pairs of cards share switches, without pairs that cannot be compared now."""
        near: dict[tuple[str, str], bool] = {}
        for pair in pairs:
            try:
                near[pair] = self.library.share_a_switch(*pair)
            except NvmlFault:
                continue
        return near

    def _facts(
        self,
        card: Card,
        found: Mapping[Card, NvmlCard],
        boards: Mapping[Card, int],
        problems: list[str],
        unhealthy: dict[Card, str],
    ) -> CardFacts:
        """Return a card. Adds to ``problems``, and to ``unhealthy`` why the card must not be given out."""
        described = found[card]
        faults: list[str] = []
        if same := [other for other in found if other != card and found[other].uuid == described.uuid]:
            faults.append(f"it has the UUID {described.uuid} of {', '.join(map(str, same))}, so neither can be chosen")
        if (failure := self._failures.fault(described)) is not None:
            faults.append(failure)
        if described.has_mig and not described.card_uuid:
            faults.append(
                "MIG is enabled, and it has no instances; create some with nvidia-smi mig -cgi, or switch MIG off with"
                f" nvidia-smi -i {described.uuid} -mig 0"
            )
        nodes: tuple[str, ...] = ()
        if self.with_nodes:
            needed = (f"nvidia{described.minor}", *self._capabilities(described))
            nodes = tuple(name for name in (*needed, *_CONTROL_NODES) if is_there(f"{self.root}/dev/{name}"))
            faults += [f"/dev/{name} is missing" for name in needed if name not in nodes]
        problems += [f"{card}: {fault}; it is unhealthy" for fault in faults]
        if described.unheard:
            problems.append(f"{card}: {described.unheard}; failures that it reports are noticed later")
        if faults:
            unhealthy[card] = "; ".join(faults)
        others = [(other, each) for other, each in found.items() if other != card and not each.card_uuid]
        peers = [other for other, each in others for _ in range(described.peers.count(each.pci))]
        if described.on_switch:
            peers += [other for other, each in others if each.on_switch]
        facts = CardFacts(
            card=card,
            driver=DRIVER,
            driver_version=described.version,
            device_id=_device_id(described),
            model=described.model if is_model(described.model) else "",
            pci_address=_pci_address(described),
            uuid=described.uuid,
            millicores=described.millicores,
            links=tuple(sorted(peers)),
            board=boards.get(card),
            other_nodes=nodes,
            variables=((VARIABLE, NO_CARD if self.by_cdi else described.uuid),),
            cdi_name=f"{CDI_KIND}={described.uuid}" if self.by_cdi else "",
            healthy=not faults,
        )
        facts = self._with_numa_node(self._with_memory(facts, described, problems), problems)
        return replace(facts, pci_address="") if described.card_uuid else facts  # an address names one card

    def _capabilities(self, card: NvmlCard) -> tuple[str, ...]:
        """Return the device nodes by which a container may use an instance; none for a whole card."""
        if not card.card_uuid:
            return ()
        instance = self.root / f"proc/driver/nvidia/capabilities/gpu{card.minor}/mig/gi{card.place[0]}"
        return tuple(_capability(file) for file in (instance / "access", instance / f"ci{card.place[1]}/access"))

    def _with_memory(self, facts: CardFacts, described: NvmlCard, problems: list[str]) -> CardFacts:
        """Return the card with its memory. It never grows: if an amount has changed, one of the two was wrong."""
        total, reserved = described.total, described.reserved
        override = self.rules.memory_override
        if total is None:  # it has none of its own, as an integrated GPU
            source = MemorySource.SHARED if override is None else MemorySource.OVERRIDE
            return replace(facts, memory=override, memory_source=source)
        if not (0 < total <= MOST_MEMORY and 0 <= reserved < total):
            fault = (
                f"its memory is unknown: NVML states {total} bytes, of which {reserved} are reserved; pods that request"
                " memory do not get this card; restart the node, or set GPU_MEMORY_OVERRIDE"
            )
            problems.append(f"{facts.card}: {fault}")
            return replace(
                facts,
                memory=override,
                memory_source=MemorySource.UNKNOWN if override is None else MemorySource.OVERRIDE,
                memory_fault=fault if override is None else "",
                unread=facts.unread.union(MEMORY_FIELDS),
            )
        usable = total if self.counts_reserved else total - reserved
        least = self._least_memory[described.uuid] = min(usable, self._least_memory.get(described.uuid, usable))
        if least < usable:
            problems.append(
                f"{facts.card}: NVML states {usable} bytes of memory, and stated {least} before; the smaller amount"
                " counts until the plugin restarts"
            )
        left = self.rules.usable(least, lambda sentence: problems.append(f"{facts.card}: {sentence}"))
        return replace(facts, memory=left, memory_size=total, memory_source=MemorySource.QUERY)

    def _with_numa_node(self, facts: CardFacts, problems: list[str]) -> CardFacts:
        """Return the card with the NUMA node that sysfs states for its PCI device."""
        place = f"/sys/bus/pci/devices/{facts.pci_address}/numa_node"
        try:
            return replace(facts, numa_node=read_numa_node(f"{self.root}{place}", place))
        except UnreadableFile as error:
            problems.append(f"{facts.card}: {error}; unless it was read before, the card has no NUMA node")
            return replace(facts, unread=facts.unread | {"numa_node"})


def _devices(root: Path, rules: CardRules) -> int:
    """Return how many graphics devices of NVIDIA sysfs shows that the rules admit and no other driver has taken."""
    directory = f"{root}/sys/bus/pci/devices"
    count = 0
    with suppress(UnreadableFile):
        for device in (f"{directory}/{address}" for address in entries(directory, directory) or ()):
            with suppress(UnreadableFile):
                is_nvidias = read_text(f"{device}/vendor", "vendor") == f"0x{_NVIDIA:04x}"
                is_admitted = rules.admit(read_text(f"{device}/device", "device") or "")
                if is_nvidias and is_admitted and (read_text(f"{device}/class", "class") or "").startswith(_DISPLAY):
                    count += PurePosixPath(link_target(f"{device}/driver") or DRIVER).name == DRIVER
    return count


def _virtual_functions(root: Path, card: NvmlCard) -> int:
    place = f"/sys/bus/pci/devices/{_pci_address(card)}/sriov_numvfs"
    with suppress(UnreadableFile):
        return read_number(f"{root}{place}", place) or 0
    return 0


def _capability(file: Path) -> str:
    """Return the device node that a file of the driver names, under /dev."""
    with suppress(OSError, UnicodeError):
        if (found := _DEVICE_MINOR.search(file.read_text(encoding="ascii"))) is not None:
            return f"nvidia-caps/nvidia-cap{found[1]}"
    return "nvidia-caps/nvidia-cap"


def _device_id(card: NvmlCard) -> str:
    """Return the PCI device id; empty for devices of other vendors."""
    return f"0x{card.pci_ids >> 16 & 0xFFFF:04x}" if card.pci_ids & 0xFFFF == _NVIDIA else ""


def _pci_address(card: NvmlCard) -> str:
    domain, bus, device = card.pci
    return f"{domain:04x}:{bus & 0xFF:02x}:{device & 0x1F:02x}.0"


def _cause(error: Exception) -> str:
    """Return why a card cannot be described, as a clause."""
    if isinstance(error, NvmlFault) and error.is_lost:
        return "the card is lost, its driver no longer reaches it; reset it, or restart the node"
    return str(error)
