"""The first answer: container after container, card after card, the first that fits, no second thoughts.

Where the original extender had an answer, this is it (contract E6.7).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from gas.cards import Card
from gas.placement.candidates import Candidates
from gas.placement.free_capacity import FreeCapacity, Pick
from gas.placement.linked import Links, greedy_pairs
from gas.placement.requests import Request

Picks = dict[int, tuple[Pick, ...]]
"""What each request gets, by its index."""


def greedy(
    requests: Iterable[Request],
    cards: Sequence[Card],
    candidates: Candidates,
    links: Links | None,
    room: FreeCapacity,
) -> Picks | None:
    """Picks for all the requests, taken from ``room``; or None, and the room is as it was.

    links  None for a pod whose cards need not be linked
    """
    given: Picks = {}
    taken: list[tuple[Request, Pick]] = []
    for request in requests:
        picks: list[Pick] = []
        wanted = request.count if links is None else request.count // 2
        for pick in _picks(request, candidates.of(request, cards), links, room):
            room.take(request, pick)
            taken.append((request, pick))
            picks.append(pick)
            if len(picks) == wanted:
                break
        else:
            for earlier, pick in reversed(taken):
                room.give_back(earlier, pick)
            return None
        given[request.index] = tuple(picks)
    return given


def _picks(request: Request, cards: Sequence[Card], links: Links | None, room: FreeCapacity) -> Iterator[Pick]:
    if links is not None:
        return greedy_pairs(request, cards, links, room)
    return (Pick((card,)) for card in cards if room.has(request, card))
