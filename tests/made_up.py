"""A vocabulary that no system uses: it proves that a new one needs nothing but its own package.

A card has ten slices. A container asks for ``made-up.example/slice: 3`` and gets 300 millicores of one card. The node
names its cards in the label ``made-up.example/cards``, the pod gets the annotation ``made-up.example/card``.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence

from gas.objects.stored import Node, Pod
from gas.placement.choice import Choice, ContainerChoice
from gas.placement.inventory import Inventory
from gas.placement.need import ContainerNeed, PodNeed
from gas.values.amounts import MILLICORES, sorted_amounts
from gas.values.card_facts import CardFacts
from gas.values.cards import Card
from gas.vocabularies.pod_parts import PREFERENCES, requested, requests_any, with_preferences
from gas.vocabularies.protocol import (
    BadNeed,
    Beginnings,
    ContainerFacts,
    DeviceOptions,
    NeedFacts,
    NeedOptions,
    NodeDescription,
    NodeFacts,
    Reference,
    Row,
    Vocabulary,
    WrittenNames,
)

SLICE = "made-up.example/slice"
CARDS = "made-up.example/cards"
CARD = "made-up.example/card"
ASSIGNED = "made-up.example/assigned"
VARIABLE = "MADE_UP_CARDS"
SLICES_OF_A_CARD = 10
MILLICORES_OF_A_SLICE = 100


class MadeUp(Vocabulary):
    name = "made-up"
    reference = Reference(
        owner="Made up",
        resources=(Row(SLICE, "pods ask, kubelet counts", "tenths of a card"),),
        pod_annotations=(Row(CARD, "the extender", "the numbers of the cards"),),
    )
    user_annotations = PREFERENCES
    resources = managed_resources = (SLICE,)
    asking = Beginnings(resources=(SLICE,))
    choice_annotations = frozenset({CARD})
    written = WrittenNames(labels=(CARDS,), pod_annotations=(ASSIGNED,))

    def matches(self, pod: Pod) -> bool:
        return requests_any(pod, SLICE)

    def need(self, facts: NeedFacts, options: NeedOptions) -> PodNeed:
        if any(requested(container, SLICE) > SLICES_OF_A_CARD for container in facts.containers):
            raise BadNeed(f"{SLICE}: expected at most {SLICES_OF_A_CARD} in a container")
        return with_preferences(self.booked_need(facts), facts.annotations, options)

    def booked_need(self, facts: NeedFacts) -> PodNeed:
        return PodNeed(tuple(map(_need, facts.containers)), count_resources=frozenset({"slice"}))

    def write(self, pod: Pod, need: PodNeed, choice: Choice, time_ns: int, node: NodeFacts | None) -> Mapping[str, str]:
        return {CARD: ",".join(str(int(card)) for each in choice.containers for card in each.cards)}

    def read(self, pod: Pod, need: PodNeed, node: NodeFacts | None) -> Choice | None:
        if not (text := pod.annotations.get(CARD)):
            return None
        cards = iter(text.split(","))
        return Choice(
            tuple(
                ContainerChoice(tuple(Card(int(next(cards))) for _ in range(container.count)))
                for container in need.containers
            )
        )

    def source(self, node: Node) -> Hashable:
        return node.labels.get(CARDS)

    def facts(self, node: Node) -> NodeFacts | None:
        if CARDS not in node.labels:
            return None
        cards = sorted(Card(int(number)) for number in node.labels[CARDS].split("."))
        whole = {MILLICORES: SLICES_OF_A_CARD * MILLICORES_OF_A_SLICE, "slice": SLICES_OF_A_CARD}
        return NodeFacts(inventory=Inventory(capacity=dict.fromkeys(cards, whole)))

    def ids_per_card(self, card: CardFacts, options: DeviceOptions) -> Mapping[str, int]:
        return {SLICE: SLICES_OF_A_CARD}

    def describe(self, cards: Sequence[CardFacts], options: DeviceOptions) -> NodeDescription:
        return NodeDescription(labels={CARDS: ".".join(str(int(card.card)) for card in cards)} if cards else {})

    def environment(self, pod: Pod, container: str, cards: Sequence[CardFacts], node: NodeFacts) -> Mapping[str, str]:
        return {VARIABLE: ",".join(str(int(card.card)) for card in cards)}

    def after_allocate(self, pod: Pod) -> Mapping[str, str]:
        return {ASSIGNED: "true"}


MADE_UP = MadeUp()


def _need(container: ContainerFacts) -> ContainerNeed:
    if not (slices := requested(container, SLICE)):
        return ContainerNeed(container.name, role=container.role)
    amounts = {"slice": slices, MILLICORES: slices * MILLICORES_OF_A_SLICE}
    return ContainerNeed(container.name, 1, sorted_amounts(amounts), container.role)
