"""Where the plugin learns about the node's cards: one source for each way of finding them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from gas.values.card_facts import CardFacts, Scan
from gas.values.cards import Card

MEMORY_FIELDS = ("memory", "memory_size", "memory_source", "memory_fault")
"""The fields of `CardFacts` that are about memory."""


class CardSource(Protocol):
    """A source of the node's cards, such as sysfs."""

    @property
    def drivers(self) -> tuple[str, ...]:
        """All values that `CardFacts.driver` has in its scans."""

    def read(self) -> Scan:
        """Scan the whole node once. Called in a thread of its own, because a card that fails may block it.

        A part that cannot be read becomes a problem of the scan, and the other parts are used.
        """


def read_all(sources: Iterable[CardSource]) -> Scan:
    """Scan with every source, and return all cards together in natural order.

    A card that another one precedes with the same number, or with the same PCI address, is left out: it is the same
    card, which must not be given out twice. Earlier sources and lower numbers come first.
    """
    scans = [source.read() for source in sources]
    problems = [problem for scan in scans for problem in scan.problems]
    broken = frozenset[Card]().union(*(scan.broken for scan in scans))
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
    return Scan(gpus=tuple(gpus[card] for card in sorted(gpus)), problems=tuple(problems), broken=broken - gpus.keys())
