"""The free amounts of a node's cards while one pod is placed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from gas.amounts import TILES
from gas.cards import Card
from gas.placement.inventory import NOTHING, Inventory, Usage, free_amount, free_tiles
from gas.placement.plan import Plan, Request

NEVER = -1
"""The free amount of a resource that the card does not have: not even a need of 0 fits."""


class Pick(NamedTuple):
    """One decision for a request: a card, or two linked cards with one tile of each."""

    cards: tuple[Card, ...]
    tiles: tuple[int, ...] = ()


Picks = dict[int, tuple[Pick, ...]]
"""The picks of each request, by the request's index."""


class FreeCapacity:
    """The free amounts of the given cards, by slot.

    Every `take` has exactly one `give_back` with the same arguments. The usage it starts from is only read. Of
    ``tiles``, no more is free than there are tiles to give out.
    """

    __slots__ = ("_first", "_open_tiles", "left")

    def __init__(
        self, plan: Plan, inventory: Inventory, usage: Usage, cards: Iterable[Card], *, by_tile: bool = False
    ) -> None:
        """Start from what is free on the cards; ``by_tile`` also tracks single tiles, for pods with linked cards."""
        self._first: dict[Card, list[int]] = {}
        self.left: dict[Card, list[int]] = {}
        tiles_at = plan.names.index(TILES) if TILES in plan.names else None
        for card in cards:
            has = inventory.capacity[card]
            booked = usage.amounts.get(card, NOTHING)
            row = [have - booked.get(name, 0) if (have := has.get(name, 0)) > 0 else NEVER for name in plan.names]
            if tiles_at is not None and has.get(TILES, 0) > 0:
                row[tiles_at] = min(free_amount(inventory, usage, card, TILES), len(free_tiles(inventory, usage, card)))
            self._first[card] = row
            self.left[card] = row * plan.moments
        self._open_tiles: dict[Card, list[set[int]]] = {}
        if by_tile:
            for card in self.left:
                tiles = free_tiles(inventory, usage, card)
                self._open_tiles[card] = [set(tiles) for _ in range(plan.moments)]

    def has(self, request: Request, card: Card) -> bool:
        """Return whether the card has enough free for one card of the request, at all moments of the request."""
        left = self.left[card]
        for slot, amount in request.takes:  # noqa: SIM110 - a generator in all() takes three times as long
            if left[slot] < amount:
                return False
        return True

    def taken(self, card: Card, slot: int) -> int:
        """Return how much of a slot this pod has taken so far."""
        first = self._first[card]
        return first[slot % len(first)] - self.left[card][slot]

    def state(self, card: Card) -> tuple[tuple[int, ...], tuple[frozenset[int], ...]]:
        """Return all that is free on a card; cards with the same free amounts and tiles have equal states."""
        tiles = tuple(frozenset(tiles) for tiles in self._open_tiles.get(card, ()))
        return tuple(self.left[card]), tiles

    def tiles(self, request: Request, card: Card) -> Sequence[int]:
        """Return the tiles that are free at all moments of the request, ascending. Needs ``by_tile``."""
        return sorted(set.intersection(*(self._open_tiles[card][moment] for moment in request.moments)))

    def take(self, request: Request, pick: Pick) -> None:
        for card in pick.cards:
            left = self.left[card]
            for slot, amount in request.takes:
                left[slot] -= amount
        for card, tile in zip(pick.cards, pick.tiles, strict=False):
            for moment in request.moments:
                self._open_tiles[card][moment].remove(tile)

    def give_back(self, request: Request, pick: Pick) -> None:
        for card in pick.cards:
            left = self.left[card]
            for slot, amount in request.takes:
                left[slot] += amount
        for card, tile in zip(pick.cards, pick.tiles, strict=False):
            for moment in request.moments:
                self._open_tiles[card][moment].add(tile)
