"""Check that kube-scheduler asks an extender for scores of nodes exactly if it gives them."""

from gas.doctor.checks.schedulers import OptionalVerb
from gas.doctor.snapshot import Snapshot
from gas.programs import flag_value

VERB = OptionalVerb(
    key="prioritizeVerb",
    configured=lambda entry: entry.prioritize_verb,
    path="scheduler/prioritize",
    is_served=lambda container: (flag_value(container, "node-score") or "none") != "none",
    flag="--node-score=balance",
    not_served="the extender does not serve prioritizeVerb, so kube-scheduler logs an error for every GPU pod",
    not_asked="kube-scheduler does not ask the extender which node is best for a GPU pod, so fewer cards are given out",
)


def scores_nodes(snapshot: Snapshot) -> bool:
    """Return whether some extender scores nodes, as far as it is known."""
    serving = VERB.serving(snapshot)
    return any(serving) or not serving


CHECKS = (VERB.check,)
