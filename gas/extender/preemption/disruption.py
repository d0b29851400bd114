"""Describe pods by what evicting them costs: priority, age, and disruption budgets. No I/O."""

import sys
from collections.abc import Mapping
from functools import lru_cache

import msgspec

from gas.objects.handler import Mirror
from gas.objects.stored import DisruptionBudget, LabelSelector, Pod
from gas.values.timing import seconds_of


class AssignedPod(msgspec.Struct, frozen=True, gc=False):
    """A pod with a node that has not ended."""

    namespace: str
    name: str
    priority: int
    labels: Mapping[str, str]
    started: float  # when kubelet admitted it, in seconds since the epoch; infinite before that
    leaving: bool  # whether it is being deleted

    @property
    def importance(self) -> tuple[int, float]:
        """A key that sorts the most important pod first, as kube-scheduler does: by priority, then the older one."""
        return -self.priority, self.started


def assigned_pod(pod: Pod) -> AssignedPod:
    """Return the facts about a pod that is on a node, or about to be bound to it."""
    return AssignedPod(
        namespace=sys.intern(pod.metadata.namespace or "default"),
        name=pod.metadata.name,
        priority=pod.priority,
        labels=_shared(tuple((pod.metadata.labels or {}).items())),
        started=seconds_of(pod.status.start_time if pod.status is not None else None),
        leaving=pod.metadata.deletion_timestamp is not None,
    )


_shared = lru_cache(4096)(dict[str, str])  # templates' labels, shared by pods: half of the memory that one takes here


class DisruptionBudgets(Mirror[DisruptionBudget, DisruptionBudget]):
    def record(self, budget: DisruptionBudget) -> DisruptionBudget:
        return budget

    def of(self, pod: AssignedPod) -> list[DisruptionBudget]:
        """Return the budgets that count the eviction of a pod, as kube-scheduler finds them.

        A pod whose eviction the API server has counted already is not counted again. A budget without a selector, or
        with an empty one, covers no pod, and none covers a pod without labels.
        """
        if not pod.labels:
            return []
        return [
            budget
            for budget in self.records.values()
            if (budget.metadata.namespace or "default") == pod.namespace
            and pod.name not in ((budget.status.disrupted_pods if budget.status else None) or {})
            and budget.spec is not None
            and budget.spec.selector is not None
            and selects(budget.spec.selector, pod.labels)
        ]


def selects(selector: LabelSelector, labels: Mapping[str, str]) -> bool:
    """Return whether a selector that is not empty selects these labels; an invalid one selects nothing."""
    wanted = selector.match_labels or {}
    expressions = selector.match_expressions or ()
    if not wanted and not expressions:
        return False
    return all(labels.get(key) == value for key, value in wanted.items()) and all(
        each.is_met(labels.get(each.key)) for each in expressions
    )
