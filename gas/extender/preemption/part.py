"""The part that serves the verb preempt."""

from __future__ import annotations

from dataclasses import dataclass

from gas.daemon.flags import PartFlags, switch
from gas.extender.part import Part


@dataclass(frozen=True, slots=True, kw_only=True)
class PreemptionFlags(PartFlags):
    """The flags of preemption."""

    preemption: bool = switch(
        "preemption",
        "Serve the verb preempt, by which kube-scheduler evicts the pods that hold the cards of a pod of higher "
        "priority. Also counts the CPU, memory and pod slots of nodes, and watches all pods and PodDisruptionBudgets.",
        group="Preemption",
    )


PREEMPTION = Part(flags=PreemptionFlags, is_on=lambda flags: flags.of(PreemptionFlags).preemption)
