"""What is known of every card, row by row, for metrics and for people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from gas.extender.nodes import Nodes
from gas.ledger import Ledger
from gas.placement.inventory import NOTHING


@dataclass(frozen=True, slots=True)
class CardBooks:
    """What is known of one card at one moment.

    node, card        names
    capacity, booked  resource name without prefix -> amount; ``memory.*`` in bytes
    pods              how many pods hold the card
    """

    node: str
    card: str
    capacity: Mapping[str, int]
    booked: Mapping[str, int]
    pods: int


def card_books(nodes: Nodes, ledger: Ledger) -> Iterator[CardBooks]:
    """One row for each card that a node has or that somebody still holds."""
    names = dict.fromkeys([*(name for name, _ in nodes), *ledger.nodes()])
    for name in names:
        facts = nodes.facts(name)
        capacity = facts.inventory.capacity if facts is not None else {}
        usage = ledger.usage(name)
        holders = ledger.holders(name)
        for card in sorted({*capacity, *holders}):
            yield CardBooks(
                node=name,
                card=str(card),
                capacity=capacity.get(card, NOTHING),
                booked=usage.amounts.get(card, NOTHING),
                pods=holders.get(card, 0),
            )
