"""The metrics of the cards as text, in pieces: with 40,000 cards one piece would stop filter and bind for seconds.

The same lines are right for Prometheus' text format and for OpenMetrics, where they stand before the rest.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator

from gas.extender.card_books import CardBooks

CARDS_A_PIECE = 60
"""So many cards are written before others get their turn: in a fraction of a millisecond, since filters wait for it."""

_ESCAPES = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})


async def card_series(snapshot: Callable[[], Iterable[CardBooks]]) -> AsyncIterator[str]:
    """All series of all cards; ``snapshot`` is walked once for each metric, with pauses for others in between."""
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


def _capacity(card: CardBooks) -> Iterator[str]:
    for resource, amount in card.capacity.items():
        yield f'gas_extender_card_capacity{{{_labels(card)},resource="{_escaped(resource)}"}} {amount}\n'


def _booked(card: CardBooks) -> Iterator[str]:
    for resource, amount in card.booked.items():
        yield f'gas_extender_card_booked{{{_labels(card)},resource="{_escaped(resource)}"}} {amount}\n'


def _pods(card: CardBooks) -> Iterator[str]:
    yield f"gas_extender_card_pods{{{_labels(card)}}} {card.pods}\n"


def _labels(card: CardBooks) -> str:
    return f'node="{_escaped(card.node)}",card="{card.card}"'


def _escaped(text: str) -> str:
    return text.translate(_ESCAPES)


_FAMILIES: tuple[tuple[str, str, Callable[[CardBooks], Iterator[str]]], ...] = (
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
