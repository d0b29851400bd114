"""A vocabulary that no system speaks: it proves that a new one needs nothing but its own package.

A card has ten slices. A container asks for ``made-up.example/slice: 3`` and gets 300 millicores of one card. The node
names its cards in the label ``made-up.example/cards``, the pod gets the annotation ``made-up.example/card``.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace

from gas.objects.stored import Container, Node, Pod
from gas.placement.choice import Choice, ContainerChoice
from gas.placement.inventory import Inventory
from gas.placement.need import ContainerNeed, PodNeed, Role
from gas.values.amounts import parse_quantity, sorted_amounts
from gas.values.card_facts import CardFacts
from gas.values.cards import Card
from gas.vocabularies.protocol import (
    BadNeed,
    DeviceOffer,
    DeviceOptions,
    NeedOptions,
    NodeDescription,
    NodeFacts,
    Vocabulary,
)

SLICE = "made-up.example/slice"
CARDS = "made-up.example/cards"
CARD = "made-up.example/card"
ASSIGNED = "made-up.example/assigned"
VARIABLE = "MADE_UP_CARDS"
SLICES_OF_A_CARD = 10
MILLICORES_OF_A_SLICE = 100


class MadeUpPods:
    metadata: frozenset[str] = frozenset()
    resources = (SLICE,)

    def matches(self, pod: Pod) -> bool:
        containers = [*(pod.spec.init_containers or ()), *(pod.spec.containers or ())]
        return any(_slices(container) for container in containers)

    def need(self, pod: Pod, options: NeedOptions) -> PodNeed:
        need = replace(self.booked_need(pod), order=options.card_order)
        if any(_slices(container) > SLICES_OF_A_CARD for container in pod.spec.containers or ()):
            raise BadNeed(f"{SLICE}: expected at most {SLICES_OF_A_CARD} in a container")
        return need

    def booked_need(self, pod: Pod) -> PodNeed:
        init = [
            (each, Role.SIDECAR if each.restart_policy == "Always" else Role.INIT)
            for each in pod.spec.init_containers or ()
        ]
        started = [*init, *((each, Role.APP) for each in pod.spec.containers or ())]
        return PodNeed(tuple(_need(each, role) for each, role in started), count_resources=frozenset({"slice"}))


class MadeUpChoices:
    annotations = frozenset({CARD})

    def write(self, pod: Pod, need: PodNeed, choice: Choice, moment: int, node: NodeFacts | None) -> Mapping[str, str]:
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


class MadeUpNodes:
    def source(self, node: Node) -> Hashable:
        return node.labels.get(CARDS)

    def facts(self, node: Node) -> NodeFacts | None:
        if CARDS not in node.labels:
            return None
        cards = sorted(Card(int(number)) for number in node.labels[CARDS].split("."))
        whole = {"millicores": SLICES_OF_A_CARD * MILLICORES_OF_A_SLICE, "slice": SLICES_OF_A_CARD}
        return NodeFacts(inventory=Inventory(capacity=dict.fromkeys(cards, whole)))


class MadeUpDevices(DeviceOffer):
    resources = (SLICE,)

    def ids_per_card(self, card: CardFacts, options: DeviceOptions) -> Mapping[str, int]:
        return {SLICE: SLICES_OF_A_CARD}

    def describe(self, cards: Sequence[CardFacts], options: DeviceOptions) -> NodeDescription:
        return NodeDescription(labels={CARDS: ".".join(str(int(card.card)) for card in cards)} if cards else {})

    def owns_label(self, name: str) -> bool:
        return name == CARDS

    def environment(self, pod: Pod, container: str, cards: Sequence[CardFacts]) -> Mapping[str, str]:
        return {VARIABLE: ",".join(str(int(card.card)) for card in cards)}

    def after_allocate(self, pod: Pod) -> Mapping[str, str]:
        return {ASSIGNED: "true"}


MADE_UP = Vocabulary(
    name="made-up", pods=MadeUpPods(), choices=MadeUpChoices(), nodes=MadeUpNodes(), devices=MadeUpDevices()
)


def _slices(container: Container) -> int:
    requests = (container.resources.requests if container.resources else None) or {}
    return parse_quantity(requests.get(SLICE, 0))


def _need(container: Container, role: Role) -> ContainerNeed:
    if not (slices := _slices(container)):
        return ContainerNeed(container.name, role=role)
    amounts = {"slice": slices, "millicores": slices * MILLICORES_OF_A_SLICE}
    return ContainerNeed(container.name, 1, sorted_amounts(amounts), role)
