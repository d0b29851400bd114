"""Intel's vocabulary: ``gpu.intel.com/*`` resources, labels, annotations."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace

from gas.objects.stored import Node, Pod, Quantity
from gas.placement.need import PodNeed
from gas.values.card_facts import CardFacts
from gas.vocabularies.intel import names
from gas.vocabularies.intel.devices import (
    AFFINITY_MASK,
    LABEL,
    SUMMED_RESOURCES,
    card_capacity,
    container_mask,
    node_labels,
    node_resources,
)
from gas.vocabularies.intel.inventory import read_node
from gas.vocabularies.intel.need import amounts_without_cards, read_booked_need, read_need, without_effect
from gas.vocabularies.pod_parts import is_positive, requests_under
from gas.vocabularies.protocol import DeviceOptions, NeedFacts, NeedOptions, NodeDescription, NodeFacts, Vocabulary

_RELEVANT_LABELS = (names.PREFIX, names.TELEMETRY_PREFIX)
_MONITORING = names.PREFIX + "monitoring"


class Intel(Vocabulary):
    """Cards as ``gpu.intel.com/i915`` or ``gpu.intel.com/xe``, by their driver."""

    name = "intel"
    reference = names.REFERENCE
    user_annotations = frozenset(names.USERS_ANNOTATIONS)
    metadata = frozenset(names.BOOKED_ANNOTATIONS)
    resources = managed_resources = tuple(names.PREFIX + name for name in names.COUNT_RESOURCES)
    asking = names.ASKING
    written = names.WRITTEN

    def matches(self, pod: Pod) -> bool:
        return requests_under(pod, names.PREFIX)

    def need(self, facts: NeedFacts, options: NeedOptions) -> PodNeed:
        return read_need(facts, options)

    def booked_need(self, facts: NeedFacts) -> PodNeed:
        return read_booked_need(facts)

    def source(self, node: Node) -> Hashable:
        status = node.status
        return (
            frozenset(item for item in node.labels.items() if item[0].startswith(_RELEVANT_LABELS)),
            node.annotations.get(names.CARD_CAPACITY),
            _prefixed(status.allocatable if status else None),
            _prefixed(status.capacity if status else None),
        )

    def facts(self, node: Node) -> NodeFacts:
        facts, capacity = read_node(node), (node.status.capacity if node.status else None) or {}
        if any(is_positive(capacity.get(name, 0), if_unreadable=False) for name in self.resources):
            return facts
        # Labels that deschedule pods count only where ``status.capacity`` has GPUs too.
        return replace(facts, deschedule_cards=frozenset(), deschedule_tiles=frozenset())

    def offered(self, node: Node) -> frozenset[str]:
        is_labelled = names.GPU_NUMBERS in node.labels or names.CARDS in node.labels
        return frozenset(self.managed_resources) if is_labelled else super().offered(node)

    def ids_per_card(self, card: CardFacts, options: DeviceOptions) -> Mapping[str, int]:
        return {names.PREFIX + card.driver: options.shared_dev_num} if card.driver in names.COUNT_RESOURCES else {}

    def fewer_ids(self, resource: str) -> str:
        return "lower --shared-dev-num"

    def monitoring_resources(self, *, split: bool) -> tuple[str, ...]:
        return tuple(f"{resource}_monitoring" for resource in self.resources) if split else (_MONITORING,)

    def monitoring_resource(self, card: CardFacts, *, split: bool) -> str | None:
        if card.driver not in names.COUNT_RESOURCES:
            return None
        return f"{names.PREFIX}{card.driver}_monitoring" if split else _MONITORING

    def describe(self, cards: Sequence[CardFacts], options: DeviceOptions) -> NodeDescription:
        cards = [card for card in cards if card.driver in names.COUNT_RESOURCES]
        capacity = card_capacity(cards, shared_dev_num=options.shared_dev_num)
        return NodeDescription(
            labels=node_labels(cards, pci_grouping_level=options.pci_grouping_level),
            annotations={names.CARD_CAPACITY: capacity} if capacity is not None else {},
            resources=node_resources(cards),
        )

    def owns_label(self, name: str) -> bool:
        return LABEL.fullmatch(name) is not None

    def owns_resource(self, name: str) -> bool:
        return name in SUMMED_RESOURCES

    def environment(self, pod: Pod, container: str, cards: Sequence[CardFacts], node: NodeFacts) -> Mapping[str, str]:
        mask = container_mask(pod, container, cards)
        return {} if mask is None else {AFFINITY_MASK: mask}

    def faults(self, pod: Pod) -> list[str]:
        return list(amounts_without_cards(pod))

    def warnings(self, pod: Pod, options: NeedOptions) -> list[str]:
        return list(without_effect(pod, options))


INTEL = Intel()


def _prefixed(resources: Mapping[str, Quantity] | None) -> frozenset[tuple[str, Quantity]]:
    return frozenset(item for item in (resources or {}).items() if item[0].startswith(names.PREFIX))
