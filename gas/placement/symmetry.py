"""Groups of interchangeable cards, so that the search tries one card of each group."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence

from gas.placement.free_capacity import FreeCapacity, Pick
from gas.placement.kubelet_reuse import Pool
from gas.placement.linked import Links, are_linked_alike
from gas.placement.plan import Plan, Request
from gas.values.cards import Card

_BITS = 16
"""The bits that count one kind of load; no pod has 65,536 containers with cards."""


class SymmetryClasses:
    """A number for each card; cards with equal numbers can be swapped in any result.

    The number combines what the card had free at first with how often this pod has put each kind of load on it. Loads
    are added, so their order does not matter. Requests with the same takes are one kind of load. A request that the
    search does not place itself, and one whose containers share a card, is a kind of its own, because the search looks
    up its cards again later.
    """

    __slots__ = ("_kinds", "_load", "_tiles")

    def __init__(
        self,
        plan: Plan,
        cards: Sequence[Card],
        links: Links | None,
        free: FreeCapacity,
        fixed: Mapping[int, tuple[Pick, ...]],
    ) -> None:
        kinds: dict[Hashable, int] = {}
        self._kinds: list[int] = []
        for request in plan.requests:
            alone = request.index in fixed or len(request.positions) > 1
            load = request.takes, request.parts
            kind = (request.index, load) if alone else load
            self._kinds.append(kinds.setdefault(kind, len(kinds)))
        among = links and [link for link in links if link.one.card in cards and link.other.card in cards]
        indexes = sorted({end.index for link in among or () for end in link})
        self._tiles = {index: place for place, index in enumerate(indexes)}
        self._load = dict(zip(cards, _initial_classes(cards, among, free), strict=True))
        for request in plan.requests:
            for pick in fixed.get(request.index, ()):
                self.take(request, pick)

    def of(self, pick: Pick, pool: Pool) -> Hashable:
        """Return the class of a pick; picks of one class are interchangeable for a container with this reuse pool."""
        if not pick.tiles:
            (card,) = pick.cards
            return self._load[card], card in pool
        ends = ((self._load[card], card in pool, tile) for card, tile in zip(pick.cards, pick.tiles, strict=True))
        return tuple(sorted(ends))

    def state(self, pool: Pool) -> Hashable:
        """Return the state of all cards; it is equal for states that differ only by swapping interchangeable cards."""
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
        """Return what a pick adds to the number of each of its cards."""
        kind = self._kinds[request.index]
        if not pick.tiles:
            return [(card, 1 << (_BITS * (1 + kind))) for card in pick.cards]
        return [
            (card, 1 << (_BITS * (1 + kind * len(self._tiles) + self._tiles[tile])))
            for card, tile in zip(pick.cards, pick.tiles, strict=True)
        ]


def _initial_classes(cards: Sequence[Card], links: Links | None, free: FreeCapacity) -> list[int]:
    """Return the class of each card before the pod takes anything.

    Cards of one class have the same free capacity and, if ``links`` is given, the same links.
    """
    by_state: dict[Hashable, list[tuple[Card, int]]] = {}
    numbers: list[int] = []
    for card in cards:
        alike = by_state.setdefault(free.state(card), [])
        number = next((seen for other, seen in alike if links is None or are_linked_alike(links, card, other)), None)
        if number is None:
            number = len(numbers)
            alike.append((card, number))
        numbers.append(number)
    return numbers
