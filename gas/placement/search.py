"""The complete search: it finds a way to place the pod if there is one, and undoes every dead end exactly.

It backtracks over the requests and, for one request, over the sets of its cards. Four things keep it small:

- Interchangeable cards are tried once (`SymmetryClasses`).
- A state from which nothing was found is remembered.
- `CapacityBound` sees early that the free capacity cannot be enough.
- `StepBudget` ends the search. That does not mean that the pod does not fit, see `StepBudget.ran_out`.
"""

from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from gas.placement.candidates import Candidates, Links, are_linked_alike, pairs
from gas.placement.free_capacity import FreeCapacity, Pick, Picks
from gas.placement.inventory import Link
from gas.placement.need import Role
from gas.placement.plan import Request
from gas.values.cards import Card

Pool = frozenset[Card]  # cards of a pod's ended init containers that no sidecar or app container has got since
EMPTY: Pool = frozenset()


def follows_reuse(pool: Pool, cards: Iterable[Card]) -> bool:
    """Return whether kubelet can give exactly these cards to a container that starts with this pool.

    Kubelet serves every container from the pool first, without asking. A container that wants at least as many cards as
    the pool has gets the whole pool, and one that wants fewer gets some of it, of kubelet's choice. A choice that does
    not follow this rule would differ from what the containers get. Kubelet's own pool has device ids, of which a shared
    card has several, so this is only what to aim at, and a receipt corrects the ledger if kubelet gave something else.
    """
    given = frozenset(cards)
    return pool.issubset(given) or given.issubset(pool)


def pool_after(pool: Pool, role: Role, cards: Iterable[Card]) -> Pool:
    """Return the pool after a container of this role got its cards."""
    return pool | frozenset(cards) if role is Role.INIT else pool - frozenset(cards)


_BITS = 16  # the bits that count one kind of load; no pod has 65,536 containers with cards


class SymmetryClasses:
    """A number for each card; cards with equal numbers can be swapped in any result.

    The number combines what the card had free at first with how often this pod has put each kind of load on it. Loads
    are added, so their order does not matter. Requests that take the same at the same moments are one kind of load, so
    the number also says whether a card is in kubelet's reuse pool. A request that the search does not place itself is a
    kind of its own, because the search looks up its cards again later.
    """

    __slots__ = ("_load", "_loads", "_tiles")

    def __init__(self, cards: Sequence[Card], candidates: Candidates, fixed: Mapping[int, tuple[Pick, ...]]) -> None:
        plan, links = candidates.plan, candidates.links
        kinds: dict[Hashable, int] = {None: 0}  # the lowest bits are those of the class at first
        among = links and [link for link in links if link.one.card in cards and link.other.card in cards]
        indexes = {None, *(end.index for link in among or () for end in link)}
        self._tiles = {index: place for place, index in enumerate(indexes)}
        self._loads: list[int] = []  # by request, what it adds to the number of a card for the first of ``_tiles``
        for request in plan.requests:
            alone = request.index if request.index in fixed else None
            kind = alone, request.moments, request.per_card, request.ratios
            self._loads.append(1 << _BITS * kinds.setdefault(kind, len(kinds)) * len(indexes))
        self._load = dict(zip(cards, _initial_classes(cards, among, candidates.free), strict=True))
        for request in plan.requests:
            for pick in fixed.get(request.index, ()):
                self.take(request, pick)

    def of(self, pick: Pick) -> Hashable:
        """Return the class of a pick; picks of one class are interchangeable."""
        if not pick.tiles:
            return self._load[pick.cards[0]]
        return tuple(sorted((self._load[card], tile) for card, tile in zip(pick.cards, pick.tiles, strict=True)))

    def state(self) -> Hashable:
        """Return the state of all cards; it is equal for states that differ only by swapping interchangeable cards."""
        return tuple(sorted(self._load.values()))

    def take(self, request: Request, pick: Pick) -> None:
        for card, unit in self._units(request, pick):
            self._load[card] += unit

    def give_back(self, request: Request, pick: Pick) -> None:
        for card, unit in self._units(request, pick):
            self._load[card] -= unit

    def _units(self, request: Request, pick: Pick) -> Collection[tuple[Card, int]]:
        """Return what a pick adds to the number of each of its cards."""
        load = self._loads[request.index]
        return [(card, load << _BITS * self._tiles[tile]) for card, tile in zip_longest(pick.cards, pick.tiles)]


def _initial_classes(cards: Sequence[Card], links: Links | None, free: FreeCapacity) -> list[int]:
    """Return the class of each card before the pod takes anything.

    Cards of one class have the same free capacity and, if ``links`` is given, the same links.
    """
    by_card: dict[Card, list[Link]] = {}
    for link in links or ():
        for end in link:
            by_card.setdefault(end.card, []).append(link)
    by_state: dict[Hashable, list[tuple[Card, int]]] = {}
    numbers: list[int] = []
    for card in cards:
        alike = by_state.setdefault((free.state(card), len(by_card.get(card, ()))), [])
        number = next((seen for other, seen in alike if are_linked_alike(by_card, card, other)), None)
        if number is None:
            number = len(numbers)
            alike.append((card, number))
        numbers.append(number)
    return numbers


class StepBudget:
    """The steps left for one decision, shared out among its searches. Steps, not time, make results reproducible."""

    __slots__ = ("_left", "_until", "ran_out")

    def __init__(self, limit: int) -> None:
        self._left = limit

    def share(self, searches: int) -> None:
        """Begin the first of this many searches; steps that it leaves over go to the next ones."""
        self._until = self._left - self._left // searches
        self.ran_out = False  # whether this search was cut short

    def spend(self) -> bool:
        """Use one step. Returns False if this search has none left."""
        if self._left <= self._until:
            self.ran_out = True
            return False
        self._left -= 1
        return True


class CapacityBound:
    """A lower bound, slot by slot, of what the requests from each position of a sequence on need.

    The free amount of a card counts only if the smallest of these needs fits into it, and a card holds only whole
    needs. So remainders on many cards are recognized as useless before everything has been tried on them.
    """

    __slots__ = ("_needs",)

    def __init__(self, sequence: Sequence[Request], fixed: Iterable[int]) -> None:
        """Sum up the sequence without the requests whose indexes are in ``fixed``. A repeated request counts once."""
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
                        by_slot[slot] = (total + amount * request.count, min(smallest, amount), count + request.count)
            self._needs.append([(slot, *need) for slot, need in by_slot.items()])
        self._needs.reverse()

    def allows(self, at: int, cards: Iterable[Card], free: FreeCapacity) -> bool:
        """Return False only if the requests from this position on cannot all fit on the cards."""
        rows = [free.left[card] for card in cards]
        for slot, total, smallest, count in self._needs[at]:
            enough = [left for row in rows if (left := row[slot]) >= smallest]
            if sum(enough) < total or sum([left // smallest for left in enough]) < count:
                return False
        return True


def combinations(
    options: Sequence[Pick], classes: Sequence[Hashable], count: int, steps: StepBudget
) -> Iterator[tuple[Pick, ...]]:
    """Yield the sets of ``count`` options without a common card that could make a difference, earliest options first.

    classes  for each option, a value that is equal for interchangeable options. When the caller asks for the next set,
             nothing was found with the last one, so no interchangeable option is tried in its place
    steps    one is spent for each option put into a set; when they have run out, the sets end early
    """
    chosen: list[int] = []
    used: set[Card] = set()
    tried: list[set[Hashable]] = [set()]  # for each position in the set, the classes that are not tried there again
    while True:
        if len(chosen) < count:
            still_enough = range(len(options) - (count - len(chosen)) + 1)
            index = next(
                (
                    index
                    for index in still_enough
                    if classes[index] not in tried[-1] and used.isdisjoint(options[index].cards)
                ),
                None,
            )
            if index is not None:
                if not steps.spend():
                    return
                chosen.append(index)
                used.update(options[index].cards)
                tried.append(set(tried[-1]))
                continue
        else:
            yield tuple(options[index] for index in chosen)
        if not chosen:
            return
        tried.pop()
        last = chosen.pop()
        used.difference_update(options[last].cards)
        tried[-1].add(classes[last])


@dataclass(slots=True)
class _Level:
    """One request on the search's stack."""

    at: int  # its position in the sequence
    request: Request
    pool: Pool  # kubelet's reuse pool when its container starts
    state: Hashable  # of all cards before it
    sets: Iterator[tuple[Pick, ...]]  # the sets of picks still to try
    taken: tuple[Pick, ...] = ()  # the picks that are being tried


class Search:
    """One search over one set of cards, to be run once. A result stays taken; without one, nothing is taken."""

    def __init__(
        self,
        cards: Sequence[Card],  # that may be used, in the order of `candidates.usable_cards`
        *,
        candidates: Candidates,
        steps: StepBudget,
        # place the containers in the order in which kubelet starts them, and only as kubelet's reuse would
        # (`follows_reuse`); otherwise the order is that of ``Plan.requests``
        follow_reuse: bool,
        fixed: Mapping[int, tuple[Pick, ...]],  # the picks of requests that are placed and taken already
    ) -> None:
        plan = candidates.plan
        self._cards = cards
        self._candidates = candidates
        self._free = candidates.free
        self._steps = steps
        self._follow_reuse = follow_reuse
        self._sequence = [request for _, request in plan.in_start_order] if follow_reuse else plan.requests
        self._picks: Picks = dict(fixed)
        self._classes = SymmetryClasses(cards, candidates, fixed)
        self._failed: set[Hashable] = set()
        self._bound = CapacityBound(self._sequence, fixed)

    def run(self) -> Picks | None:
        """Return the first result, or None if there is none or the steps ran out."""
        stack: list[_Level] = []
        ahead = self._next_open(0, EMPTY)
        while True:
            if ahead is not None:
                at, pool = ahead
                if at == len(self._sequence):
                    return self._picks
                state = at, self._classes.state()
                if state not in self._failed and self._bound.allows(at, self._cards, self._free):
                    request = self._sequence[at]
                    stack.append(_Level(at, request, pool, state, self._sets(request, pool)))
            if not stack:
                return None
            ahead = self._try_next(stack)

    def _try_next(self, stack: list[_Level]) -> tuple[int, Pool] | None:
        """Replace the last level's picks by its next set. Returns the next open position, or None at a dead end."""
        level = stack[-1]
        request = level.request
        for pick in level.taken:
            self._free.give_back(request, pick)
            self._classes.give_back(request, pick)
        self._picks.pop(request.index, None)
        picks = next(level.sets, None)
        if picks is None:
            self._failed.add(level.state)
            stack.pop()
            return None
        for pick in picks:
            self._free.take(request, pick)
            self._classes.take(request, pick)
        level.taken = self._picks[request.index] = picks
        return self._next_open(level.at, level.pool)

    def _next_open(self, at: int, pool: Pool) -> tuple[int, Pool] | None:
        """Return the next position without picks and the pool there; None if the picks before it break the reuse."""
        while at < len(self._sequence) and (picks := self._picks.get(self._sequence[at].index)) is not None:
            if self._follow_reuse:
                cards = [card for pick in picks for card in pick.cards]
                if not follows_reuse(pool, cards):
                    return None
                pool = pool_after(pool, self._sequence[at].role, cards)
            at += 1
        return at, pool

    def _sets(self, request: Request, pool: Pool) -> Iterator[tuple[Pick, ...]]:
        """Return the sets of picks to try for a request, best first.

        Every set follows kubelet's reuse, except for linked cards, which `_next_open` checks.
        """
        order = self._candidates.of_sets(request, self._cards, self._picks)
        if (links := self._candidates.links) is not None:
            return self._combinations(pairs(request, order, links, self._free), request.count // 2)
        options = [Pick((card,)) for card in order if self._free.has(request, card)]
        if not pool:
            return self._combinations(options, request.count)
        reused = [pick for pick in options if pick.cards[0] in pool]
        if len(pool) > request.count:
            return self._combinations(reused, request.count)
        if len(reused) < len(pool):
            return iter(())
        others = [pick for pick in options if pick.cards[0] not in pool]
        return (
            tuple(pick for pick in options if pick in reused or pick in more)
            for more in self._combinations(others, request.count - len(reused))
        )

    def _combinations(self, options: list[Pick], count: int) -> Iterator[tuple[Pick, ...]]:
        if len(options) < count:
            return iter(())
        classes = [self._classes.of(pick) for pick in options]
        return combinations(options, classes, count, self._steps)
