"""The free amounts of a node's cards while one pod is placed."""

from collections.abc import Hashable, Iterable, Sequence
from typing import NamedTuple

from gas.placement.inventory import NOTHING, Inventory, Usage, free_amount, free_tiles
from gas.placement.plan import Plan, Request
from gas.placement.ratio import whole
from gas.values.amounts import TILES, Amounts
from gas.values.cards import Card

NEVER = -1  # the free amount of a resource that the card does not have: not even a need of 0 fits


class Pick(NamedTuple):
    """One decision for a request: a card, or two linked cards with one tile of each."""

    cards: tuple[Card, ...]
    tiles: tuple[int, ...] = ()


Picks = dict[int, tuple[Pick, ...]]  # the picks of each request, by the request's index


Takes = tuple[tuple[int, int], ...]  # (slot, amount) pairs


def _scaled(plan: Plan, request: Request, card: Amounts, scales: Sequence[int]) -> Takes:
    """Return what a request takes of a card in units of which ``scales`` are one of a resource.

    So parts of a card are whole numbers, and they are rounded down only in sum.
    """
    names = len(plan.names)
    total: dict[int, int] = {slot: amount * scales[slot % names] for slot, amount in request.takes}
    for slot, part in request.parts:
        total[slot] = total.get(slot, 0) + card.get(plan.names[slot % names], 0) * part
    return tuple(sorted(total.items()))


class FreeCapacity:
    """The free amounts of the given cards, by slot.

    If the plan has ratios, the amounts of a resource asked for as a part of the card are in units that differ from card
    to card: `free` and `takes` return plain amounts. Every `take` has exactly one `give_back` with the same arguments.
    The usage it starts from is only read. Of ``tiles``, no more is free than there are tiles to give out.
    """

    __slots__ = ("_first", "_open_tiles", "_plan", "_scales", "_takes", "left")

    def __init__(
        self, plan: Plan, inventory: Inventory, usage: Usage, cards: Iterable[Card], *, by_tile: bool = False
    ) -> None:
        """Start from what is free on the cards; ``by_tile`` also tracks single tiles, for pods with linked cards."""
        self._plan = plan
        self._first: dict[Card, list[int]] = {}
        self._scales: dict[Card, list[int]] = {}
        self._takes: dict[Card, list[Takes]] = {}
        self.left: dict[Card, list[int]] = {}
        tiles_at = plan.names.index(TILES) if TILES in plan.names else None
        for card in cards:
            has = inventory.capacity[card]
            booked = usage.amounts.get(card, NOTHING)
            row = [have - booked.get(name, 0) if (have := has.get(name, 0)) > 0 else NEVER for name in plan.names]
            if tiles_at is not None and has.get(TILES, 0) > 0:
                row[tiles_at] = min(free_amount(inventory, usage, card, TILES), len(free_tiles(inventory, usage, card)))
            if plan.wholes:
                self._scales[card] = scales = [1 if of is None else whole(of, has) for of in plan.wholes]
                row = [(left + 1) * scale - 1 for left, scale in zip(row, scales, strict=True)]
                self._takes[card] = [_scaled(plan, request, has, scales) for request in plan.requests]
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
        takes = self._takes[card][request.index] if self._takes else request.takes
        for slot, amount in takes:  # noqa: SIM110 - a generator in all() takes three times as long
            if left[slot] < amount:
                return False
        return True

    def has_of(self, name: str, request: Request, card: Card) -> bool:
        """Return whether the card has enough of one resource for one card of the request, at its first moment."""
        wanted = request.moments[0] * len(self._plan.names) + self._plan.names.index(name)
        takes = self._takes[card][request.index] if self._takes else request.takes
        return all(self.left[card][slot] >= amount for slot, amount in takes if slot == wanted)

    def taken(self, card: Card, slot: int) -> int:
        """Return how much of a slot this pod has taken so far."""
        first = self._first[card]
        name = slot % len(first)
        taken = first[name] - self.left[card][slot]
        return taken // self._scales[card][name] if self._scales else taken

    def free(self, card: Card, slot: int) -> int:
        """Return how much of a slot of END is free on a card; negative if the card does not have the resource."""
        left = self.left[card][slot]
        return left // self._scales[card][slot] if self._scales else left

    def takes(self, request: Request, card: Card) -> dict[str, int]:
        if not self._takes:
            return dict(request.per_card)
        names = self._plan.names
        return {
            names[slot % len(names)]: amount // self._scales[card][slot % len(names)]
            for slot, amount in self._takes[card][request.index]
        }

    def state(self, card: Card) -> Hashable:
        """Return all that decides what fits on a card; cards with equal states are interchangeable."""
        tiles = tuple(frozenset(tiles) for tiles in self._open_tiles.get(card, ()))
        return tuple(self.left[card]), tiles, tuple(self._takes.get(card, ()))

    def tiles(self, request: Request, card: Card) -> Sequence[int]:
        """Return the tiles that are free at all moments of the request, ascending. Needs ``by_tile``."""
        return sorted(set.intersection(*(self._open_tiles[card][moment] for moment in request.moments)))

    def take(self, request: Request, pick: Pick) -> None:
        for card in pick.cards:
            left = self.left[card]
            for slot, amount in self._takes[card][request.index] if self._takes else request.takes:
                left[slot] -= amount
        for card, tile in zip(pick.cards, pick.tiles, strict=False):
            for moment in request.moments:
                self._open_tiles[card][moment].remove(tile)

    def give_back(self, request: Request, pick: Pick) -> None:
        for card in pick.cards:
            left = self.left[card]
            for slot, amount in self._takes[card][request.index] if self._takes else request.takes:
                left[slot] += amount
        for card, tile in zip(pick.cards, pick.tiles, strict=False):
            for moment in request.moments:
                self._open_tiles[card][moment].add(tile)
