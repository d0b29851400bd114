"""Koordinator's vocabulary: shares of the memory and compute of cards."""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import msgspec

from gas.decision.annotations import LONGEST, MalformedAnnotation
from gas.objects.json_patch import Patch
from gas.objects.stored import NewPod, Node, Pod, Quantity
from gas.placement.candidates import UseAtStart
from gas.placement.choice import Choice, ContainerChoice, footprint
from gas.placement.inventory import Inventory
from gas.placement.need import ContainerNeed, PodNeed, Role
from gas.placement.order import DEFAULT_ORDER, CardOrder, NodeScore
from gas.placement.ratio import PERCENT, Ratio
from gas.values.amounts import MEMORY_MAX, MILLICORES, MILLICORES_OF_A_CARD, Amounts, sorted_amounts
from gas.values.card_facts import MOST_MEMORY, CardFacts
from gas.values.card_records import MOST_RECORDS, model_label
from gas.values.cards import Card, exchange_numbers
from gas.values.quoted import quoted
from gas.vocabularies.koordinator import hints, names, rules
from gas.vocabularies.node_parts import allocatable_amount, allocatable_resources, recorded_cards
from gas.vocabularies.pod_parts import (
    PREFERENCES,
    check_sum,
    requested,
    requests_under,
    unknown_resources,
    with_preferences,
)
from gas.vocabularies.protocol import (
    BadNeed,
    ContainerFacts,
    DeviceOptions,
    Faults,
    NeedFacts,
    NeedOptions,
    NodeDescription,
    NodeFacts,
    Vocabulary,
)

_MILLICORES_OF_CORE = MILLICORES_OF_A_CARD // rules.OF_A_CARD


class _Read(msgspec.Struct):
    """A device as Koordinator wrote it; no other field identifies the card."""

    minor: int


class _Devices(msgspec.Struct):
    gpu: list[_Read] = []


def format_device_allocated(
    amounts: Mapping[Card, Amounts], capacity: Mapping[Card, Amounts], minor_of: Callable[[int], int]
) -> str:
    """Return the text of the annotation for what a pod takes of each of its cards, numbered by ``minor_of``.

    The percentage of a card whose memory is not known is left out.
    """
    devices = []
    for card, taken in sorted(amounts.items()):
        has = capacity.get(card, {}).get(MEMORY_MAX, 0)
        # A whole card in the words of a vendor does not state it, and a place on a shared one takes none.
        memory = taken.get(MEMORY_MAX, has if MILLICORES in taken else 0)
        resources = {
            names.full_name(names.CORE): taken.get(MILLICORES, 0) // _MILLICORES_OF_CORE,
            names.full_name(names.MEMORY): memory,
        }
        if has:
            # Rounded up: a part of a card was rounded down to bytes, and must read as the percentage that it was.
            resources[names.full_name(names.MEMORY_RATIO)] = -(-memory * PERCENT // has)
        texts = {name: str(amount) for name, amount in resources.items()}
        devices.append({"minor": minor_of(card), "resources": texts})
    return msgspec.json.encode({"gpu": devices}).decode()


def parse_allocated(text: str, cards: Iterable[Card] = ()) -> tuple[Card, ...]:
    """Return the cards that the annotation names; ``cards`` are those of the node. Raises MalformedAnnotation."""
    if len(text) > LONGEST:
        raise MalformedAnnotation(names.ALLOCATED, f"expected at most {LONGEST} characters, found {len(text)}")
    try:
        devices = hints.decoded(text, _Devices).gpu
    except (msgspec.DecodeError, RecursionError) as error:
        raise MalformedAnnotation(
            names.ALLOCATED, f'expected JSON such as {{"gpu":[{{"minor":0}}]}}, found {quoted(text)}: {error}'
        ) from None
    minors = [device.minor for device in devices]
    if len(minors) > MOST_RECORDS or len(set(minors)) < len(minors) or any(not 0 <= each < 10**9 for each in minors):
        raise MalformedAnnotation(names.ALLOCATED, f"expected different numbers of cards, found {quoted(text)}")
    return tuple(map(Card, map(exchange_numbers(cards), minors)))


RESOURCES = tuple(map(names.full_name, names.RESOURCES))
_SHARED = names.full_name(names.SHARED)
_MEMORY = names.full_name(names.MEMORY)
_COUNTING = tuple(map(names.full_name, (names.SHARED, names.MEMORY_RATIO, names.CORE, names.GPU)))
"""Resources of which a node has 100 for each card; nodes of earlier releases of Koordinator lack the first."""


@dataclass(frozen=True, slots=True)
class LeastAllocated(CardOrder):
    """The card with the largest percentage of its memory left after the pod first, which spreads pods."""

    name = "least-allocated"

    def key(self, card: Card, use: UseAtStart) -> tuple[int, ...]:
        memory = use.capacity(card).get(MEMORY_MAX, 0)
        left = use.left(card, MEMORY_MAX) - use.wanted(card).get(MEMORY_MAX, 0)
        return (-(left * PERCENT // memory) if memory else 0,)


LEAST_ALLOCATED = LeastAllocated()


class Koordinator(Vocabulary):
    """The vocabulary of shares of cards under ``koordinator.sh/gpu``; the webhooks report misspelt names as well.

    A card is ``koordinator.sh/gpu.shared``, with 100 device ids; the other resources are sums of the node. Cards that
    gas-plugin has not recorded share the node's memory evenly.
    """

    name = "koordinator"
    reference = names.REFERENCE
    component = names.COMPONENT
    user_annotations = PREFERENCES | {names.HINT, names.PARTITION_SPEC}
    joins = frozenset({"vendor"})
    managed_resources = RESOURCES
    asking = names.ASKING
    metadata = frozenset({names.HINT})
    # which Koordinator's scheduler writes on a pod, and its node agent and its users read
    choice_annotations = frozenset({names.ALLOCATED, names.MINORS})
    resources = (_SHARED,)
    together = True
    written = names.WRITTEN
    completed = names.ASKING

    def matches(self, pod: Pod) -> bool:
        return requests_under(pod, names.BEGINNING)

    def need(self, facts: NeedFacts, options: NeedOptions) -> PodNeed:
        asked, faults = _asked(facts), Faults()
        faults.of(_check_vendors, facts)
        for positions in _groups(asked):
            each = [asked[position][1] for position in positions]
            for position in positions:
                container, amounts = asked[position]
                if not amounts.get(names.SHARED) and (fault := rules.fault(amounts)):
                    faults.add(f"container {quoted(container.name)}: {fault}")
            if fault := rules.fault(rules.total(each)):
                others = f" and {len(each) - 1} more together" if len(each) > 1 else ""
                faults.add(f"container {quoted(asked[positions[0]][0].name)}{others}: {fault}")
        faults.of(self.with_rules, PodNeed(()), facts.annotations)
        faults.none_in(asked)
        for name in names.RESOURCES:
            check_sum(names.full_name(name), sum(amounts.get(name, 0) for _, amounts in asked))
        need = self.with_rules(_need(asked), facts.annotations)
        own_order = LEAST_ALLOCATED if options.card_order == DEFAULT_ORDER else options.card_order
        need = with_preferences(need, facts.annotations, options, own_order)
        return replace(need, node_score=need.node_score or NodeScore.SPREAD)

    def booked_need(self, facts: NeedFacts) -> PodNeed:
        return replace(_need(_asked(facts)), company=hints.company(facts.annotations))

    def with_rules(self, need: PodNeed, annotations: Mapping[str, str]) -> PodNeed:
        return hints.with_rules(need, annotations)

    def write(self, pod: Pod, need: PodNeed, choice: Choice, time_ns: int, node: NodeFacts | None) -> Mapping[str, str]:
        capacity = node.inventory.capacity if node is not None else {}
        taken = {card: dict(amounts) for card, amounts in footprint(need, choice, capacity).amounts.items()}
        minor_of = exchange_numbers(_cards(node))
        minors = ",".join(str(minor_of(card)) for card in sorted(taken))
        return {names.ALLOCATED: format_device_allocated(taken, capacity, minor_of), names.MINORS: minors}

    def read(self, pod: Pod, need: PodNeed, node: NodeFacts | None) -> Choice | None:
        """Return the cards that Koordinator allocated: one container after the other has as many as it requests.

        If there are more or fewer, each has all of them.
        """
        text = pod.annotations.get(names.ALLOCATED)
        if not text or not (cards := parse_allocated(text, _cards(node))):
            return None
        following = iter(cards) if need.cards == len(cards) else None
        chosen: list[ContainerChoice] = []
        for each in need.containers:
            if not each.count:
                chosen.append(ContainerChoice())
            elif each.role is Role.INIT:
                chosen.append(ContainerChoice(cards[: each.count]))
            elif following is None:
                chosen.append(ContainerChoice(cards))
            else:
                chosen.append(ContainerChoice(tuple(next(following) for _ in range(each.count))))
        return Choice(tuple(chosen))

    def source(self, node: Node) -> Hashable:
        allocatable = allocatable_resources(node)
        stated = tuple(allocatable.get(name) for name in RESOURCES)
        partitions = node.annotations.get(names.PARTITIONS), node.labels.get(names.PARTITION_POLICY)
        return (stated, partitions, recorded_cards(node)) if any(each is not None for each in stated) else ()

    def facts(self, node: Node) -> NodeFacts | None:
        allocatable = allocatable_resources(node)
        if not any(name in allocatable for name in _COUNTING):
            return None
        problems: list[str] = []
        recorded = recorded_cards(node)
        if recorded:
            shared = allocatable_amount(allocatable, _SHARED, problems)
            capacity = {
                each.card: _amounts(each.memory or 0, each.millicores) if shared else {}
                for each in recorded
                if each.healthy
            }
        else:
            capacity = _counted_capacity(allocatable, problems)
        inventory = Inventory(
            capacity=capacity,
            partitions=hints.partitions(node, (each.card for each in recorded), problems),
            partitioned=node.labels.get(names.PARTITION_POLICY) == "Honor",
        )
        return NodeFacts(inventory=inventory, counted=not recorded, problems=tuple(problems))

    def ids_per_card(self, card: CardFacts, options: DeviceOptions) -> Mapping[str, int]:
        # Kubelet counts unhealthy devices in the node's capacity, and Koordinator does not.
        return {_SHARED: rules.OF_A_CARD} if card.healthy else {}

    def describe(self, cards: Sequence[CardFacts], options: DeviceOptions) -> NodeDescription:
        healthy = [card for card in cards if card.healthy]
        if not healthy:
            return NodeDescription()
        whole = rules.OF_A_CARD * len(healthy)
        amounts = {
            names.GPU: whole,
            names.CORE: sum(card.millicores for card in healthy) // _MILLICORES_OF_CORE,
            names.MEMORY_RATIO: rules.OF_A_CARD * sum(bool(card.memory) for card in healthy),
            names.MEMORY: sum(card.memory or 0 for card in healthy),
        }
        stated = {
            names.MODEL: {model_label(card.model) for card in healthy},
            names.VENDOR: {"nvidia" if card.driver == "nvidia" else "intel" for card in healthy},
            names.DRIVER: {model_label(card.driver_version) for card in healthy},
        }
        return NodeDescription(
            labels={name: min(texts) for name, texts in stated.items() if len(texts) == 1 and min(texts)},
            resources={names.full_name(name): amount for name, amount in amounts.items() if amount},
        )

    def isolation(self, pod: Pod) -> str:
        label = (pod.metadata.labels or {}).get(names.ISOLATION)
        return names.HAMI_CORE.lower() if label == names.HAMI_CORE else ""

    def faults(self, pod: Pod) -> Sequence[str]:
        return unknown_resources(pod, names.BEGINNING, RESOURCES)

    def warnings(self, pod: Pod, options: NeedOptions) -> Sequence[str]:
        return list(hints.without_effect(pod))

    def complete(self, pod: NewPod) -> Patch:
        return rules.completion(pod)


KOORDINATOR = Koordinator()

_Asked = tuple[ContainerFacts, Mapping[str, int]]
"""A container, and what it requests by the names of Koordinator's resources without their prefix."""


def _cards(node: NodeFacts | None) -> set[Card]:
    """Return the cards of a node, healthy or not as far as they have UUIDs."""
    return set() if node is None else {*node.inventory.capacity, *node.uuids.values()}


def _asked(facts: NeedFacts) -> list[_Asked]:
    full_names = dict(zip(names.RESOURCES, RESOURCES, strict=True))
    return [
        (each, {name: requested(each, full) for name, full in full_names.items() if full in each.requests})
        for each in facts.containers
    ]


def _check_vendors(facts: NeedFacts) -> None:
    """Raise BadNeed for a pod that also asks for whole cards of a vendor's plugin."""
    for container in facts.containers:
        for name in names.VENDORS:
            if name in container.requests:
                raise BadNeed(
                    f"container {quoted(container.name)}: {name} cannot be combined with resources under"
                    f" {names.PREFIX}; use only one of them in the whole pod"
                )


def _groups(asked: Sequence[_Asked]) -> list[list[int]]:
    """Return the positions of the containers that ask for cards: app containers together, any other alone."""
    asking = [position for position, (_, amounts) in enumerate(asked) if amounts]
    apps = [position for position in asking if asked[position][0].role is Role.APP]
    others = [[position] for position in asking if asked[position][0].role is not Role.APP]
    return [*others, *([apps] if apps else [])]


def _need(asked: Sequence[_Asked]) -> PodNeed:
    """Return the need of a pod; a part of a card's memory becomes bytes when the card is chosen.

    App containers take what they request together in equal parts of as many cards as they request together, and each
    has as many of these cards as it has device ids. Pods from before there was a number of cards have no such ids.
    """
    containers = [ContainerNeed(container.name, role=container.role) for container, _ in asked]
    apart: list[int] = []
    for positions in _groups(asked):
        share = rules.share(rules.total([asked[position][1] for position in positions]))
        if share is None:
            continue
        counts = [asked[position][1].get(names.SHARED, 0) for position in positions]
        if sum(counts) != share.cards:
            counts = [share.cards, *(0 for _ in counts[1:])]
        with_cards = [(position, count) for position, count in zip(positions, counts, strict=True) if count]
        for position, count in with_cards:
            containers[position] = _container_need(asked[position][0], count, share)
        apart += [position for position, _ in with_cards] if len(with_cards) > 1 else []
    return PodNeed(tuple(containers), apart=frozenset(apart), count_resources=frozenset({names.SHARED}))


def _container_need(container: ContainerFacts, count: int, share: rules.Share) -> ContainerNeed:
    per_card = {names.SHARED: 1}
    if share.core:
        per_card[MILLICORES] = share.core * _MILLICORES_OF_CORE
    if share.memory:
        per_card[MEMORY_MAX] = share.memory
    ratios = (Ratio(MEMORY_MAX, share.memory_ratio),) if share.memory_ratio else ()
    return ContainerNeed(container.name, count, sorted_amounts(per_card), container.role, ratios)


def _amounts(memory: int, millicores: int = MILLICORES_OF_A_CARD) -> Mapping[str, int]:
    amounts = {names.SHARED: rules.OF_A_CARD, MILLICORES: millicores}
    return {**amounts, MEMORY_MAX: memory} if memory else amounts


def _counted_capacity(allocatable: Mapping[str, Quantity], problems: list[str]) -> dict[Card, Mapping[str, int]]:
    """Return an equal part of the memory for each card that a node without records counts."""
    counting = next(name for name in _COUNTING if name in allocatable)
    if not (whole := allocatable_amount(allocatable, counting, problems)):
        return {}
    count, rest = divmod(whole, rules.OF_A_CARD)
    if rest or count > MOST_RECORDS:
        problems.append(
            f"allocatable {counting}: expected {rules.OF_A_CARD} for each of at most {MOST_RECORDS} cards, found"
            f" {whole}; pods get no card of this node"
        )
        return {}
    memory = allocatable_amount(allocatable, _MEMORY, problems) // count
    if memory > MOST_MEMORY:
        problems.append(
            f"allocatable {_MEMORY}: expected at most {MOST_MEMORY} bytes on a card, found {memory}; pods get no card"
            " of this node"
        )
        return {}
    return {Card(number): _amounts(memory) for number in range(count)}
