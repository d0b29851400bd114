"""Find the pods that must leave a node so that a pod gets its cards there. Plain code over values.

A smallest set is chosen: the fewest violations of disruption budgets, then the fewest pods of the highest priority,
then of the next, and so on. Pods that are leaving already cost nothing.

Placement decides whether a pod fits, given the ledger's sums without the pods that would leave, so every rule of
placement holds here as well. Formulas are used only to skip sets that cannot be better.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from operator import attrgetter, sub
from typing import NamedTuple

from gas.ledger.eviction_cost import Cost, Costs, Evictable, total, violating
from gas.ledger.ledger import NodeSums
from gas.placement.candidates import card_groups, usable_cards
from gas.placement.choice import Choice
from gas.placement.inventory import NOTHING, UNUSED, Inventory
from gas.placement.need import PodNeed
from gas.placement.place import DEFAULT_STEP_LIMIT, place
from gas.placement.solve import Unsolved, solve
from gas.values.amounts import SortedAmounts
from gas.values.cards import Card

DEFAULT_VICTIM_STEPS = 2_000  # placements tried for one node before the best set so far is taken: a tenth of a second
FIRST_STEPS = 300  # more searches for cards that are allowed, besides four for each pod, while no set is found


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateNode:
    """The node as the pod finds it."""

    inventory: Inventory
    sums: NodeSums  # what is booked on its cards; changed by the search, and the same again after it
    free: Mapping[str, int]  # by resource, what is free besides the cards


@dataclass(frozen=True, slots=True, kw_only=True)
class Victims:
    """The pods that leave, most important first, and the cards that the pod gets then."""

    pods: tuple[Evictable, ...]
    choice: Choice
    violations: int = 0  # how many of them violate a disruption budget


def smallest_victims(
    need: PodNeed,
    requests: SortedAmounts,  # of the pod for resources of the node, apart from its cards
    node: CandidateNode,
    # those that may leave, most important first; of equal sets the less important pods leave
    pods: Sequence[Evictable],
    allowed: Sequence[int] = (),  # how many disruptions each budget allows
    *,
    step_limit: int = DEFAULT_STEP_LIMIT,  # of one search for cards
    victim_steps: int = DEFAULT_VICTIM_STEPS,  # searches for cards after which the search for victims is cut short
    # returns whether it must be cut short now; without a set found so far the result is None
    is_late: Callable[[], bool] = lambda: False,
) -> Victims | None:
    """Return the smallest set of pods without which the pod fits on the node; None if it does not fit without all.

    If the result has no pods, the pod fits as it is. When the search is cut short, the result is the best set found so
    far: with any pod of it back on the node, the pod would not fit.
    """
    costs = Costs(pods, allowed)
    limits = _Limits(step_limit, victim_steps, is_late)
    search = _Search(need, node, pods, costs, limits, requests=requests)
    leave = [pod for pod in pods if pod.must_go]
    for pod in leave:
        search.remove(pod)
    if search.fits():
        search.note()
    elif search.has_ties:
        search.on(usable_cards(need, node.inventory, UNUSED))
    elif search.fits_without_all():
        _CardSets(search, node, costs, limits, start=costs.of(leave)).run()
        if search.best is None and not is_late():
            search.without(pods)
    for pod in leave:
        search.put_back(pod)
    choice = search.choice()
    if search.best is None or choice is None:
        return None
    victims = costs.in_order(search.best[1])
    return Victims(pods=tuple(victims), choice=choice, violations=violating((pod.budgets for pod in victims), allowed))


@dataclass(frozen=True, slots=True)
class _Limits:
    step_limit: int
    victim_steps: int
    is_late: Callable[[], bool]


class _Bound:
    """A lower bound of the cost of clearing some cards for a pod that gets all of them, going by amounts alone.

    On each card, the most expensive pods leave only as far as all others cannot make room, the largest first; then the
    next cheaper ones, and so on. It is 0 if no bound is known: for pods of several containers, and more cards than
    wanted.

    pods  those that may leave, in the order in which they are decided
    """

    def __init__(
        self, need: PodNeed, node: CandidateNode, pods: Sequence[Evictable], costs: Costs, *, cards: Collection[Card]
    ) -> None:
        wanting = [container for container in need.containers if container.count]
        is_known = len(wanting) == 1 and wanting[0].count == len(cards)
        self._wanted = wanting[0].per_card if is_known else ()
        self._cards = cards if is_known else ()
        self._node = node
        self._pods = pods
        self._costs = costs
        self._after: dict[int, list[tuple[Card, list[_Class]]]] = {}

    def after(self, at: int) -> Cost:
        """Return the least cost, in units, of the pods from a position on; none of them is in the sums."""
        if at not in self._after:
            self._after[at] = [(card, self._classes(card, self._pods[at:])) for card in self._cards]
        least = self._costs.least(())
        for card, classes in self._after[at]:
            booked, capacity = self._node.sums.amounts.get(card, NOTHING), self._node.inventory.capacity[card]
            short = [wanted + booked.get(name, 0) - capacity.get(name, 0) for name, wanted in self._wanted]
            for each in classes:
                short = [lacking + freed[-1] for lacking, freed in zip(short, each.freed, strict=True)]
            for each in classes:
                leaving = max([0, *map(bisect_left, each.freed, map(sub, short, each.of_others))])
                leaving = min(leaving, len(each.costs) - 1)
                if leaving:
                    least = total((least, each.costs[leaving]))
                short = [lacking - freed[leaving] for lacking, freed in zip(short, each.freed, strict=True)]
        return least

    def _classes(self, card: Card, pods: Sequence[Evictable]) -> list[_Class]:
        """Return the classes of pods on a card, those that cost most first."""
        of_card = [pod for pod in pods if card in pod.footprint.amounts]
        keys = {pod.uid: [bool(part) for part in self._costs.least([pod])].index(True) for pod in of_card}
        of_others = [0] * len(self._wanted)
        classes: list[_Class] = []
        for key in sorted(set(keys.values()), reverse=True):
            alike = [pod for pod in of_card if keys[pod.uid] == key]
            held = [dict(pod.footprint.amounts[card]) for pod in alike]
            amounts = [sorted((each.get(name, 0) for each in held), reverse=True) for name, _ in self._wanted]
            costs = sorted(self._costs.least([pod]) for pod in alike)
            classes.append(
                _Class(
                    freed=[list(accumulate(of_name, initial=0)) for of_name in amounts],
                    of_others=tuple(of_others),
                    costs=list(accumulate(costs, lambda *two: total(two), initial=self._costs.least(()))),
                )
            )
            of_others = [before + sum(of_name) for before, of_name in zip(of_others, amounts, strict=True)]
        return classes[::-1]


class _Class(NamedTuple):
    """Pods on a card that cost the same, but for details."""

    freed: list[list[int]]  # for each resource, what none, one, two … of them free, the largest first
    of_others: tuple[int, ...]  # for each resource, what the pods of all cheaper classes hold
    costs: list[Cost]  # what none, one, two … of them cost, the cheapest first


class _Search:
    """A depth-first search that lets the most expensive pods stay if possible, and skips what cannot get cheaper.

    At every step the pods before a position are decided: those that stay are in the sums, the others are not. Those
    from the position on are not in the sums either, so if the pod does not fit now, it does not fit below.

    best      the cheapest set of pods found so far and its cost
    has_ties  whether pods that stay may help the pod, because it has an affinity or a named card
    is_part   whether only the least costs are compared, those of one card in units (`Costs.least`)
    """

    def __init__(
        self,
        need: PodNeed,
        node: CandidateNode,
        pods: Sequence[Evictable],
        costs: Costs,
        limits: _Limits,
        *,
        requests: SortedAmounts = (),
        is_part: bool = False,
    ) -> None:
        self.need = need
        self.pods = pods
        self.best: tuple[Cost, tuple[Evictable, ...]] | None = None
        self.steps = 0  # how often it was tried whether the pod fits
        self.is_cut = False  # whether the search was cut short
        self._easier_need = _without_ties(need)
        self.has_ties = self._easier_need != need
        self._node = node
        self._inventory = node.inventory
        self._sums = node.sums
        self._free = dict(node.free)
        self._requests = [(name, amount) for name, amount in requests if name in node.free]
        self._costs = costs
        self._is_part = is_part
        self._limits = limits
        self._optional = sorted((pod for pod in pods if not pod.must_go), key=costs.expense, reverse=True)
        self._out: list[Evictable] = []
        self._found_here = False

    def on(self, cards: Collection[Card]) -> None:
        """Search for sets of pods without which the pod fits on some of these cards."""
        inventory = _only(self._inventory, cards)
        self._found_here = len(cards) > 1
        takes_all = self.has_ties or self._is_short()  # pods on other cards may be in the way, too
        pods = [pod for pod in self._optional if takes_all or not pod.footprint.amounts.keys().isdisjoint(cards)]
        self._bound = _Bound(self.need, self._node, pods, self._costs, cards=cards)
        for pod in pods:
            self._take(pod)
        self._decide(inventory, pods, 0, has_left=False)
        for pod in pods:
            self._put(pod)

    def without(self, pods: Collection[Evictable]) -> None:
        """Note these pods if the pod fits without them, less those that can stay."""
        before = len(self._out)
        uids = {pod.uid for pod in pods}
        gone = [pod for pod in self._optional if pod.uid in uids]
        for pod in gone:
            self._take(pod)
        fits = self.fits()
        for pod in gone:
            self._put(pod)
            if fits and not self.fits():
                self.remove(pod)
        if fits:
            self.note()
        for pod in self._out[before:]:
            self.put_back(pod)

    def _decide(self, inventory: Inventory, pods: Sequence[Evictable], at: int, *, has_left: bool) -> None:
        """Keep or remove the pods from a position on. ``has_left``: the pod before it was removed."""
        more = self._bound.after(at)
        if self.is_exhausted() or not self._may_be_better(more):
            return
        if not self._fits(self._easier_need, inventory):
            return
        if has_left and not any(more) and self._fits_with(pods[at:]):
            self.note()
            return
        if at == len(pods):
            return
        pod = pods[at]
        if not any(_but_its_uid(pod) == _but_its_uid(gone) for gone in self._out):  # the less important leave first
            self._put(pod)
            self._decide(inventory, pods, at + 1, has_left=False)
            self._take(pod)
        self._out.append(pod)
        if self._may_be_better():
            self._decide(inventory, pods, at + 1, has_left=True)
        self._out.pop()

    def _may_be_better(self, more: Cost = ()) -> bool:
        """Return whether the best set may be one that contains the pods that are out.

        A pod of one card looks on each card at one set of pods that costs as much as the best: the best of equal ones
        is that of the less important pods. ``more`` is what other pods will cost at least, in units.
        """
        if self.best is None:
            return True
        cost, best = self._cost(self._out), self.best[0]
        if more and not self._is_part:
            cost, best = self._costs.in_units(cost), self._costs.in_units(best)
        if more:
            cost = total((cost, more))
        return cost < best or (cost == best and not self._found_here)

    def _cost(self, pods: Collection[Evictable]) -> Cost:
        return self._costs.least(pods) if self._is_part else self._costs.of(pods)

    def is_exhausted(self) -> bool:
        """Return whether to stop; without any set yet the search goes on, since the first one takes few steps."""
        patience = 0 if self.best is not None else FIRST_STEPS + 4 * len(self.pods)
        if self.steps >= self._limits.victim_steps + patience or self._limits.is_late():
            self.is_cut = True
        return self.is_cut

    def _fits_with(self, kept: Sequence[Evictable]) -> bool:
        """Return whether the pod fits together with these pods on any cards of the node, as a bind will find it."""
        for pod in kept:
            self._put(pod)
        fits = self.fits()
        for pod in kept:
            self._take(pod)
        return fits

    def fits(self) -> bool:
        return self._fits(self.need, self._inventory)

    def _fits(self, need: PodNeed, inventory: Inventory) -> bool:
        self.steps += 1
        if self._is_short():
            return False
        return not need.wants_cards or not isinstance(
            solve(need, inventory, self._sums.usage(), self._limits.step_limit), Unsolved
        )

    def fits_without_all(self) -> bool:
        """Return whether the pod fits if every pod leaves that may leave."""
        for pod in self._optional:
            self._take(pod)
        fits = self.fits()
        for pod in self._optional:
            self._put(pod)
        return fits

    def _is_short(self) -> bool:
        return any(self._free[name] < amount for name, amount in self._requests)

    def note(self) -> None:
        """Remember what is out as the best set, if it is cheaper than the best so far."""
        self._found_here = True
        found = self._cost(self._out), self._costs.importance(self._out)
        if self.best is None or found < (self.best[0], self._costs.importance(self.best[1])):
            self.best = found[0], tuple(self._out)

    def choice(self) -> Choice | None:
        """Return the cards that the pod gets without the best set of pods."""
        if self.best is None:
            return None
        for pod in self.best[1]:
            self._take(pod)
        choice = place(self.need, self._inventory, self._sums.usage(), step_limit=self._limits.step_limit)
        for pod in self.best[1]:
            self._put(pod)
        return choice if isinstance(choice, Choice) else None

    def remove(self, pod: Evictable) -> None:
        self._take(pod)
        self._out.append(pod)

    def put_back(self, pod: Evictable) -> None:
        """Undo `remove`."""
        self._out.remove(pod)
        self._put(pod)

    def _put(self, pod: Evictable) -> None:
        self._sums.put(pod.uid, pod.footprint)
        for name, amount in pod.requests:
            if name in self._free:
                self._free[name] -= amount

    def _take(self, pod: Evictable) -> None:
        self._sums.take(pod.uid, pod.footprint)
        for name, amount in pod.requests:
            if name in self._free:
                self._free[name] += amount


class _CardSets:
    """The sets of cards that the pod might get, searched one after the other, those with the least bound first.

    First each card is searched alone. The least cost of clearing it is the card's bound, in which a pod that holds
    several cards counts in parts. So bounds can be added: clearing all cards of a set never costs less than these
    together. Sets that cannot be cheaper than the best pods so far are left out: mostly all but one, unless pods hold
    several cards, links limit the sets, or pods share a disruption budget.

    start  the cost of the pods that leave in any case
    """

    def __init__(self, search: _Search, node: CandidateNode, costs: Costs, limits: _Limits, *, start: Cost) -> None:
        self._search = search
        self._node = node
        self._costs = costs
        self._limits = limits
        self._start = costs.in_units(start)
        self._need = search.need
        self._size = sum(container.count for container in self._need.containers)
        self._largest = max(self._need.containers, key=lambda container: container.count)
        self._bounded = self._largest.count if self._size > 1 else 0
        self._alone: dict[Card, tuple[Cost, tuple[Evictable, ...]]] = {}

    def run(self) -> None:
        """Search the sets until nothing can be cheaper, or the search is cut short."""
        usable = usable_cards(self._need, self._node.inventory, UNUSED)
        if self._bounded:
            self._search_each_alone(usable)
        groups = card_groups(self._need, self._node.inventory, usable, UNUSED)
        for group in sorted(groups, key=self._expense):
            for cards in self._sets(group):
                if self._search.is_exhausted():
                    return
                if self._bounded:
                    self._search.without({pod for card in cards if card in self._alone for pod in self._alone[card][1]})
                if self._may_be_better(cards):
                    self._search.on(cards)

    def _search_each_alone(self, usable: Sequence[Card]) -> None:
        """Find the bound of each card, for the container that wants the most cards."""
        one = (replace(self._largest, count=1),)
        need = replace(
            self._need, containers=one, same_card=frozenset(), apart=frozenset(), linked=False, partition=None
        )
        for at, card in enumerate(usable):
            steps = max(self._limits.victim_steps // 2 - self._search.steps, 0) // (len(usable) - at)
            alone = _Search(
                need,
                replace(self._node, inventory=_only(self._node.inventory, [card])),
                [pod for pod in self._search.pods if card in pod.footprint.amounts and not pod.must_go],
                self._costs,
                replace(self._limits, victim_steps=steps),
                is_part=True,
            )
            if alone.fits():
                alone.note()
            else:
                alone.on([card])
            self._search.steps += alone.steps
            if alone.best is not None:
                bound, pods = alone.best
                self._alone[card] = self._costs.least(()) if alone.is_cut else bound, pods

    def _sets(self, group: Sequence[Card]) -> Iterator[tuple[Card, ...]]:
        """Return the sets of cards of a group that may be better than the best pods so far."""
        size = min(self._size, len(group))
        cards = sorted(group, key=self._bound_first if self._bounded else lambda card: self._expense([card]))

        def extended(chosen: tuple[Card, ...], at: int) -> Iterator[tuple[Card, ...]]:
            if len(chosen) == size:
                yield chosen
                return
            for first in range(at, len(cards) - size + len(chosen) + 1):
                if not self._may_be_better((*chosen, *cards[first : first + size - len(chosen)])):
                    return  # nor may those that follow, whose bounds are not lower
                yield from extended((*chosen, cards[first]), first + 1)

        return extended((), 0)

    def _bound_first(self, card: Card) -> tuple[object, ...]:
        if card not in self._alone:
            return (True,)
        bound, pods = self._alone[card]
        return False, bound, self._costs.importance(pods)

    def _expense(self, cards: Sequence[Card]) -> tuple[object, ...]:
        """Return the cost of removing every pod of these cards; of equal ones the important pods cost more."""
        pods = [pod for pod in self._search.pods if not pod.footprint.amounts.keys().isdisjoint(cards)]
        return self._costs.of(pods), self._costs.importance(pods)

    def _may_be_better(self, cards: Sequence[Card]) -> bool:
        """Return whether clearing these cards may cost less than the best pods so far, going by the bounds."""
        serving = [self._alone[card][0] for card in cards[: self._bounded] if card in self._alone]
        if len(serving) < self._bounded:
            return False
        if self._search.best is None or not serving:
            return True
        return total((self._start, *serving)) < self._costs.in_units(self._search.best[0])


def _only(inventory: Inventory, cards: Collection[Card]) -> Inventory:
    return replace(inventory, disabled=inventory.disabled | (inventory.capacity.keys() - cards))


# returns all of a pod that matters but its age: it makes no difference which of two equal ones leaves
_but_its_uid = attrgetter("priority", "leaving", "budgets", "requests", "footprint", "must_go")


def _without_ties(need: PodNeed) -> PodNeed:
    """Return the need without the rules that other pods help to meet: the fewer pods are there, the better it fits."""
    return replace(need, named="", company=replace(need.company, affinity=""))
