"""Hold the cards of pods that were given some by gas, and whose amounts cannot be read any more."""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass

from gas.decision.annotations import MalformedAnnotation, is_decided, parse_container_cards
from gas.decision.names import CONTAINER_CARDS, INIT_CONTAINER_CARDS
from gas.objects.stored import Node, Pod
from gas.placement.inventory import Company
from gas.placement.need import ContainerNeed, PodNeed, Role
from gas.placement.ratio import PERCENT, Ratio
from gas.values.amounts import MILLICORES
from gas.values.card_facts import CardFacts
from gas.vocabularies.pod_parts import is_positive, started_containers
from gas.vocabularies.protocol import (
    BadNeed,
    Beginnings,
    DeviceOptions,
    NeedFacts,
    NeedOptions,
    NodeFacts,
    Reference,
    Vocabulary,
)

_FULL = (Ratio(MILLICORES, PERCENT),)
_ALONE = Company(exclusion="unread amounts")  # no user can write such a label, so no other pod joins


@dataclass(frozen=True, kw_only=True)
class Foreign(Vocabulary):
    """The vocabulary of pods whose amounts cannot be read: their cards count as full."""

    name = "unknown"
    reference = Reference(owner="unknown")
    managed_resources = ()
    asking = Beginnings()
    resources = ()
    metadata = frozenset({CONTAINER_CARDS, INIT_CONTAINER_CARDS})

    @property
    def when_off(self) -> str:
        return "its cards count as full, because the vocabulary that it is written in is not among --vocabularies"

    def matches(self, pod: Pod) -> bool:
        """Return whether gas has chosen cards for the pod, and kubelet gives it devices because it requests some."""
        requests = (request for each, _ in started_containers(pod) for request in each.requests.items())
        return is_decided(pod) and any(
            "/" in name and "kubernetes.io/" not in name and is_positive(amount, if_unreadable=True)
            for name, amount in requests
        )

    def is_fixed(self, pod: Pod) -> bool:
        return True

    def need(self, facts: NeedFacts, options: NeedOptions) -> PodNeed:
        return PodNeed(())  # of pods that are not bound

    def booked_need(self, facts: NeedFacts) -> PodNeed:
        """Return a need of all that the cards in the annotations have."""
        counts: list[int] = []
        for name, is_app in ((INIT_CONTAINER_CARDS, False), (CONTAINER_CARDS, True)):
            containers = [each for each in facts.containers if (each.role is Role.APP) == is_app]
            text = facts.annotations.get(name, "")
            try:
                places = parse_container_cards(text, name) if text else ((),) * len(containers)
            except MalformedAnnotation as malformed:
                raise BadNeed(str(malformed)) from None
            if len(places) != len(containers):
                raise BadNeed(f"annotation {name}: expected {len(containers)} container(s), found {len(places)}")
            counts += map(len, places)
        return PodNeed(
            tuple(
                ContainerNeed(each.name, count, role=each.role, ratios=_FULL if count else ())
                for each, count in zip(facts.containers, counts, strict=True)
            ),
            company=_ALONE,
        )

    def source(self, node: Node) -> Hashable:
        return ()

    def facts(self, node: Node) -> NodeFacts | None:
        return None

    def ids_per_card(self, card: CardFacts, options: DeviceOptions) -> Mapping[str, int]:
        return {}


FOREIGN = Foreign()
