"""Let pods use the nodes of DRA drivers, where a DeviceClass stands for a resource that gas manages. No I/O.

For each node kube-scheduler decides how a pod gets such a resource: from a device plugin if the node offers any, else
from the driver, by a ResourceClaim that it makes and names in the pod's status before the bind. kubelet goes by that
status, so bind does as well: for a pod with a claim it books nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from msgspec.structs import replace as with_fields

from gas.extender.decider import CannotBind, Decider
from gas.extender.hooks import FilterDecision, Hooks
from gas.extender.verdicts import Turns
from gas.objects.handler import MirrorByName
from gas.objects.stored import DeviceClass, Pod
from gas.placement.need import PodNeed
from gas.placement.ratio import PERCENT
from gas.values.amounts import MILLICORES, MILLICORES_OF_A_CARD
from gas.vocabularies.pod_parts import is_positive, started_containers
from gas.vocabularies.protocol import BadNeed, NodeFacts

ALL_COMPUTE = (MILLICORES, MILLICORES_OF_A_CARD)
BY_PLUGIN = (
    "the pod has a ResourceClaim from an earlier attempt, and a device plugin serves the node; delete the pod and "
    "create it again"
)


class DeviceClasses(MirrorByName[DeviceClass, DeviceClass]):
    """The DeviceClasses that stand for a managed resource, and the decisions that follow. Fed by a watch."""

    def __init__(self, decider: Decider) -> None:
        super().__init__()
        self._decider = decider
        self._vocabularies = decider.options.vocabularies
        self.of_resource: Mapping[str, str] = {}  # name of the class that kube-scheduler takes for each resource

    @property
    def hooks(self) -> Hooks:
        return Hooks(restricting=(self.restrict,), choosing=(self.choose,))

    def record(self, obj: DeviceClass) -> DeviceClass | None:
        return obj if obj.resource in self._vocabularies.managed_resources else None

    def replaced(self, key: str, old: DeviceClass | None, new: DeviceClass | None) -> None:
        self.of_resource = classes_by_resource(self.records.values())

    def restrict(
        self, pod: Pod, need: PodNeed, decision: FilterDecision, facts: Callable[[str], NodeFacts | None]
    ) -> Turns[FilterDecision]:
        """Let the pod pass on nodes that DRA serves. With a claim it passes only there: kubelet would wait for it."""
        yield from ()
        is_claimed = not pod.node_name and self._vocabularies.is_claimed(pod)
        if not is_claimed and not (self.of_resource and decision.failed):
            return decision
        asked = self.asked(pod, need)
        served = {name for name in decision.failed if serves(asked, facts(name))}
        failed = {name: sentence for name, sentence in decision.failed.items() if name not in served}
        passing = [] if is_claimed else list(decision.passing)
        if is_claimed:
            failed.update(dict.fromkeys(decision.passing, BY_PLUGIN))
        return replace(
            decision,
            passing=[*passing, *(name for name in decision.failed if name in served)],
            failed=failed,
            hopeless=[name for name in decision.hopeless if name not in served],
            gets_cards=decision.gets_cards and bool(passing),
            refusal=None if served else decision.refusal,
        )

    def choose(self, pod: Pod, need: PodNeed, facts: NodeFacts | None) -> PodNeed:
        """Return a need without cards for a pod that kube-scheduler has made a claim for. Raises CannotBind."""
        if not self._vocabularies.is_claimed(pod):
            return need
        if facts is not None and facts.offered & pod.claimed:
            raise CannotBind(f"pod {pod.key} cannot be bound: {BY_PLUGIN}")
        return PodNeed(())

    def asked(self, pod: Pod, need: PodNeed) -> frozenset[str]:
        """Return the resources that the pod asks for, if classes stand for all; none if it asks for more than counts.

        A DRA driver knows no parts of cards, and none of the rules of annotations.
        """
        vocabulary = self._vocabularies.vocabulary_of(pod) if self.of_resource else None
        if vocabulary is None:
            return frozenset()
        names = frozenset(
            name
            for container, _ in started_containers(pod)
            for name, amount in container.requests.items()
            if name.startswith(vocabulary.asking.resources) and is_positive(amount, if_unreadable=True)
        )
        if not names <= self.of_resource.keys() or not only_counts(need):
            return frozenset()
        try:
            plain = self._decider.need(with_fields(pod, metadata=with_fields(pod.metadata, annotations=None)))
        except BadNeed:
            return frozenset()
        alike = replace(plain, order=need.order, near=need.near, node_score=need.node_score)
        return names if alike == need else frozenset()


def only_counts(need: PodNeed) -> bool:
    """Return whether a pod asks for whole cards or for places on them, and for no other part of a card."""
    return all(
        all(amount[0] in need.count_resources or amount == ALL_COMPUTE for amount in each.per_card)
        and all(not ratio.of and ratio.part == PERCENT for ratio in each.ratios)
        for each in need.containers
    )


def classes_by_resource(classes: Iterable[DeviceClass]) -> dict[str, str]:
    """Return the name of the class that kube-scheduler takes for each resource: the newest, then the first by name."""
    by_name = sorted(classes, key=lambda each: each.name, reverse=True)
    in_order = sorted(by_name, key=lambda each: each.metadata.creation_timestamp or "")
    return {each.resource: each.name for each in in_order if each.resource}


def serves(asked: frozenset[str], facts: NodeFacts | None) -> bool:
    """Return whether kube-scheduler gives these resources on a node by DRA, and no device plugin will come back."""
    return bool(asked) and facts is not None and not asked & facts.offered
