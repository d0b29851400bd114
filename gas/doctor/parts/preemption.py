"""Check that kube-scheduler asks an extender which pods to evict exactly if it serves that."""

from gas.doctor.checks.schedulers import OptionalVerb
from gas.programs import is_on

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

CHECKS = (VERB.check,)
