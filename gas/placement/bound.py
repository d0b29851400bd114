"""A look ahead: whether what is left of the cards could still be enough for the requests to come."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gas.cards import Card
from gas.placement.free_capacity import FreeCapacity
from gas.placement.requests import Request


class CapacityBound:
    """By place in a sequence of requests: what those from there on need at least, slot by slot.

    What is left of a card counts only if the smallest of these needs still fits into it, and a card holds
    only whole needs: so scraps on many cards are seen before everything has been tried on them.
    """

    __slots__ = ("_needs",)

    def __init__(self, sequence: Sequence[Request], fixed: Iterable[int]) -> None:
        """``fixed``: indexes of requests that are placed already. A request that comes again counts once."""
        first = {request.index: at for at, request in reversed(list(enumerate(sequence)))}
        placed = set(fixed)
        by_slot: dict[int, tuple[int, int, int]] = {}
        self._needs: list[list[tuple[int, int, int, int]]] = [[]]
        for at in range(len(sequence) - 1, -1, -1):
            request = sequence[at]
            if request.index not in placed and first[request.index] == at:
                for slot, amount in request.takes:
                    total, smallest, count = by_slot.get(slot, (0, amount, 0))
                    if amount:
                        by_slot[slot] = (
                            total + amount * request.count,
                            min(smallest, amount),
                            count + request.count,
                        )
            self._needs.append([(slot, *need) for slot, need in by_slot.items()])
        self._needs.reverse()

    def holds(self, at: int, cards: Iterable[Card], room: FreeCapacity) -> bool:
        """False only if the requests from this place on cannot all fit on the cards."""
        rows = [room.left[card] for card in cards]
        for slot, total, smallest, count in self._needs[at]:
            enough = [left for row in rows if (left := row[slot]) >= smallest]
            if sum(enough) < total or sum([left // smallest for left in enough]) < count:
                return False
        return True
