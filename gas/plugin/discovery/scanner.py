"""Scan the node's cards every few seconds, and remember cards that cannot be read for a while."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import partial

from gas.plugin.daemon_thread import in_a_daemon_thread, wait_while_stuck
from gas.values.card_facts import CardFacts, Scan
from gas.values.cards import Card
from gas.values.quoted import listed

logger = logging.getLogger(__name__)

INTERVAL = 5.0  # Seconds between two scans. Source: contract P1.12.
SLOW = 10.0  # Seconds after which a scan counts as stuck. The kernel may block a reader forever; nothing can stop that.
FORGET_AFTER = 60.0  # seconds for which a missing card is remembered: longer than its reset or a reload of its driver

RESTART_AFTER = 120.0
"""Seconds for which the container must see fewer cards than a new one may, before /healthz fails. It lasts longer than
a reload of a driver, and kubelet waits another minute."""

AGAIN_AFTER = 900.0
"""The same if this container never saw them and others are healthy, whose plugin is away while kubelet makes the next
one. After so long kubelet does that at once; it delays what has run for less than 10 minutes, by up to 5."""

ScanOnce = Callable[[Callable[[], Scan]], Awaitable[Scan]]  # runs a scan without blocking the event loop

IN_A_THREAD: ScanOnce = partial(in_a_daemon_thread, name="sysfs")


@dataclass(slots=True)
class _Known:
    """A card as it was last complete."""

    gpu: CardFacts
    missing_since: float | None = None


class CardMemory:
    """Derive the node's cards from single scans.

                         .-- readable again, with as many device nodes --.
                         v                                               |
        unknown --found--> healthy --broken, missing, lost a device node--> unhealthy
           ^                                                             |
           '------ missing for a minute, or back under another number ---'

    While a source cannot look for all cards (`Scan.blind`), none of its drivers' is forgotten. At the start the cards
    that are recorded on the node are known.
    A field that a scan could not read of a known card (`CardFacts.unread`) keeps its value, so that one failed read
    does not cost pods tiles or memory. An unhealthy card keeps its last description, so that its labels and the numbers
    by which links name it do not change. A broken card stays as long as it is there. Kubelet allocates an unhealthy
    card to no further pod, and leaves pods that have it alone.
    """

    def __init__(self) -> None:
        self._known: dict[Card, _Known] = {}

    def recall(self, recorded: Iterable[CardFacts]) -> None:
        """Take over the cards that an earlier plugin has recorded: those that cannot be found now are missing."""
        for gpu in recorded:
            self._known.setdefault(gpu.card, _Known(gpu))

    def update(self, scan: Scan, now: float) -> Scan:
        """Return the node's cards after this scan. ``now`` is in seconds of a monotonic clock."""
        problems = list(scan.problems)
        faults = dict(scan.faults)
        gpus: dict[Card, CardFacts] = {}
        for gpu in scan.gpus:
            gpus[gpu.card] = self._found(gpu, problems, faults)
        elsewhere = {gpu.pci_address for gpu in scan.gpus if gpu.pci_address}
        for card, known in list(self._known.items()):
            if card in gpus:
                continue
            is_there = card in scan.faults or known.gpu.driver in scan.blind
            if known.gpu.pci_address in elsewhere or not self._remember(known, now, is_there=is_there):
                del self._known[card]
                continue
            if known.missing_since is not None:
                faults[card] = "the card is missing; it is unhealthy until it returns or is forgotten"
                problems.append(f"{card}: {faults[card]}")
            else:
                faults.setdefault(card, scan.blind.get(known.gpu.driver, ""))
            gpus[card] = replace(known.gpu, healthy=False)
        shown = tuple(gpus[card] for card in sorted(gpus))
        faults = {card: fault for card, fault in faults.items() if card in gpus}
        return replace(scan, gpus=shown, problems=tuple(problems), faults=faults)

    def _found(self, gpu: CardFacts, problems: list[str], faults: dict[Card, str]) -> CardFacts:
        """Return a card that could be read, with its `CardFacts.unread` fields filled in as far as they are known."""
        known = self._known.get(gpu.card)
        if known is not None and (known.gpu.pci_address, known.gpu.driver) == (gpu.pci_address, gpu.driver):
            known.missing_since = None
            gpu = replace(gpu, **{name: getattr(known.gpu, name) for name in gpu.unread})
            if len(gpu.device_nodes) < len(known.gpu.device_nodes):
                lost = sorted(set(known.gpu.device_nodes).difference(gpu.device_nodes))
                fault = f"the card lost {listed([f'/dev/dri/{name}' for name in lost])}; it is unhealthy"
                problems.append(f"{gpu.card}: {fault}")
                faults.setdefault(gpu.card, fault)
                return replace(known.gpu, healthy=False)
        gpu = replace(gpu, unread=frozenset())
        self._known[gpu.card] = _Known(gpu)
        return gpu

    def _remember(self, known: _Known, now: float, *, is_there: bool) -> bool:
        """Note that a card could not be read. Return whether to remember it."""
        if is_there:
            known.missing_since = None
        elif known.missing_since is None:
            known.missing_since = now
        return known.missing_since is None or now - known.missing_since < FORGET_AFTER


@dataclass(eq=False)
class Scanner:
    """Keep the last complete scan of the node's cards. Scans run off the event loop: a failing card may block them.

    read       scans once, in a thread of its own, as `gas.plugin.discovery.card_source.read_all` does
    on_change  called on the event loop with the first scan, and with each that differs from the one before
    """

    read: Callable[[], Scan]
    on_change: Callable[[Scan], None]
    _: KW_ONLY
    interval: float = INTERVAL
    slow: float = SLOW
    clock: Callable[[], float] = time.monotonic
    off_loop: ScanOnce = IN_A_THREAD
    scan: Scan = field(init=False, default_factory=Scan)  # empty before the first scan has ended
    finished: int = field(init=False, default=0)  # number of scans that have ended
    # number of scans that raised an error, which is a bug and is logged; the earlier scan stays
    faults: int = field(init=False, default=0)
    # a sentence while a scan takes longer than ``slow`` seconds, else None
    stuck: str | None = field(init=False, default=None)
    _memory: CardMemory = field(init=False, default_factory=CardMemory)
    _found: Scan = field(init=False, default_factory=Scan)  # the last scan alone
    _fault_since: float | None = field(init=False, default=None)
    _saw_all: bool = field(init=False, default=False)  # a scan was without a fault of the container

    @property
    def needs_restart(self) -> str | None:
        """Why only a new container of the plugin may see the cards, once that has lasted; else None."""
        disturbs = not self._saw_all and any(gpu.healthy for gpu in self.scan.gpus)
        after = AGAIN_AFTER if disturbs else RESTART_AFTER
        lasts = self._fault_since is not None and self.clock() - self._fault_since >= after
        return self.scan.container_fault if lasts else None

    def recall(self, recorded: Iterable[CardFacts]) -> None:
        """Take over the cards that an earlier plugin has recorded."""
        self._memory.recall(recorded)
        if self.finished and (scan := self._memory.update(self._found, self.clock())) != self.scan:
            self.scan = scan
            self.on_change(scan)

    async def run(self) -> None:
        while True:
            await self.scan_once()
            await asyncio.sleep(self.interval)

    async def scan_once(self) -> None:
        reading = asyncio.ensure_future(self.off_loop(self.read))
        try:
            found = await wait_while_stuck(reading, self.slow, self._report_stuck)
        except Exception:
            self.faults += 1
            logger.exception("the cards of this node could not be scanned; the last scan stays")
            return
        finally:
            self.stuck = None
        first = self.finished == 0
        self.finished += 1
        self._found, now = found, self.clock()
        scan = self._memory.update(found, now)
        if not scan.container_fault:
            self._fault_since, self._saw_all = None, True
        elif self._fault_since is None:
            self._fault_since = now
        before, self.scan = self.scan, scan
        for problem in scan.problems:
            if problem not in before.problems:
                logger.warning(problem)
        if first or scan != before:
            self.on_change(scan)

    def _report_stuck(self) -> None:
        self.stuck = f"scanning the cards of this node has taken over {self.slow:g} s; a card does not respond"
        logger.error(self.stuck)
