"""Define the sources of the node's cards, and combine them."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from gas.values.card_facts import CardFacts, Scan
from gas.values.cards import Card

MEMORY_FIELDS = ("memory", "memory_size", "memory_source", "memory_fault")


@dataclass(frozen=True, slots=True, kw_only=True)
class CardRules:
    """The administrator's choices about the cards of every source. Amounts are in bytes."""

    # use only cards with these PCI device ids (`gas.plugin.discovery.card_models`); if empty, all
    allow_ids: frozenset[str] = frozenset()
    deny_ids: frozenset[str] = frozenset()  # leave out cards with these PCI device ids
    memory_override: int | None = None  # for cards whose memory no source states
    memory_reserved: int = 0  # not available to pods; not subtracted from the override

    def admit(self, device_id: str) -> bool:
        return device_id not in self.deny_ids and (not self.allow_ids or device_id in self.allow_ids)

    def usable(self, amount: int, report: Callable[[str], None]) -> int | None:
        """Return the bytes of a card that pods may use; None for 0 or less. ``report`` takes a problem's sentence."""
        left = amount - self.memory_reserved
        if left < 0:
            report(f"{self.memory_reserved} bytes are reserved of the {amount} it has; pods cannot request its memory")
        return left if left > 0 else None


ALL_CARDS = CardRules()


class CardProcess(NamedTuple):
    """The use of a card by one process, as its driver states it."""

    pid: int  # as in the plugin's /proc
    card: Card
    memory: int  # bytes of the card's own memory
    busy: Mapping[str, int]  # by engine, nanoseconds since the plugin has seen the process


AskProcesses = Callable[[], tuple[Sequence[CardProcess], Sequence[str]]]
"""Asks a driver who uses its cards. Returns the processes, and a sentence about each failure."""


class CardSource(Protocol):
    @property
    def drivers(self) -> tuple[str, ...]:
        """All values that `CardFacts.driver` has in its scans."""

    def read(self) -> Scan:
        """Scan the whole node once. Called in a thread of its own, because a failing card may block it.

        Parts that cannot be read become problems of the scan, and the other parts are used.
        """


def read_all(sources: Iterable[CardSource]) -> Scan:
    """Scan with every source, and return all cards together in natural order.

    A card with the number or PCI address of an earlier one is left out: it is the same card, which must not be given
    out twice. Earlier sources and lower numbers come first.
    """
    scans = [source.read() for source in sources]
    problems = [problem for scan in scans for problem in scan.problems]
    faults = {card: fault for scan in reversed(scans) for card, fault in scan.faults.items()}
    gpus: dict[Card, CardFacts] = {}
    owners: dict[str, Card] = {}
    for gpu in (gpu for scan in scans for gpu in scan.gpus):
        if gpu.card in gpus:
            problems.append(f"{gpu.card}: two sources describe a card of this name; only the first one counts")
            continue
        owner = owners.setdefault(gpu.pci_address, gpu.card) if gpu.pci_address else gpu.card
        if owner != gpu.card:
            problems.append(f"{gpu.card}: {owner} has the same PCI address {gpu.pci_address}; the card is left out")
            continue
        gpus[gpu.card] = gpu
    return Scan(
        gpus=tuple(gpus[card] for card in sorted(gpus)),
        problems=tuple(problems),
        faults={card: fault for card, fault in faults.items() if card not in gpus or not gpus[card].healthy},
        blind={driver: fault for scan in scans for driver, fault in scan.blind.items()},
        container_fault="; ".join(scan.container_fault for scan in scans if scan.container_fault),
    )
