"""What a node has: the facts that placement thinks in, and what is left of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple

from gas.amounts import TILES, Amounts
from gas.cards import Card, Tile

NOTHING: Mapping[str, int] = MappingProxyType({})


class Link(NamedTuple):
    """A direct connection between a tile of one card and a tile of another; good in both directions."""

    one: Tile
    other: Tile


@dataclass(frozen=True, slots=True, kw_only=True)
class Inventory:
    """The cards of one node. Made from a node's labels and resources; never changes.

    capacity         what each card has, in natural order of the cards; ``tiles`` is the number of its tiles
    disabled         cards on which nothing new may start
    closed_tiles     tiles that are not given out, by card; only tiles that exist
    preferred_card   the card to try first, if the node has it
    preferred_tiles  tiles to give first, best first, by card
    numa_groups      cards by NUMA node; None when the node says nothing about it
    links            in the node's own order
    """

    capacity: Mapping[Card, Amounts]
    disabled: frozenset[Card] = frozenset()
    closed_tiles: Mapping[Card, frozenset[int]] = field(default_factory=dict)
    preferred_card: Card | None = None
    preferred_tiles: Mapping[Card, tuple[int, ...]] = field(default_factory=dict)
    numa_groups: tuple[tuple[Card, ...], ...] | None = None
    links: tuple[Link, ...] = ()

    @property
    def cards(self) -> tuple[Card, ...]:
        return tuple(self.capacity)


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What is booked on one node now: a read-only view for the length of one decision.

    amounts  by card; cards that the node no longer has may be among them
    tiles    by card, the tiles that somebody holds
    """

    amounts: Mapping[Card, Amounts] = field(default_factory=dict)
    tiles: Mapping[Card, frozenset[int]] = field(default_factory=dict)


UNUSED = Usage()


def free_amount(inventory: Inventory, usage: Usage, card: Card, name: str) -> int:
    """How much of a resource is left on a card; negative when the node shrank below what is booked.

    A closed tile that nobody holds is not free either (contract E8.11).
    """
    left = inventory.capacity.get(card, NOTHING).get(name, 0) - usage.amounts.get(card, NOTHING).get(name, 0)
    if name == TILES:
        left -= len(inventory.closed_tiles.get(card, frozenset()) - usage.tiles.get(card, frozenset()))
    return left


def free_tiles(inventory: Inventory, usage: Usage, card: Card) -> tuple[int, ...]:
    """The tiles of a card that may be given out: its preferred ones first, then the rest in ascending order."""
    shut = inventory.closed_tiles.get(card, frozenset()) | usage.tiles.get(card, frozenset())
    count = inventory.capacity.get(card, NOTHING).get(TILES, 0)
    preferred = [tile for tile in inventory.preferred_tiles.get(card, ()) if tile < count and tile not in shut]
    return (*preferred, *(tile for tile in range(count) if tile not in shut and tile not in preferred))
