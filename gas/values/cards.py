"""Cards and tiles, the GPUs that containers get."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import NamedTuple

from gas.values.errors import GasError, InvalidValue

FIRST_BESIDE_OTHERS = 1000  # Number of NVIDIA's first card on a node with others. The kernel's numbers are smaller.
INSTANCES = 10_000  # numbers of instances begin here, with as many for each card: those of card1 begin at 20000

_CARD = re.compile(r"card(0|[1-9][0-9]{0,8})", re.ASCII)


class MalformedCard(GasError):
    """The text is not a card name. ``text`` is what was found."""

    def __init__(self, text: str) -> None:
        super().__init__(f"expected a card name such as card0, found {text[:80]!r}")
        self.text = text


class Card(int):
    """One GPU of a node; the kernel calls it ``card<number>``. Raises InvalidValue for a number such as -1 or 1.5.

    It is an int, so that cards sort in natural order (card2 before card10) and hash at the speed of C: every filter
    looks up thousands of them.
    """

    __slots__ = ()

    def __new__(cls, number: int) -> Card:
        if not isinstance(number, int) or number < 0:
            raise InvalidValue(f"expected a card number 0, 1 and so on, found {number!r}")
        return super().__new__(cls, number)

    @classmethod
    def parse(cls, text: str) -> Card:
        """Parse ``"card10"`` into ``Card(10)``. Raises MalformedCard, also for leading zeros."""
        if (match := _CARD.fullmatch(text)) is None:
            raise MalformedCard(text)
        return cls(int(match[1]))

    @property
    def is_instance(self) -> bool:
        """True for an instance of a divided card (MIG)."""
        return self >= INSTANCES

    def __str__(self) -> str:
        return f"card{int(self)}"

    def __repr__(self) -> str:
        return f"Card({int(self)})"


def instance(of: Card, place: int) -> Card:
    """Return the card that an instance of a divided card (MIG) counts as."""
    return Card(INSTANCES * (of + 1) + place)


def whole_card(card: Card) -> Card:
    """Return the card of which an instance is a part; any other card is returned as it is."""
    return Card(card // INSTANCES - 1) if card.is_instance else card


_MOST_PLACES = 256  # of NVIDIA's cards that keep their places: more than any node has


def exchange_numbers(cards: Iterable[Card]) -> Callable[[int], int]:
    """Return what turns the number of a card on a node with these into that of another system, and back.

    Such a system numbers only NVIDIA's cards, from 0 on. Where these begin at FIRST_BESIDE_OTHERS, others do there.
    """
    first = FIRST_BESIDE_OTHERS
    if not any(map(_is_beside_others, cards)):
        return int
    return lambda number: (number + first) % (2 * first) if number < 2 * first else int(number)


def in_order(cards: Iterable[Card], uuids: Mapping[str, Card]) -> list[Card]:
    """Return a node's cards in the order in which other systems count them: NVIDIA's come before others.

    A divided card keeps its place, so that no other changes its own, and so does one of NVIDIA's cards that is lost:
    all up to the last known one have a place. Instances come last. ``uuids`` are the cards of the node by UUID.
    """
    known = {*cards, *uuids.values()}
    if of_nvidia := [whole_card(card) for uuid, card in uuids.items() if uuid.startswith(("GPU-", "MIG-"))]:
        first = FIRST_BESIDE_OTHERS if _is_beside_others(max(of_nvidia)) else 0
        known.update(map(Card, range(first, min(max(of_nvidia), first + _MOST_PLACES))))
    whole = set(map(whole_card, known))
    return sorted(known | whole, key=lambda card: (card not in whole, not _is_beside_others(card), card))


def _is_beside_others(card: Card) -> bool:
    return whole_card(card) >= FIRST_BESIDE_OTHERS


class _Tile(NamedTuple):
    card: Card
    index: int  # type: ignore[assignment]  # shadows the method of tuple, which no caller needs


class Tile(_Tile):
    """One tile of a card; the kernel calls it ``gt<index>``. Raises InvalidValue for a negative or fractional index."""

    __slots__ = ()

    def __new__(cls, card: Card, index: int) -> Tile:
        if not isinstance(index, int) or index < 0:
            raise InvalidValue(f"{card}: expected a tile 0, 1 and so on, found {index!r}")
        return super().__new__(cls, card, index)


def check_tiles(card: Card, indexes: Collection[int]) -> None:
    """Raise InvalidValue for a tile that is negative, fractional or repeated."""
    if len(set(indexes)) < len(indexes):
        raise InvalidValue(f"{card}: expected different tiles, found {', '.join(map(str, indexes))}")
    for index in indexes:
        if not isinstance(index, int) or index < 0:
            raise InvalidValue(f"{card}: expected a tile 0, 1 and so on, found {index}")
