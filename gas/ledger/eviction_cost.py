"""Compare sets of victims by the cost of evicting them from a node. Plain code over values."""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from math import lcm

from gas.placement.choice import Footprint
from gas.values.amounts import SortedAmounts

Cost = tuple[int, ...]
"""The violations of disruption budgets, the pods of each priority from the highest down, and all pods together. Pods
that are leaving already count only in the last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evictable:
    """A pod that may have to leave its node."""

    uid: str
    priority: int
    footprint: Footprint = field(default_factory=Footprint)  # what it holds of each card
    requests: SortedAmounts = ()  # of the node, apart from its cards
    budgets: tuple[int, ...] = ()  # positions of the disruption budgets that count it
    leaving: bool = False  # whether it is being deleted already
    must_go: bool = False  # whether it leaves in any case, for a reason that is not known here


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


class Costs:
    """The costs of sets of pods, compared as tuples: lower is better.

    pods     the most important first
    allowed  how many disruptions each budget allows

    `least` divides each pod into ``unit`` units, so that each card that the pod holds gets a whole number of them.
    """

    def __init__(self, pods: Sequence[Evictable], allowed: Sequence[int]) -> None:
        self._allowed = allowed
        self._rank = {pod.uid: rank for rank, pod in enumerate(pods)}
        self._levels = sorted({pod.priority for pod in pods}, reverse=True)
        self.unit = lcm(*(len(pod.footprint.amounts) for pod in pods if pod.footprint.amounts))
        self._part = {pod.uid: self._part_of(pod) for pod in pods if pod.footprint.amounts}

    def of(self, pods: Collection[Evictable]) -> Cost:
        staying = self.in_order(pod for pod in pods if not pod.leaving)
        counts = Counter(pod.priority for pod in staying)
        violations = violating((pod.budgets for pod in staying), self._allowed)
        return (violations, *(counts[level] for level in self._levels), len(pods))

    def least(self, pods: Iterable[Evictable]) -> Cost:
        """Return a lower bound of what pods that hold a card add to the cost of any set, as this card's part, in units.

        These parts can be added for several cards, because each pod is divided among the cards that it holds. A
        disruption budget counts only if every disruption violates it.
        """
        return total(self._part[pod.uid] for pod in pods) or (0,) * (2 + len(self._levels))

    def in_units(self, cost: Cost) -> Cost:
        return tuple(part * self.unit for part in cost)

    def expense(self, pod: Evictable) -> tuple[object, ...]:
        """Return a key that is higher for pods that should rather stay."""
        return (not pod.leaving, self._always_violates(pod), pod.priority, -self._rank[pod.uid])

    def importance(self, pods: Iterable[Evictable]) -> list[int]:
        """Return a key of a set of pods: the lower, the less important is its most important pod, and so on."""
        return sorted((-self._rank[pod.uid] for pod in pods), reverse=True)

    def in_order(self, pods: Iterable[Evictable]) -> list[Evictable]:
        """Return the pods, the most important first."""
        return sorted(pods, key=lambda pod: self._rank[pod.uid])

    def _always_violates(self, pod: Evictable) -> bool:
        return any(self._allowed[budget] <= 0 for budget in pod.budgets)

    def _part_of(self, pod: Evictable) -> Cost:
        part = self.unit // len(pod.footprint.amounts)
        counted = 0 if pod.leaving else part
        of_levels = (counted * (pod.priority == level) for level in self._levels)
        return (counted * self._always_violates(pod), *of_levels, part)


def total(costs: Iterable[Cost]) -> Cost:
    """Add up costs; the result is empty if there are none."""
    return tuple(map(sum, zip(*costs, strict=True)))
