"""Preemption: that kube-scheduler asks an extender that serves it which pods to evict, and the extender's rights."""

from __future__ import annotations

from collections.abc import Iterator

from gas.doctor.check import Part, Permission
from gas.doctor.checks.schedulers import OptionalVerb
from gas.doctor.programs import EXTENDER, Program, is_on
from gas.objects.stored import DetailedContainer


def permissions(program: Program, container: DetailedContainer, _namespace: str) -> Iterator[Permission]:
    """Yield what preemption needs: the budgets for disruptions."""
    if program is EXTENDER and is_on(container, "preemption"):
        yield from (Permission(verb, "poddisruptionbudgets", "policy") for verb in ("list", "watch"))


VERB = OptionalVerb(
    key="preemptVerb",
    configured=lambda entry: entry.preempt_verb,
    path="scheduler/preempt",
    is_served=lambda container: is_on(container, "preemption"),
    flag="--preemption",
    not_served="the extender does not serve preemptVerb, so no GPU pod can make room for itself by its priority",
    is_harmful=True,
    not_asked="kube-scheduler chooses by the sums of nodes which pods it evicts for a GPU pod of higher priority, so"
    " that pod may still find no card",
)

PART = Part(checks=(VERB.check,), permissions=permissions)
