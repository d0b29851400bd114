"""The cards of a node, and what is booked and free on them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple

from gas.amounts import TILES, Amounts
from gas.cards import Card, Tile
from gas.errors import InvalidValue

NOTHING: Mapping[str, int] = MappingProxyType({})
"""The amounts of a card that has none, or on which nothing is booked."""


class Link(NamedTuple):
    """A direct connection between a tile of one card and a tile of another, usable in both directions."""

    one: Tile
    other: Tile


@dataclass(frozen=True, slots=True, kw_only=True)
class Inventory:
    """The cards of one node. Raises InvalidValue for negative capacity and for closed tiles that do not exist.

    capacity         what each card has, in natural order of the cards; the amount of ``tiles`` is its number of tiles
    disabled         cards on which nothing new may start
    closed_tiles     tiles that are not given out, by card
    preferred_card   the card to try first, if the node has it
    preferred_tiles  tiles to give first, best first, by card
    numa_groups      cards by NUMA node; None if the node says nothing about it
    links            in the node's own order
    boards           the cards that share a board, board by board
    """

    capacity: Mapping[Card, Amounts]
    disabled: frozenset[Card] = frozenset()
    closed_tiles: Mapping[Card, frozenset[int]] = field(default_factory=dict)
    preferred_card: Card | None = None
    preferred_tiles: Mapping[Card, tuple[int, ...]] = field(default_factory=dict)
    numa_groups: tuple[tuple[Card, ...], ...] | None = None
    links: tuple[Link, ...] = ()
    boards: tuple[tuple[Card, ...], ...] = ()

    def __post_init__(self) -> None:
        for card, amounts in self.capacity.items():
            if amounts and min(amounts.values()) < 0:
                raise InvalidValue(f"{card}: expected capacities that are not negative, found {dict(amounts)}")
        if list(self.capacity) != sorted(self.capacity):
            raise InvalidValue(f"expected cards in natural order, found {', '.join(map(str, self.capacity))}")
        for card, closed in self.closed_tiles.items():
            tiles = self.capacity.get(card, NOTHING).get(TILES, 0)
            if any(not 0 <= tile < tiles for tile in closed):
                raise InvalidValue(f"{card}: expected closed tiles below {tiles}, found {sorted(closed)}")

    @property
    def cards(self) -> tuple[Card, ...]:
        return tuple(self.capacity)

    def closeness(self, card: Card) -> dict[Card, int]:
        """Return how close other cards are: 3 if linked, 2 on one board, 1 on one NUMA node; all others are missing."""
        close: dict[Card, int] = {}
        for group in self.numa_groups or ():
            if card in group:
                close.update(dict.fromkeys(group, 1))
        for board in self.boards:
            if card in board:
                close.update(dict.fromkeys(board, 2))
        for one, other in self.links:
            if one.card == card:
                close[other.card] = 3
            elif other.card == card:
                close[one.card] = 3
        close.pop(card, None)
        return close


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """The amounts and tiles that are booked on one node now, a view of the ledger: read it at once and do not keep it.

    amounts     by card; cards that the node no longer has may be among them
    tiles       by card, the tiles that a pod holds
    containers  by card, how many containers have it
    """

    amounts: Mapping[Card, Amounts] = field(default_factory=dict)
    tiles: Mapping[Card, frozenset[int]] = field(default_factory=dict)
    containers: Mapping[Card, int] = field(default_factory=dict)


UNUSED = Usage()


def free_amount(inventory: Inventory, usage: Usage, card: Card, name: str) -> int:
    """Return how much of a resource is free on a card; negative if the node shrank below what is booked.

    A closed tile is not free, also if no pod holds it (contract E8.11).
    """
    left = inventory.capacity.get(card, NOTHING).get(name, 0) - usage.amounts.get(card, NOTHING).get(name, 0)
    if name == TILES:
        left -= len(inventory.closed_tiles.get(card, frozenset()) - usage.tiles.get(card, frozenset()))
    return left


def free_tiles(inventory: Inventory, usage: Usage, card: Card) -> tuple[int, ...]:
    """Return the tiles of a card that may be given out: preferred ones first, then the others in ascending order."""
    shut = inventory.closed_tiles.get(card, frozenset()) | usage.tiles.get(card, frozenset())
    count = inventory.capacity.get(card, NOTHING).get(TILES, 0)
    preferred = [tile for tile in inventory.preferred_tiles.get(card, ()) if tile < count and tile not in shut]
    return (*preferred, *(tile for tile in range(count) if tile not in shut and tile not in preferred))
