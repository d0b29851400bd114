"""The vocabulary of plain device plugins: ``nvidia.com/gpu: 2`` is two whole cards, or two cards that others share.

Where a vendor's own plugin offers these resources it hands out the cards, and gas only reserves as many for them. Where
the plugin of gas finds the cards itself, it offers them in the vendor's place. Nothing is written except gas's own
annotations.
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace

from gas.daemon import flag_values as values
from gas.daemon.flags import CommandFlags, PartFlags, flag
from gas.objects.stored import Node, Pod, Quantity
from gas.placement.inventory import Company, Inventory
from gas.placement.need import ContainerNeed, PodNeed
from gas.placement.ratio import PERCENT, Ratio
from gas.values.amounts import MILLICORES, MILLICORES_OF_A_CARD
from gas.values.card_facts import CardFacts
from gas.values.card_records import ANNOTATION, MOST_RECORDS
from gas.values.cards import Card, whole_card
from gas.vocabularies.node_parts import allocatable_amount, allocatable_resources, recorded_cards
from gas.vocabularies.pod_parts import (
    ALONE,
    PREFERENCES,
    check_sum,
    requested,
    requests_any,
    with_preferences,
)
from gas.vocabularies.protocol import (
    BadNeed,
    Beginnings,
    ContainerFacts,
    DeviceOptions,
    NeedFacts,
    NeedOptions,
    NodeFacts,
    Reference,
    Row,
    Vocabulary,
)


@dataclass(frozen=True, slots=True)
class Kind:
    resource: str  # full name
    counted: str  # the resource that counts its cards in ledgers: names are without prefix there, and must differ
    driver: str = ""  # the kernel driver of its cards; empty if records of cards do not have it
    places: int = 1  # how many containers may share a card; with more than 1 nothing else is booked


KINDS = (Kind("nvidia.com/gpu", "nvidia-gpu", driver="nvidia"), Kind("dcu.com/gpu", "dcu-gpu"))

_RESOURCES = tuple(kind.resource for kind in KINDS)
_COUNTS = frozenset(kind.counted for kind in KINDS)


@dataclass(frozen=True, slots=True, kw_only=True)
class VendorFlags(PartFlags):
    places: int = flag(
        "vendor-shared-dev-num=N",
        values.positive,
        "1",
        "How many containers may share one card by nvidia.com/gpu, with the vocabulary vendor. With more than 1 only "
        "containers are counted. Set the same for gas-extender and gas-plugin.",
        group="Vocabularies",
    )


_REFERENCE = Reference(
    owner="vendors'",
    resources=tuple(
        Row(kind.resource, f"pods ask, the vendor's plugin{' or gas-plugin' * bool(kind.driver)} offers", "whole cards")
        for kind in KINDS
    ),
)


@dataclass(frozen=True, kw_only=True)
class Vendor(Vocabulary):
    """The vocabulary of nodes on which a vendor's plugin states how many cards they have, or how many places on cards.

    Whole cards whose driver is a vendor's are offered, with a device for each place. The vendors' plugins offer all
    others.
    """

    name = "vendor"
    reference = _REFERENCE
    flags = VendorFlags
    user_annotations = PREFERENCES
    asking = Beginnings(resources=_RESOURCES)
    kinds: tuple[Kind, ...] = KINDS

    @property
    def managed_resources(self) -> tuple[str, ...]:
        return tuple(kind.resource for kind in self.kinds)

    @property
    def resources(self) -> tuple[str, ...]:
        return tuple(kind.resource for kind in self.kinds if kind.driver)

    def without(self, resources: frozenset[str]) -> Vocabulary:
        return replace(self, kinds=tuple(kind for kind in self.kinds if kind.resource not in resources))

    def with_flags(self, flags: CommandFlags) -> Vocabulary:
        places = flags.of(VendorFlags).places
        return Vendor(kinds=tuple(replace(kind, places=places) if kind.driver else kind for kind in KINDS))

    def matches(self, pod: Pod) -> bool:
        return any(requests_any(pod, kind.resource) for kind in self.kinds)

    def need(self, facts: NeedFacts, options: NeedOptions) -> PodNeed:
        amounts = {
            kind.resource: sum(requested(each, kind.resource) for each in facts.containers) for kind in self.kinds
        }
        asked = [resource for resource, amount in amounts.items() if amount]
        if len(asked) > 1:
            raise BadNeed(f"the pod asks for both {' and '.join(asked)}; use only one of them in all its containers")
        for resource in asked:
            check_sum(resource, amounts[resource])
        need = self.booked_need(facts)
        return with_preferences(replace(need, idle=need.company == ALONE), facts.annotations, options)

    def booked_need(self, facts: NeedFacts) -> PodNeed:
        containers = tuple(_container_need(each, self.kinds) for each in facts.containers)
        return PodNeed(
            containers=containers,
            company=ALONE if any(container.ratios for container in containers) else Company(),
            count_resources=_COUNTS,
        )

    def source(self, node: Node) -> Hashable:
        allocatable = allocatable_resources(node)
        stated = tuple(
            (kind.resource, allocatable[kind.resource]) for kind in self.kinds if kind.resource in allocatable
        )
        return (
            (stated, tuple((each.card, each.driver, each.healthy) for each in recorded_cards(node))) if stated else ()
        )

    def facts(self, node: Node) -> NodeFacts | None:
        allocatable = allocatable_resources(node)
        problems: list[str] = []
        recorded = recorded_cards(node)
        capacity: dict[Card, Mapping[str, int]] = {}
        following = max((whole_card(record.card) for record in recorded), default=-1) + 1
        for kind in self.kinds:
            if (count := _count(kind, allocatable, problems)) == 0:
                continue
            of_driver = [each for each in recorded if kind.driver and each.driver == kind.driver]
            own = [each.card for each in of_driver if each.healthy and not each.card.is_instance][:count]
            if of_driver and len(own) < count:
                problems.append(
                    f"allocatable {kind.resource}: expected at most {len(own)}, the healthy cards of driver"
                    f" {kind.driver} in annotation {ANNOTATION}, found {count}; the smaller number counts"
                )
            if not of_driver:
                own = [Card(following + number) for number in range(count)]
                following += count
            amounts = {kind.counted: kind.places, MILLICORES: MILLICORES_OF_A_CARD}
            capacity.update(dict.fromkeys(own, amounts))
        if not capacity and not problems:
            return None
        return NodeFacts(
            inventory=Inventory(capacity={card: capacity[card] for card in sorted(capacity)}),
            counted=not recorded,
            problems=tuple(problems),
        )

    def ids_per_card(self, card: CardFacts, options: DeviceOptions) -> Mapping[str, int]:
        if card.card.is_instance:
            return {}
        return {kind.resource: kind.places for kind in self.kinds if kind.driver and kind.driver == card.driver}


VENDOR = Vendor()


def _container_need(container: ContainerFacts, kinds: Sequence[Kind]) -> ContainerNeed:
    """Return the need of a container; of one that asks for two vendors' cards, the first counts."""
    for kind in kinds:
        if count := requested(container, kind.resource):
            whole = (Ratio(MILLICORES, PERCENT),) if kind.places == 1 else ()
            return ContainerNeed(container.name, count, ((kind.counted, 1),), container.role, whole)
    return ContainerNeed(container.name, role=container.role)


def _count(kind: Kind, allocatable: Mapping[str, Quantity], problems: list[str]) -> int:
    count = -(-allocatable_amount(allocatable, kind.resource, problems) // kind.places)
    if count > MOST_RECORDS:
        problems.append(
            f"allocatable {kind.resource}: expected at most {MOST_RECORDS} cards, found {count}; it is ignored"
        )
        return 0
    return count
