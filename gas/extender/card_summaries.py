"""Capacity and bookings of every card."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from gas.extender.decider import Decider
from gas.placement.inventory import NOTHING


@dataclass(frozen=True, slots=True)
class CardSummary:
    """One card at one moment.

    node, card        names
    capacity, booked  resource name without prefix -> amount; ``memory.*`` in bytes
    pods              how many pods hold the card
    """

    node: str
    card: str
    capacity: Mapping[str, int]
    booked: Mapping[str, int]
    pods: int


def card_summaries(decider: Decider) -> Iterator[CardSummary]:
    """Return each card that a node has or that a pod still holds."""
    ledger = decider.ledger
    names = dict.fromkeys([*(name for name, _ in decider.nodes), *ledger.nodes()])
    for name in names:
        facts = decider.nodes.facts(name)
        capacity = facts.inventory.capacity if facts is not None else {}
        usage = ledger.usage(name)
        holders = ledger.holders(name)
        for card in sorted({*capacity, *holders}):
            yield CardSummary(
                node=name,
                card=str(card),
                capacity=capacity.get(card, NOTHING),
                booked=usage.amounts.get(card, NOTHING),
                pods=holders.get(card, 0),
            )
