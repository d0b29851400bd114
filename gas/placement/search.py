"""The complete search: if the pod fits at all, it finds how; a dead end leaves no trace.

Backtracking over the containers and, within one, over the sets of its cards. Three things keep it small:
cards that nothing tells apart are interchangeable; a state from which nothing was found is remembered; and a
step limit ends it, which must not be taken for "does not fit" (``Steps.ran_out``).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from gas.cards import Card
from gas.placement.bound import CapacityBound
from gas.placement.candidates import Candidates
from gas.placement.combinations import combinations
from gas.placement.free_capacity import FreeCapacity, Pick
from gas.placement.greedy import Picks
from gas.placement.kubelet_reuse import EMPTY, Pool, obeys, pool_after
from gas.placement.linked import Links, pairs
from gas.placement.requests import Plan, Request
from gas.placement.steps import Steps
from gas.placement.symmetry import SymmetryClasses


@dataclass(slots=True)
class _Level:
    """One request that is being served.

    at     its place in the sequence
    pool   what kubelet hands on to it
    state  of all cards before it
    sets   the sets of picks still to try
    taken  the picks in hand
    """

    at: int
    request: Request
    pool: Pool
    state: Hashable
    sets: Iterator[tuple[Pick, ...]]
    taken: tuple[Pick, ...] = ()


class Search:
    """One search over one set of cards, to be run once.

    cards       those that may be used, in natural or preferred order
    links       None for a pod whose cards need not be linked
    room        what is found stays taken there; when nothing is found it is as it was
    obey_reuse  go container by container as kubelet starts them and give only what it would hand on; else in
                the order of the greedy answer
    fixed       what other requests got and have taken from the room already
    """

    def __init__(
        self,
        plan: Plan,
        cards: Sequence[Card],
        *,
        links: Links | None,
        candidates: Candidates,
        room: FreeCapacity,
        steps: Steps,
        obey_reuse: bool,
        fixed: Mapping[int, tuple[Pick, ...]],
    ) -> None:
        self._cards = cards
        self._candidates = candidates
        self._links = links
        self._room = room
        self._steps = steps
        self._obey_reuse = obey_reuse
        self._sequence = [request for _, request in plan.in_start_order] if obey_reuse else plan.requests
        self._given: Picks = dict(fixed)
        self._likeness = SymmetryClasses(plan, cards, links, room, fixed)
        self._failed: set[Hashable] = set()
        self._bound = CapacityBound(self._sequence, fixed)

    def run(self) -> Picks | None:
        """The first answer, or None."""
        stack: list[_Level] = []
        ahead = self._next_open(0, EMPTY)
        while True:
            if ahead is not None:
                at, pool = ahead
                if at == len(self._sequence):
                    return self._given
                state = at, self._likeness.state(pool)
                if state not in self._failed and self._bound.holds(at, self._cards, self._room):
                    request = self._sequence[at]
                    stack.append(_Level(at, request, pool, state, self._sets(request, pool)))
            if not stack:
                return None
            ahead = self._try_next(stack)

    def _try_next(self, stack: list[_Level]) -> tuple[int, Pool] | None:
        """Put the last level's next set in place of the one in hand; None when that leads nowhere."""
        level = stack[-1]
        request = level.request
        for pick in level.taken:
            self._room.give_back(request, pick)
            self._likeness.give_back(request, pick)
        self._given.pop(request.index, None)
        picks = next(level.sets, None)
        if picks is None:
            self._failed.add(level.state)
            stack.pop()
            return None
        for pick in picks:
            self._room.take(request, pick)
            self._likeness.take(request, pick)
        level.taken = self._given[request.index] = picks
        return self._next_open(level.at, level.pool)

    def _next_open(self, at: int, pool: Pool) -> tuple[int, Pool] | None:
        """The next place with nothing given yet, and the pool there; None when what was given does not
        obey."""
        while at < len(self._sequence) and (picks := self._given.get(self._sequence[at].index)) is not None:
            if self._obey_reuse:
                cards = [card for pick in picks for card in pick.cards]
                if not obeys(pool, cards):
                    return None
                pool = pool_after(pool, self._sequence[at].role, cards)
            at += 1
        return at, pool

    def _sets(self, request: Request, pool: Pool) -> Iterator[tuple[Pick, ...]]:
        """What the request could get, best first; every set obeys unless cards are linked, which is seen
        later."""
        order = self._candidates.of(request, self._cards)
        if self._links is not None:
            return self._combinations(pairs(request, order, self._links, self._room), request.count // 2, pool)
        options = [Pick((card,)) for card in order if self._room.has(request, card)]
        if not pool:
            return self._combinations(options, request.count, pool)
        handed_on = [pick for pick in options if pick.cards[0] in pool]
        if len(pool) > request.count:
            return self._combinations(handed_on, request.count, pool)
        if len(handed_on) < len(pool):
            return iter(())
        others = [pick for pick in options if pick.cards[0] not in pool]
        return (
            tuple(pick for pick in options if pick in handed_on or pick in more)
            for more in self._combinations(others, request.count - len(handed_on), pool)
        )

    def _combinations(self, options: list[Pick], count: int, pool: Pool) -> Iterator[tuple[Pick, ...]]:
        if len(options) < count:
            return iter(())
        alike = [self._likeness.of(pick, pool) for pick in options]
        return combinations(options, alike, count, self._steps)
