"""Capacity and bookings of every card, as values and as Prometheus text."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from gas.extender.decider import Decider
from gas.placement.inventory import NOTHING

CARDS_A_PIECE = 60
"""Cards written before other work gets its turn: in a fraction of a millisecond, since filters wait for it."""

_ESCAPES = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})


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


async def card_series(snapshot: Callable[[], Iterable[CardSummary]]) -> AsyncIterator[str]:
    """Write all series of all cards as Prometheus text, in pieces between which other work gets its turn.

    With 40,000 cards, one piece would stop filter and bind for seconds. The same lines are valid in Prometheus' text
    format and in OpenMetrics, where they stand before the rest.

    snapshot  is called once for each metric
    """
    for name, help_text, lines in _FAMILIES:
        yield f"# HELP {name} {help_text}\n# TYPE {name} gauge\n"
        piece: list[str] = []
        for number, card in enumerate(snapshot(), start=1):
            piece.extend(lines(card))
            if number % CARDS_A_PIECE == 0:
                yield "".join(piece)
                piece.clear()
                await asyncio.sleep(0)
        yield "".join(piece)


def _capacity(card: CardSummary) -> Iterator[str]:
    for resource, amount in card.capacity.items():
        yield f'gas_extender_card_capacity{{{_labels(card)},resource="{_escaped(resource)}"}} {amount}\n'


def _booked(card: CardSummary) -> Iterator[str]:
    for resource, amount in card.booked.items():
        yield f'gas_extender_card_booked{{{_labels(card)},resource="{_escaped(resource)}"}} {amount}\n'


def _pods(card: CardSummary) -> Iterator[str]:
    yield f"gas_extender_card_pods{{{_labels(card)}}} {card.pods}\n"


def _labels(card: CardSummary) -> str:
    return f'node="{_escaped(card.node)}",card="{card.card}"'


def _escaped(text: str) -> str:
    return text.translate(_ESCAPES)


_FAMILIES: tuple[tuple[str, str, Callable[[CardSummary], Iterator[str]]], ...] = (
    (
        "gas_extender_card_capacity",
        "How much of a resource a card has, in the unit of the resource (memory in bytes).",
        _capacity,
    ),
    (
        "gas_extender_card_booked",
        "How much of a resource of a card pods hold, in the unit of the resource (memory in bytes).",
        _booked,
    ),
    ("gas_extender_card_pods", "How many pods hold a card.", _pods),
)
