"""The vocabulary of plain device plugins: ``nvidia.com/gpu: 2`` is two whole cards.

Where a vendor's own plugin offers these resources it hands out the cards, and gas only reserves as many for them. Where
the plugin of gas finds the cards itself, it offers them in the vendor's place. Nothing is written except gas's own
annotations.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass

from gas.objects.stored import Node, Pod, Quantity
from gas.placement.inventory import Company, Inventory
from gas.placement.need import ContainerNeed, PodNeed
from gas.placement.ratio import PERCENT, Ratio
from gas.values.amounts import MILLICORES, MILLICORES_OF_A_CARD
from gas.values.card_facts import CardFacts
from gas.values.card_records import ANNOTATION, MOST_RECORDS
from gas.values.cards import Card
from gas.vocabularies.node_parts import allocatable_amount, allocatable_resources, recorded_cards
from gas.vocabularies.pod_parts import (
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
    DeviceOffer,
    DeviceOptions,
    NeedFacts,
    NeedOptions,
    NodeFacts,
    PodReader,
    Reference,
    Row,
    Vocabulary,
)

ALONE = Company(exclusion="whole cards")
"""Labels by which a whole card has no other pods. No user can write them: labels have no spaces."""


@dataclass(frozen=True, slots=True)
class Kind:
    """One vendor's cards.

    resource  full name
    counted   the resource that counts its cards in ledgers: names are without prefix there, and must differ
    driver    the kernel driver of its cards; empty if records of cards do not have it
    """

    resource: str
    counted: str
    driver: str = ""


KINDS = (
    Kind("nvidia.com/gpu", "nvidia-gpu", driver="nvidia"),
    Kind("dcu.com/gpu", "dcu-gpu"),
)

_COUNTS = frozenset(kind.counted for kind in KINDS)


class VendorPods(PodReader):
    resources = tuple(kind.resource for kind in KINDS)
    asking = Beginnings(resources=resources)

    def matches(self, pod: Pod) -> bool:
        return any(requests_any(pod, kind.resource) for kind in KINDS)

    def need(self, facts: NeedFacts, options: NeedOptions) -> PodNeed:
        amounts = {kind.resource: sum(requested(each, kind.resource) for each in facts.containers) for kind in KINDS}
        asked = [resource for resource, amount in amounts.items() if amount]
        if len(asked) > 1:
            raise BadNeed(f"the pod asks for both {' and '.join(asked)}; use only one of them in all its containers")
        for resource in asked:
            check_sum(resource, amounts[resource])
        return with_preferences(self.booked_need(facts), facts.annotations, options.card_order)

    def booked_need(self, facts: NeedFacts) -> PodNeed:
        containers = tuple(map(_container_need, facts.containers))
        wants_cards = any(container.count for container in containers)
        return PodNeed(
            containers=containers,
            company=ALONE if wants_cards else Company(),
            count_resources=_COUNTS,
        )


class VendorNodes:
    """Nodes on which a vendor's plugin states how many cards they have."""

    def source(self, node: Node) -> Hashable:
        allocatable = allocatable_resources(node)
        stated = tuple((kind.resource, allocatable[kind.resource]) for kind in KINDS if kind.resource in allocatable)
        return (
            (stated, tuple((each.card, each.driver, each.healthy and each.is_whole) for each in recorded_cards(node)))
            if stated
            else ()
        )

    def facts(self, node: Node) -> NodeFacts | None:
        allocatable = allocatable_resources(node)
        problems: list[str] = []
        recorded = recorded_cards(node)
        capacity: dict[Card, Mapping[str, int]] = {}
        following = max((record.card for record in recorded), default=-1) + 1
        for kind in KINDS:
            if (count := _count(kind, allocatable, problems)) == 0:
                continue
            whole = [each for each in recorded if each.healthy and each.is_whole]
            own = [each.card for each in whole if kind.driver and each.driver == kind.driver][:count]
            if own and len(own) < count:
                problems.append(
                    f"allocatable {kind.resource}: expected at most {len(own)}, the healthy cards of driver"
                    f" {kind.driver} in annotation {ANNOTATION}, found {count}; the smaller number counts"
                )
            if not own:
                own = [Card(following + number) for number in range(count)]
                following += count
            amounts = {kind.counted: 1, MILLICORES: MILLICORES_OF_A_CARD}
            capacity.update(dict.fromkeys(own, amounts))
        if not capacity and not problems:
            return None
        return NodeFacts(
            inventory=Inventory(capacity={card: capacity[card] for card in sorted(capacity)}),
            counted=not recorded,
            problems=tuple(problems),
        )


class VendorDevices(DeviceOffer):
    """Whole cards whose driver is a vendor's, each as one device. The vendors' plugins offer all others."""

    resources = tuple(kind.resource for kind in KINDS if kind.driver)

    def ids_per_card(self, card: CardFacts, options: DeviceOptions) -> Mapping[str, int]:
        if card.millicores < MILLICORES_OF_A_CARD:
            return {}
        return {kind.resource: 1 for kind in KINDS if kind.driver and kind.driver == card.driver}


VENDOR = Vocabulary(
    name="vendor",
    pods=VendorPods(),
    nodes=VendorNodes(),
    devices=VendorDevices(),
    user_annotations=PREFERENCES,
    reference=Reference(
        owner="vendors'",
        resources=tuple(
            Row(
                kind.resource,
                f"pods ask, the vendor's plugin{' or gas-plugin' * bool(kind.driver)} offers",
                "whole cards",
            )
            for kind in KINDS
        ),
    ),
)


def _container_need(container: ContainerFacts) -> ContainerNeed:
    """Return the need of a container; of one that asks for two vendors' cards, the first counts."""
    for kind in KINDS:
        if count := requested(container, kind.resource):
            whole = (Ratio(MILLICORES, PERCENT),)
            return ContainerNeed(container.name, count, ((kind.counted, 1),), container.role, whole)
    return ContainerNeed(container.name, role=container.role)


def _count(kind: Kind, allocatable: Mapping[str, Quantity], problems: list[str]) -> int:
    count = allocatable_amount(allocatable, kind.resource, problems)
    if count > MOST_RECORDS:
        problems.append(
            f"allocatable {kind.resource}: expected at most {MOST_RECORDS} cards, found {count}; it is ignored"
        )
        return 0
    return count
