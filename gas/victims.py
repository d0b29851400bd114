"""Which pods must leave a node so that a pod gets its cards there. Plain code over values.

A smallest set is chosen: the fewest violations of disruption budgets, then the fewest pods of the highest priority,
then of the next, and so on. Pods that are leaving already cost nothing.

Whether a pod fits is not asked of a formula but of `place`, with the ledger's sums without the pods that would leave:
so every rule of placement holds here as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from math import comb

from gas.amounts import SortedAmounts
from gas.cards import Card
from gas.ledger import NodeSums
from gas.placement.candidates import usable_cards
from gas.placement.choice import Choice, Footprint
from gas.placement.inventory import UNUSED, Inventory
from gas.placement.need import PodNeed
from gas.placement.place import DEFAULT_STEP_LIMIT, place
from gas.placement.refusal import Refusal

DEFAULT_VICTIM_STEPS = 2_000
"""Placements that are tried for one node before the best set so far is taken: about a tenth of a second."""

MOST_CARD_SETS = 300
"""Sets of cards that are looked at one by one; a node that offers more is searched as a whole."""

Cost = tuple[int, tuple[int, ...], int]
"""The violations of disruption budgets, the pods of each priority from the highest down, and all pods together. Pods
that are leaving already count only in the last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evictable:
    """A pod that may have to leave its node.

    footprint  what it holds of each card
    requests   what it requests of the node beside its cards
    budgets    positions of the disruption budgets that count it
    leaving    whether it is being deleted already
    must_go    whether it leaves in any case, for a reason that is not known here
    """

    uid: str
    priority: int
    footprint: Footprint = field(default_factory=Footprint)
    requests: SortedAmounts = ()
    budgets: tuple[int, ...] = ()
    leaving: bool = False
    must_go: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """The node as the pod finds it.

    inventory  its cards
    sums       what is booked on them; changed by the search, and the same again after it
    free       by resource, what is free beside the cards
    """

    inventory: Inventory
    sums: NodeSums
    free: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Victims:
    """The pods that leave, most important first, and the cards that the pod gets then.

    violations  how many of them violate a disruption budget
    """

    pods: tuple[Evictable, ...]
    choice: Choice
    violations: int = 0


def smallest_victims(
    need: PodNeed,
    requests: SortedAmounts,
    node: Node,
    pods: Sequence[Evictable],
    allowed: Sequence[int] = (),
    *,
    step_limit: int = DEFAULT_STEP_LIMIT,
    victim_steps: int = DEFAULT_VICTIM_STEPS,
    is_late: Callable[[], bool] = lambda: False,
) -> Victims | None:
    """Return the smallest set of pods without which the pod fits on the node; None if it does not fit without all.

    If the result has no pods, the pod fits as it is. When the search is cut short, the result is the best set found so
    far: with any pod of it back on the node, the pod would not fit.

    requests      what the pod requests of the node beside its cards
    pods          those that may leave, most important first; of equal sets the less important pods leave
    allowed       how many disruptions each budget allows
    step_limit    of one search for cards
    victim_steps  searches for cards after which the search for victims is cut short
    is_late       returns whether it must be cut short now; without a set found so far the result is None
    """
    search = _Search(
        need, requests, node, pods, allowed, step_limit=step_limit, victim_steps=victim_steps, is_late=is_late
    )
    return search.run()


def violating(budgets_of_pods: Iterable[tuple[int, ...]], allowed: Sequence[int]) -> int:
    """Count the pods whose eviction violates a disruption budget, if they are evicted in this order.

    Source: ``filterPodsWithPDBViolation`` of kube-scheduler.
    """
    left = list(allowed)
    violations = 0
    for budgets in budgets_of_pods:
        for budget in budgets:
            left[budget] -= 1
        violations += any(left[budget] < 0 for budget in budgets)
    return violations


class _Search:
    """A depth-first search that keeps the most expensive pods if it can, and never goes where it cannot get cheaper.

    At every step the pods before a position are decided: kept ones are in the sums, the others are not. Those from the
    position on are not in the sums either, so if the pod does not fit now, it does not fit below.
    """

    def __init__(
        self,
        need: PodNeed,
        requests: SortedAmounts,
        node: Node,
        pods: Sequence[Evictable],
        allowed: Sequence[int],
        *,
        step_limit: int,
        victim_steps: int,
        is_late: Callable[[], bool],
    ) -> None:
        self._need = need
        self._easier_need = _without_ties(need)
        self._has_ties = self._easier_need != need
        self._inventory = node.inventory
        self._sums = node.sums
        self._free = dict(node.free)
        self._requests = [(name, amount) for name, amount in requests if name in node.free]
        self._pods = pods
        self._allowed = allowed
        self._step_limit = step_limit
        self._victim_steps = victim_steps
        self._steps = 0
        self._is_late = is_late
        self._rank = {pod.uid: rank for rank, pod in enumerate(pods)}
        self._levels = sorted({pod.priority for pod in pods}, reverse=True)
        self._out: list[Evictable] = []
        self._best: tuple[Cost, tuple[Evictable, ...]] | None = None
        self._found_here = False

    def run(self) -> Victims | None:
        optional = sorted((pod for pod in self._pods if not pod.must_go), key=self._expense, reverse=True)
        for pod in self._pods:
            if pod.must_go:
                self._take(pod)
                self._out.append(pod)
        if self._fits(self._need, self._inventory):
            self._note()
        else:
            for cards in self._card_sets():
                self._search_on(cards, optional)
        return self._result()

    def _expense(self, pod: Evictable) -> tuple[object, ...]:
        violates = any(self._allowed[budget] <= 0 for budget in pod.budgets)
        return (not pod.leaving, violates, pod.priority, -self._rank[pod.uid])

    def _card_sets(self) -> Iterator[frozenset[Card]]:
        """Return the sets of cards that the pod might get, those with the cheapest pods first."""
        usable = usable_cards(self._need, self._inventory, UNUSED)
        wanted = min(sum(container.count for container in self._need.containers), len(usable))
        if self._has_ties or comb(len(usable), wanted) > MOST_CARD_SETS:
            return iter([frozenset(usable)])
        sets = [frozenset(cards) for cards in combinations(usable, wanted)]
        return iter(sorted(sets, key=self._cost_of_all))

    def _cost_of_all(self, cards: frozenset[Card]) -> tuple[object, ...]:
        """Return the cost of removing every pod of these cards; of equal ones the important pods cost more."""
        pods = [pod for pod in self._pods if _uses(pod, cards)]
        return (*self._cost(pods), [-self._rank[pod.uid] for pod in pods])

    def _search_on(self, cards: frozenset[Card], optional: Sequence[Evictable]) -> None:
        """Search for sets of pods without which the pod fits on some of these cards."""
        inventory = replace(
            self._inventory, disabled=self._inventory.disabled | (self._inventory.capacity.keys() - cards)
        )
        self._found_here = False
        takes_all = self._has_ties or self._is_short()  # pods on other cards may be in the way, too
        pods = [pod for pod in optional if takes_all or _uses(pod, cards)]
        for pod in pods:
            self._take(pod)
        self._decide(inventory, pods, 0, has_left=False)
        for pod in pods:
            self._put(pod)

    def _decide(self, inventory: Inventory, pods: Sequence[Evictable], at: int, *, has_left: bool) -> None:
        """Keep or remove the pods from a position on. ``has_left``: the pod before it was removed."""
        if self._is_exhausted() or not self._fits(self._easier_need, inventory):
            return
        if has_left and self._fits_with(pods[at:]):
            self._note()
            return
        if at == len(pods):
            return
        pod = pods[at]
        if not any(_are_alike(pod, gone) for gone in self._out):  # of pods alike the less important leave first
            self._put(pod)
            self._decide(inventory, pods, at + 1, has_left=False)
            self._take(pod)
        self._out.append(pod)
        if self._may_be_better():
            self._decide(inventory, pods, at + 1, has_left=True)
        self._out.pop()

    def _may_be_better(self) -> bool:
        """Return whether the best set may be one that contains the pods that are out.

        On each set of cards one set of pods is looked at that costs as much as the best: the best of equal ones is
        that of the less important pods.
        """
        if self._best is None:
            return True
        cost = self._cost(self._out)
        return cost < self._best[0] or (cost == self._best[0] and not self._found_here)

    def _is_exhausted(self) -> bool:
        """Return whether to stop; without any set yet the search goes on, since the first one takes few steps."""
        patience = 0 if self._best is not None else MOST_CARD_SETS + 4 * len(self._pods)
        return self._steps >= self._victim_steps + patience or self._is_late()

    def _fits_with(self, kept: Sequence[Evictable]) -> bool:
        """Return whether the pod fits beside these pods on any cards of the node, as a bind will find it."""
        for pod in kept:
            self._put(pod)
        fits = self._fits(self._need, self._inventory)
        for pod in kept:
            self._take(pod)
        return fits

    def _fits(self, need: PodNeed, inventory: Inventory) -> bool:
        """Return whether a pod with this need fits now."""
        return not self._is_short() and isinstance(self._place(need, inventory), Choice)

    def _place(self, need: PodNeed, inventory: Inventory) -> Choice | Refusal:
        self._steps += 1
        return place(need, inventory, self._sums.usage(), step_limit=self._step_limit)

    def _is_short(self) -> bool:
        return any(self._free[name] < amount for name, amount in self._requests)

    def _note(self) -> None:
        """Remember what is out as the best set, if it is cheaper than the best so far."""
        self._found_here = True
        found = self._cost(self._out), self._importance(self._out)
        if self._best is None or found < (self._best[0], self._importance(self._best[1])):
            self._best = found[0], tuple(self._out)

    def _importance(self, pods: Sequence[Evictable]) -> list[int]:
        """Return a key of a set of pods: the lower, the less important is its most important pod, and so on."""
        return sorted(-self._rank[pod.uid] for pod in pods)[::-1]

    def _result(self) -> Victims | None:
        """Return the best set, and put all pods back."""
        out = self._best[1] if self._best is not None else ()
        for pod in out:
            if not pod.must_go:
                self._take(pod)
        choice = self._place(self._need, self._inventory) if self._best is not None else None
        for pod in self._pods:
            if pod.must_go or pod in out:
                self._put(pod)
        if not isinstance(choice, Choice):
            return None
        in_order = tuple(sorted(out, key=lambda pod: self._rank[pod.uid]))
        return Victims(
            pods=in_order,
            choice=choice,
            violations=violating((pod.budgets for pod in in_order), self._allowed),
        )

    def _cost(self, pods: Sequence[Evictable]) -> Cost:
        staying = [pod for pod in pods if not pod.leaving]
        in_order = sorted(staying, key=lambda pod: self._rank[pod.uid])
        counts = dict.fromkeys(self._levels, 0)
        for pod in staying:
            counts[pod.priority] += 1
        return violating((pod.budgets for pod in in_order), self._allowed), tuple(counts.values()), len(pods)

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


def _uses(pod: Evictable, cards: frozenset[Card]) -> bool:
    return not cards.isdisjoint(pod.footprint.amounts)


def _are_alike(one: Evictable, other: Evictable) -> bool:
    """Return whether it makes no difference which of two pods leaves, apart from their age."""
    return (one.priority, one.leaving, one.budgets, one.requests, one.footprint, one.must_go) == (
        other.priority,
        other.leaving,
        other.budgets,
        other.requests,
        other.footprint,
        other.must_go,
    )


def _without_ties(need: PodNeed) -> PodNeed:
    """Return the need without the rules that other pods help to meet: the fewer pods are there, the better it fits."""
    return replace(need, named="", company=replace(need.company, affinity=""))
