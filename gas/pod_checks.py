"""The rules for a pod when it is created: what makes the API server refuse it, and what its owner is warned of.

They are the same wherever they are asked: the admission webhooks refuse what a filter would refuse on every node, in
the same words, and ``gas doctor`` reports them for pods that were created without the webhooks.
"""

from __future__ import annotations

from dataclasses import dataclass

from gas.json_patch import Operation, Patch
from gas.objects import NewPod, Pod
from gas.vocabulary import BadNeed, NeedOptions, Vocabularies

DEFAULT_SCHEDULER = "default-scheduler"


@dataclass(frozen=True, slots=True)
class Findings:
    """The faults of a pod, and warnings, one sentence each.

    faults    no node could ever give the pod what it asks for
    warnings  the pod probably does not mean what it says
    """

    faults: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


NOTHING = Findings()


@dataclass(frozen=True, slots=True)
class PodChecks:
    """The rules, for the vocabularies and the options of one extender.

    scheduler_name  of GPU pods that have the default one; None if it stays
    """

    vocabularies: Vocabularies
    options: NeedOptions
    scheduler_name: str | None = None

    def new_pod(self, pod: Pod) -> Findings:
        """Check a pod that is to be created, or one that waits; nothing if it asks for no GPU."""
        if (vocabulary := self.vocabularies.spoken_by(pod)) is None:
            return NOTHING
        try:
            self.vocabularies.need(pod, self.options)
            faults: tuple[str, ...] = ()
        except BadNeed as bad:
            faults = (str(bad),)
        if (words := vocabulary.admission) is None:
            return Findings(faults)
        return Findings((*faults, *words.faults(pod)), tuple(words.warnings(pod)))

    def complete(self, pod: NewPod) -> Patch:
        """Return what a new GPU pod lacks. A pod that was completed is complete.

        A pod that names its node itself is not scheduled, so its scheduler stays.
        """
        if (vocabulary := self.vocabularies.spoken_by(pod)) is None or pod.node_name:
            return ()
        patch = vocabulary.admission.complete(pod) if vocabulary.admission is not None else ()
        name = pod.spec.scheduler_name or DEFAULT_SCHEDULER
        if self.scheduler_name and name == DEFAULT_SCHEDULER != self.scheduler_name:
            patch = (*patch, Operation("add", "/spec/schedulerName", self.scheduler_name))
        return patch
