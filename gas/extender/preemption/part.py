"""The part that serves the verb preempt."""

from dataclasses import dataclass

from gas.daemon.flags import PartFlags, switch
from gas.daemon.permissions import permissions_on
from gas.extender.part import Additions, Core, Part


@dataclass(frozen=True, slots=True, kw_only=True)
class PreemptionFlags(PartFlags):
    preemption: bool = switch(
        "preemption",
        "Serve the verb preempt, by which kube-scheduler evicts the pods that hold the cards of a pod of higher "
        "priority. Also counts the CPU, memory and pod slots of nodes, and watches all pods and PodDisruptionBudgets.",
        group="Preemption",
    )


def _build(core: Core) -> Additions:
    from gas.cluster import paths
    from gas.cluster.listing import Lister
    from gas.cluster.watch import Watch
    from gas.extender.preemption.preemption import Preempt, Preemption
    from gas.extender.preemption.wire import encode_preempt_result
    from gas.extender.server import ServedVerb
    from gas.objects.stored import DisruptionBudget

    preemption = Preemption(core.decider)
    watch = Watch(Lister(core.api, paths.DISRUPTION_BUDGETS, DisruptionBudget), preemption.budgets, timing=core.timing)

    def why_not_ready() -> str | None:
        if watch.refused is not None:
            return f"PodDisruptionBudgets cannot be watched: {watch.refused}"
        if not watch.synced.is_set():
            return "the first list of PodDisruptionBudgets is still being read"
        return core.why_not_ready()

    # The response has no field for an error. While nothing can be decided it names no victims: with ``ignorable: true``
    # kube-scheduler would take an error as permission to evict by the sums of the node.
    verb = Preempt(
        core.decider, preemption, core.pending_binds, core.metrics, core.settler, why_not_ready=why_not_ready
    )
    return Additions(
        hooks=preemption.hooks,
        verbs={"preempt": ServedVerb(verb, undecided=encode_preempt_result({}))},
        watches={"poddisruptionbudgets": watch},
    )


PREEMPTION = Part(
    flags=PreemptionFlags,
    is_on=lambda flags: flags.of(PreemptionFlags).preemption,
    build=_build,
    permissions=lambda _flags, _namespace: permissions_on("poddisruptionbudgets", "list", "watch", group="policy"),
    verbs=frozenset({"preempt"}),
)
