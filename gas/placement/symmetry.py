"""Which cards nothing tells apart, so that trying one of them is trying all."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence

from gas.cards import Card
from gas.placement.free_capacity import FreeCapacity, Pick
from gas.placement.kubelet_reuse import Pool
from gas.placement.linked import Links, like_links, links_among
from gas.placement.requests import Plan, Request

_BITS = 16
"""For one kind of load; no pod has 65,536 containers with cards."""


class SymmetryClasses:
    """A number for each card: what it had at first, and how often this pod has put which kind of load on it.

    Cards with equal numbers may change places in any answer. Loads are added up, so it does not matter in
    which order they came. What the search does not place itself, and the group that shares a card, is looked
    at again later by name, so each of these is a kind of its own.
    """

    __slots__ = ("_kinds", "_load", "_tiles")

    def __init__(
        self,
        plan: Plan,
        cards: Sequence[Card],
        links: Links | None,
        room: FreeCapacity,
        fixed: Mapping[int, tuple[Pick, ...]],
    ) -> None:
        kinds: dict[Hashable, int] = {}
        self._kinds: list[int] = []
        for request in plan.requests:
            alone = request.index in fixed or len(request.positions) > 1
            kind = (request.index, request.takes) if alone else request.takes
            self._kinds.append(kinds.setdefault(kind, len(kinds)))
        among = None if links is None else links_among(links, cards)
        indexes = sorted({end.index for link in among or () for end in link})
        self._tiles = {index: place for place, index in enumerate(indexes)}
        self._load = dict(zip(cards, _classes(cards, among, room), strict=True))
        for request in plan.requests:
            for pick in fixed.get(request.index, ()):
                self.take(request, pick)

    def of(self, pick: Pick, pool: Pool) -> Hashable:
        """Equal for picks that are interchangeable while kubelet's pool is so."""
        if not pick.tiles:
            (card,) = pick.cards
            return self._load[card], card in pool
        ends = ((self._load[card], card in pool, tile) for card, tile in zip(pick.cards, pick.tiles, strict=True))
        return tuple(sorted(ends))

    def state(self, pool: Pool) -> Hashable:
        """Equal for states of all cards that differ only in the names of cards that are alike."""
        if not pool:
            return tuple(sorted(self._load.values()))
        return tuple(sorted((load, card in pool) for card, load in self._load.items()))

    def take(self, request: Request, pick: Pick) -> None:
        for card, unit in self._units(request, pick):
            self._load[card] += unit

    def give_back(self, request: Request, pick: Pick) -> None:
        for card, unit in self._units(request, pick):
            self._load[card] -= unit

    def _units(self, request: Request, pick: Pick) -> Collection[tuple[Card, int]]:
        kind = self._kinds[request.index]
        if not pick.tiles:
            return [(card, 1 << (_BITS * (1 + kind))) for card in pick.cards]
        return [
            (card, 1 << (_BITS * (1 + kind * len(self._tiles) + self._tiles[tile])))
            for card, tile in zip(pick.cards, pick.tiles, strict=True)
        ]


def _classes(cards: Sequence[Card], links: Links | None, room: FreeCapacity) -> list[int]:
    """For each card the number of its class: alike in what they have free and, if it matters, in their
    links."""
    classes: dict[Hashable, list[tuple[Card, int]]] = {}
    numbers: list[int] = []
    for card in cards:
        alike = classes.setdefault(room.state(card), [])
        number = next((seen for other, seen in alike if links is None or like_links(links, card, other)), None)
        if number is None:
            number = len(numbers)
            alike.append((card, number))
        numbers.append(number)
    return numbers
