"""Aliyun's vocabulary: ``aliyun.com/gpu-mem``, memory of one card."""

import re
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from gas.daemon import flag_values as values
from gas.daemon.flags import CommandFlags, PartFlags, flag
from gas.decision.annotations import MalformedAnnotation
from gas.objects.stored import Node, Pod
from gas.placement.choice import Choice, ContainerChoice
from gas.placement.inventory import Inventory
from gas.placement.need import ContainerNeed, PodNeed, Scope
from gas.placement.order import BestFit
from gas.placement.plan import plan_of
from gas.placement.ratio import Ratio
from gas.values.amounts import (
    MAX_AMOUNT,
    MEMORY_MAX,
    MILLICORES,
    MILLICORES_OF_A_CARD,
    MemoryUnit,
    StatedMemory,
    sorted_amounts,
)
from gas.values.card_facts import MOST_MEMORY, CardFacts
from gas.values.card_records import MOST_RECORDS
from gas.values.cards import Card, in_order
from gas.values.quoted import quoted
from gas.vocabularies.aliyun import names
from gas.vocabularies.node_parts import allocatable_amount, allocatable_resources, recorded_amounts
from gas.vocabularies.pod_parts import (
    CARD_NEAR,
    PREFERENCES,
    check_sum,
    need_facts,
    requested,
    requests_under,
    unknown_resources,
    with_preferences,
)
from gas.vocabularies.protocol import (
    BadNeed,
    ContainerFacts,
    DeviceOptions,
    NeedFacts,
    NeedOptions,
    NodeDescription,
    NodeFacts,
    Vocabulary,
)

USER_ANNOTATIONS = PREFERENCES - {CARD_NEAR}  # all containers of a pod get one card, so no other card can be near it
BEST_FIT = BestFit(MEMORY_MAX)  # the card with the least memory left first; of equal ones the lowest index

_INDEX = re.compile(r"0|[1-9][0-9]{0,8}", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class AliyunFlags(PartFlags):
    unit: MemoryUnit = flag(
        "aliyun-unit=UNIT",
        values.one_of(MemoryUnit),
        MemoryUnit.MIB,
        f"Amount of memory that {names.GPU_MEM} counts, MiB or GiB, with the vocabulary aliyun. Set the same for "
        "gas-extender and gas-plugin. --memory-unit, its name in Aliyun's plugin, is accepted as well.",
        group="Vocabularies",
        other_name="memory-unit",
    )


@dataclass(frozen=True, kw_only=True)
class Aliyun(Vocabulary):
    """The vocabulary of pods that request ``aliyun.com/gpu-mem``; all their containers get the same card.

    Cards have one device id for each unit of memory. Those that gas-plugin has not recorded share the memory evenly.
    """

    name = "aliyun"
    reference = names.REFERENCE
    component = names.COMPONENT
    flags = AliyunFlags
    user_annotations = USER_ANNOTATIONS
    resources = managed_resources = (names.GPU_MEM,)
    asking = names.ASKING
    # which Aliyun's extender writes on a pod, and its device plugin and its users read
    choice_annotations = names.WRITTEN_ANNOTATIONS
    time_annotation = names.ASSUME_TIME
    one_card = True
    written = names.WRITTEN
    unit: MemoryUnit

    def with_flags(self, flags: CommandFlags) -> Vocabulary:
        return Aliyun(unit=flags.of(AliyunFlags).unit)

    def matches(self, pod: Pod) -> bool:
        return requests_under(pod, names.BEGINNING)

    def need(self, facts: NeedFacts, options: NeedOptions) -> PodNeed:
        preferences = {name: text for name, text in facts.annotations.items() if name in USER_ANNOTATIONS}
        return with_preferences(self.booked_need(facts), preferences, options, BEST_FIT)

    def booked_need(self, facts: NeedFacts) -> PodNeed:
        units = sum(requested(each, names.GPU_MEM) for each in facts.containers)
        check_sum(names.GPU_MEM, units)
        if units * self.unit.bytes > MAX_AMOUNT:
            raise BadNeed(
                f"{names.GPU_MEM}: expected at most {MAX_AMOUNT // self.unit.bytes} {self.unit}, found {units};"
                " lower the requests"
            )
        return PodNeed(
            containers=tuple(map(self._container, facts.containers)),
            scope=Scope.CARD,
            count_resources=frozenset({names.UNITS}),
            stated_memory=StatedMemory(names.GPU_MEM, self.unit),
        )

    def _container(self, container: ContainerFacts) -> ContainerNeed:
        """Return the need of a container: memory, and the same part of the card's millicores."""
        if not (units := requested(container, names.GPU_MEM)):
            return ContainerNeed(container.name, role=container.role)
        memory = units * self.unit.bytes
        amounts = sorted_amounts({names.UNITS: units, MEMORY_MAX: memory})
        return ContainerNeed(container.name, 1, amounts, container.role, (Ratio(MILLICORES, memory, of=MEMORY_MAX),))

    def write(self, pod: Pod, need: PodNeed, choice: Choice, time_ns: int, node: NodeFacts | None) -> Mapping[str, str]:
        card = next(card for each in choice.containers for card in each.cards)
        units = next(
            each[1] for each in plan_of(need).totals() if not isinstance(each, Ratio) and each[0] == names.UNITS
        )
        written = {names.POD: str(units), names.ASSUME_TIME: str(time_ns), names.ASSIGNED: "false"}
        if node is not None and node.inventory.capacity.get(card, {}).get(names.UNITS):
            index = str(_in_order(node).index(card))
            written |= {names.INDEX: index, names.ID: index}
            written[names.CARD] = str(node.inventory.capacity[card][names.UNITS])
        return written

    def read(self, pod: Pod, need: PodNeed, node: NodeFacts | None) -> Choice | None:
        for name in (names.INDEX, names.ID):
            if not (text := pod.annotations.get(name)):
                continue
            if _INDEX.fullmatch(text) is None:
                raise MalformedAnnotation(name, f"expected the index of a card, found {quoted(text)}")
            card = dict(enumerate(_in_order(node))).get(int(text), Card(int(text)))
            return Choice(tuple(ContainerChoice((card,) if each.count else ()) for each in need.containers))
        return None

    def source(self, node: Node) -> Hashable:
        allocatable = allocatable_resources(node)
        if names.GPU_MEM not in allocatable:
            return ()
        return allocatable[names.GPU_MEM], allocatable.get(names.GPU_COUNT), recorded_amounts(node)

    def facts(self, node: Node) -> NodeFacts | None:
        allocatable = allocatable_resources(node)
        if names.GPU_MEM not in allocatable:
            return None
        problems: list[str] = []
        total = allocatable_amount(allocatable, names.GPU_MEM, problems)
        if (recorded := recorded_amounts(node)) is not None:
            capacity = self._recorded_capacity(recorded, total, problems)
        else:
            capacity = self._counted_capacity(
                allocatable_amount(allocatable, names.GPU_COUNT, problems), total, problems
            )
        return NodeFacts(inventory=Inventory(capacity=capacity), counted=recorded is None, problems=tuple(problems))

    def _recorded_capacity(
        self, recorded: Sequence[tuple[Card, int, int]], total: int, problems: list[str]
    ) -> dict[Card, Mapping[str, int]]:
        """Return what each card has by its own record. The node's total shows whether it counts in the same unit."""
        for other in MemoryUnit:
            if total and total == _units(recorded, other) != _units(recorded, self.unit):
                problems.append(
                    f"allocatable {names.GPU_MEM}: the device plugin counts in {other} and the extender in {self.unit},"
                    " so pods get no memory of this node; set the same --aliyun-unit for both"
                )
                return {card: {} for card, _, _ in recorded}
        if not total:
            return {card: {MEMORY_MAX: memory} if memory else {} for card, memory, _ in recorded}
        return {
            card: self._amounts(memory // self.unit.bytes, memory, millicores) for card, memory, millicores in recorded
        }

    def _counted_capacity(self, count: int, total: int, problems: list[str]) -> dict[Card, Mapping[str, int]]:
        """Return an equal part of the memory for each card."""
        if not total:
            return {}
        if not 1 <= count <= MOST_RECORDS:
            problems.append(
                f"allocatable {names.GPU_COUNT}: expected 1 to {MOST_RECORDS} cards, found {count}; pods get no card of"
                " this node"
            )
            return {}
        units = total // count
        if units * self.unit.bytes < MemoryUnit.GIB.bytes:
            problems.append(
                f"allocatable {names.GPU_MEM}: expected 1 GiB or more on a card, found {units} {self.unit}; if the"
                " device plugin counts in GiB, set --aliyun-unit=GiB"
            )
        if units * self.unit.bytes > MOST_MEMORY:
            problems.append(
                f"allocatable {names.GPU_MEM}: expected at most {MOST_MEMORY // self.unit.bytes} {self.unit} on a card,"
                f" found {units}; pods get no card of this node; check --aliyun-unit"
            )
            return {}
        return {Card(number): self._amounts(units, units * self.unit.bytes) for number in range(count)}

    def _amounts(self, units: int, memory: int, millicores: int = MILLICORES_OF_A_CARD) -> Mapping[str, int]:
        if not units:
            return {}
        return {names.UNITS: units, MEMORY_MAX: memory, MILLICORES: millicores}

    def ids_per_card(self, card: CardFacts, options: DeviceOptions) -> Mapping[str, int]:
        units = (card.memory or 0) // self.unit.bytes
        return {names.GPU_MEM: units} if units else {}

    def fewer_ids(self, resource: str) -> str:
        return "" if self.unit is MemoryUnit.GIB else f"set --aliyun-unit={MemoryUnit.GIB} for plugin and extender"

    def describe(self, cards: Sequence[CardFacts], options: DeviceOptions) -> NodeDescription:
        count = sum(card.healthy and bool(self.ids_per_card(card, options)) for card in cards)
        return NodeDescription(resources={names.GPU_COUNT: count} if count else {})

    def environment(self, pod: Pod, container: str, cards: Sequence[CardFacts], node: NodeFacts) -> Mapping[str, str]:
        if len(cards) != 1:
            return {}
        units = {each.name: requested(each, names.GPU_MEM) for each in need_facts(pod).containers}
        places = {card: str(at) for at, card in enumerate(_in_order(node))}
        index = pod.annotations.get(names.INDEX) or places.get(cards[0].card)
        return {
            **({names.INDEX: index} if index else {}),
            names.CARD: str((cards[0].memory or 0) // self.unit.bytes),
            names.POD: pod.annotations.get(names.POD) or str(sum(units.values())),
            names.CONTAINER: str(units[container]),
        }

    def after_allocate(self, pod: Pod) -> Mapping[str, str]:
        return {names.ASSIGNED: "true"} if pod.annotations.get(names.INDEX) else {}

    def faults(self, pod: Pod) -> Sequence[str]:
        others = {names.GPU_COUNT: f"which gives it no card; request {names.GPU_MEM}"}
        return unknown_resources(pod, names.BEGINNING, (names.GPU_MEM,), others)

    def warnings(self, pod: Pod, options: NeedOptions) -> Sequence[str]:
        try:
            units = sum(requested(each, names.GPU_MEM) for each in need_facts(pod).containers)
        except BadNeed:  # which refuses the pod
            return ()
        # Aliyun's inspect command takes a card with up to 100 units for one in GiB.
        if self.unit is MemoryUnit.GIB or not 0 < units < 100:
            return ()
        meant = (
            f"{units} means {units} MiB; if it is to mean {units} GiB, set --aliyun-unit=GiB for extender and plugin"
        )
        return (f"{names.GPU_MEM}: {meant}",)


ALIYUN = Aliyun(unit=AliyunFlags().unit)


def _in_order(node: NodeFacts | None) -> list[Card]:
    """Return the cards of a node that have memory or a UUID, healthy or not, in the order that indexes count.

    While kubelet offers no units, because the plugin is away, cards with bytes of memory count.
    """
    if node is None:
        return []
    capacity = node.inventory.capacity
    counted = [card for card in capacity if names.UNITS in capacity[card]]
    counted = counted or [card for card in capacity if MEMORY_MAX in capacity[card]]
    return in_order(counted, node.uuids)


def _units(recorded: Iterable[tuple[Card, int, int]], unit: MemoryUnit) -> int:
    return sum(memory // unit.bytes for _, memory, _ in recorded)
