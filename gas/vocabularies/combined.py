"""Combine the vocabularies that are switched on into one.

Needs are remembered by the content that they were read from, and pods that are larger than any real one are refused
before they are read. What several vocabularies state about one node is merged into one set of facts.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

import msgspec
from cachetools import LRUCache

from gas.decision.annotations import choice_annotations
from gas.decision.names import WRITTEN_ANNOTATIONS
from gas.objects.stored import Node, Pod
from gas.placement.choice import Choice
from gas.placement.inventory import Inventory, Link
from gas.placement.need import PodNeed
from gas.values import card_records
from gas.values.amounts import TILES, Amounts
from gas.values.card_facts import CardFacts, MemorySource
from gas.values.cards import Card, Tile, whole_card
from gas.values.quoted import quoted
from gas.vocabularies.node_parts import recorded_cards
from gas.vocabularies.pod_parts import need_facts, parse_request, with_preferences
from gas.vocabularies.protocol import (
    BadNeed,
    DeviceOptions,
    Faults,
    NeedFacts,
    NeedOptions,
    NodeDescription,
    NodeFacts,
    Vocabulary,
)

MOST_NEEDS = 4096  # needs that are remembered by the content that they were read from: about 2 kB each

LARGEST_REMEMBERED = 32 * 1024
"""Bytes of the largest content whose need is remembered. Larger ones are rare, and are read again each time."""

MOST_RESOURCES = 32  # Resources that a container may request. Real ones request a dozen; each costs time on every node.

MOST_CONTAINERS = 500  # containers of a pod that asks for cards; more would keep other work waiting
MOST_ANNOTATIONS = 10_000  # of such a pod; the API server refuses more than 256 KiB of them
MOST_CARD_CONTAINERS = 64
"""Containers of a pod that may ask for cards. Each is placed on every node, with those that run at the same time."""

LONGEST_ANNOTATION = 32 * 1024  # characters of an annotation that a need is read from: over 2,000 addresses of cards
MOST_RECORDS = 64  # records of nodes remembered by their text, up to 128 kB each: nodes of one model have the same

_encoder = msgspec.json.Encoder(order="sorted")


class TooLarge(BadNeed):
    """The pod has more of something than any real pod, so the rest of it was not read."""


class Vocabularies:
    """The vocabularies that are switched on, used as one.

    A pod uses one of them: a need in the names of two is refused, since no card could be booked for both.
    """

    def __init__(self, vocabularies: Iterable[Vocabulary], *, most_needs: int = MOST_NEEDS) -> None:
        given = tuple(vocabularies)
        replaced = {each.name: frozenset().union(*(o.replaces for o in given if o is not each)) for each in given}
        every = tuple(each.without(replaced[each.name]) for each in given)
        guests = {each.name: tuple(other for other in every if each.name in other.joins) for each in every}
        self._all = tuple(
            each if each.guests == guests[each.name] else replace(each, guests=guests[each.name]) for each in every
        )
        self._needs: LRUCache[Hashable, PodNeed] = LRUCache(most_needs)
        self.annotations = frozenset(WRITTEN_ANNOTATIONS).union(*(each.choice_annotations for each in self._all))
        """Every annotation that a choice or a receipt is written in."""
        self.metadata = self.annotations.union(*(each.metadata for each in self._all))
        """Every annotation of a bound pod that its booking depends on."""
        self.resources = tuple(dict.fromkeys(name for each in self._all for name in each.resources))
        """All resources that give cards to a container, by full name."""
        self.one_card_resources = frozenset(name for each in self._all if each.one_card for name in each.resources)
        """The `resources` of which a pod gets ids of one card only."""
        self.together_resources = frozenset(name for each in self._all if each.together for name in each.resources)
        """The `resources` of which each app container of a pod gets the cards of all of them."""
        self.managed_resources = tuple(dict.fromkeys(name for each in self._all for name in each.managed_resources))
        """All resources for whose pods kube-scheduler calls the extender, by full name."""
        self.ignored_resources = frozenset(name for each in self._all for name in each.ignored_resources)
        """The `managed_resources` that no node offers."""
        self.label_annotations = frozenset(name for each in self._all for name in each.label_annotations)
        """The annotations of a choice that are written as labels as well."""

    def __iter__(self) -> Iterator[Vocabulary]:
        return iter(self._all)

    def is_gpu_pod(self, pod: Pod) -> bool:
        return self.vocabulary_of(pod) is not None

    def need(self, pod: Pod, options: NeedOptions) -> PodNeed:
        """Return the need of a pod that is not bound yet, without containers if it asks for none. Raises BadNeed."""
        content = _content(pod, pod.annotations)
        return self._remembered(content, options, lambda: self._read_need(pod, options))

    def is_claimed(self, pod: Pod) -> bool:
        """Return whether kubelet takes the pod's cards from a ResourceClaim, and not from a device plugin."""
        if not (claimed := pod.claimed) or (vocabulary := self.vocabulary_of(pod)) is None:
            return False
        return any(name.startswith(vocabulary.asking.resources) for name in claimed)

    def booked_need(self, pod: Pod) -> PodNeed:
        """Return what a bound pod takes, in the first vocabulary that matches it. Raises BadNeed."""
        vocabulary = self.vocabulary_of(pod)
        if vocabulary is None:
            return PodNeed(())
        names = vocabulary.metadata.union(*(guest.metadata for guest in vocabulary.guests))
        content = _content(pod, {name: pod.annotations[name] for name in names & pod.annotations.keys()})
        return self._remembered(content, vocabulary.name, lambda: _booked_need(vocabulary, need_facts(pod)))

    def _remembered(self, content: bytes | None, purpose: Hashable, read: Callable[[], PodNeed]) -> PodNeed:
        if content is None:
            return read()
        key = (content, purpose)
        if (need := self._needs.get(key)) is None:
            need = self._needs[key] = read()
        return need

    def _read_need(self, pod: Pod, options: NeedOptions) -> PodNeed:
        matching = [each for each in self._all if each.matches(pod)]
        if matching:
            names = {name for each in (matching[0], *matching[0].guests) for name in each.user_annotations}
            _check_size(pod, names)
        facts = need_facts(pod)
        if len(matching) > 1:
            first, second = (each.name for each in matching[:2])
            raise BadNeed(f"the pod asks for GPUs in the words of {first} and of {second}; use only one of them")
        if not matching:
            return PodNeed(())
        vocabulary = matching[0]
        faults = Faults()
        need = faults.of(vocabulary.need, facts, options)
        for guest in vocabulary.guests if need is not None else ():
            need = faults.of(guest.with_rules, need, facts.annotations) or need
        if need is None:
            _read_apart(vocabulary, facts, options, faults)
        need = faults.none_in(need)
        _check_containers(need)
        return need

    def write_choice(
        self, pod: Pod, need: PodNeed, choice: Choice, time_ns: int, node: NodeFacts | None
    ) -> dict[str, str]:
        """Return the annotations that a Binding carries for a choice, with the empty text for outdated ones.

        An annotation of these that is already on the pending pod and that the choice does not set is outdated: it comes
        from a template made of another pod, or from a forger.
        """
        fresh = choice_annotations(need, choice, timestamp_ns=time_ns)
        if need.wants_cards and (vocabulary := self.vocabulary_of(pod)) is not None:
            for each in (vocabulary, *vocabulary.guests):
                fresh |= each.write(pod, need, choice, time_ns, node)
        outdated = {name: "" for name in self.annotations if pod.annotations.get(name) and name not in fresh}
        return outdated | fresh

    def source(self, node: Node) -> Hashable:
        """Return every part of a node's object that `facts` depends on, by value."""
        read = tuple((each.source(node), each.offered(node)) for each in self._all)
        return (*read, _recorded(node), tuple(_cordoned(node).items()))

    def facts(self, node: Node) -> NodeFacts:
        """Return what a node states about its cards in all vocabularies together."""
        offered = frozenset[str]().union(*(each.offered(node) for each in self._all))
        facts = replace(self._recorded_facts(node), offered=offered)
        if not (cordoned := _cordoned(node)):
            return facts
        closed_by = {
            card: (*facts.closed_by.get(card, ()), *(f"annotation {name}" for name in names))
            for card in facts.inventory.capacity
            if (names := cordoned.get(card) or cordoned.get(whole_card(card)))
        }
        inventory = replace(facts.inventory, disabled=facts.inventory.disabled | closed_by.keys())
        return replace(facts, inventory=inventory, closed_by={**facts.closed_by, **closed_by})

    def _recorded_facts(self, node: Node) -> NodeFacts:
        facts = self._stated(node)
        said = _recorded(node)
        if said == _NOT_RECORDED:
            return facts
        cards = facts.inventory.capacity.keys()
        known = {name: of_name for name, of in said.other_names if (of_name := of & cards)}
        inventory = with_recorded_closeness(facts.inventory, said.closeness)
        return replace(
            facts,
            inventory=replace(inventory, other_names=known, models={**inventory.models, **dict(said.models)}),
            unknown_memory=said.unknown_memory & cards,
            problems=(*facts.problems, *said.problems),
        )

    def uuids(self, node: Node) -> Mapping[str, Card]:
        """Return the cards of a node by UUID: those of its records, or else as a vocabulary states them."""
        recorded = {each.uuid: each.card for each in recorded_cards(node) if each.uuid}
        return recorded or next((uuids for each in self._all if (uuids := each.uuids(node))), {})

    def links(self, node: Node) -> tuple[Link, ...]:
        """Return the links that a node states in the words of its vocabularies, without those in its records."""
        return self._stated(node).inventory.links

    def _stated(self, node: Node) -> NodeFacts:
        return merged_facts([facts for each in self._all if (facts := each.facts(node)) is not None])

    def ids_per_card(self, card: CardFacts, options: DeviceOptions) -> Mapping[str, int]:
        return {name: ids for each in self._all for name, ids in each.ids_per_card(card, options).items()}

    def fewer_ids(self, resource: str) -> str:
        advice = (each.fewer_ids(resource) for each in self._all if resource in each.resources)
        return next(filter(None, advice), "")

    def monitoring_resources(self, *, split: bool) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for each in self._all for name in each.monitoring_resources(split=split)))

    def monitoring_of(self, card: CardFacts, *, split: bool) -> tuple[str, ...]:
        found = (each.monitoring_resource(card, split=split) for each in self._all)
        return tuple(dict.fromkeys(name for name in found if name is not None))

    def describe(self, cards: Sequence[CardFacts], options: DeviceOptions) -> NodeDescription:
        described = [each.describe(cards, options) for each in self._all]
        return NodeDescription(
            labels={name: text for each in described for name, text in each.labels.items()},
            annotations={
                **_identities(cards),
                **{name: text for each in described for name, text in each.annotations.items()},
            },
            resources={name: amount for each in described for name, amount in each.resources.items()},
        )

    def owns_label(self, name: str) -> bool:
        return any(each.owns_label(name) for each in self._all)

    def owns_annotation(self, name: str) -> bool:
        return name == card_records.ANNOTATION or any(each.owns_annotation(name) for each in self._all)

    def owns_resource(self, name: str) -> bool:
        return any(each.owns_resource(name) for each in self._all)

    def environment(self, pod: Pod, container: str, cards: Sequence[CardFacts], node: NodeFacts) -> Mapping[str, str]:
        vocabulary = self.vocabulary_of(pod)
        return vocabulary.environment(pod, container, cards, node) if vocabulary else {}

    def isolation(self, pod: Pod) -> str:
        vocabulary = self.vocabulary_of(pod)
        return vocabulary.isolation(pod) if vocabulary else ""

    def after_allocate(self, pod: Pod) -> Mapping[str, str]:
        vocabulary = self.vocabulary_of(pod)
        return vocabulary.after_allocate(pod) if vocabulary else {}

    def vocabulary_of(self, pod: Pod) -> Vocabulary | None:
        """Return the first vocabulary that a pod is written in, None if it asks for no cards in any."""
        for vocabulary in self._all:
            if vocabulary.matches(pod):
                return vocabulary
        return None


class Closeness(NamedTuple):
    """The place of a card among the others, as its record states it."""

    card: Card
    numa_node: int | None
    board: int | None
    links: tuple[Card, ...]


_NOWHERE = (None, None, ())  # the place of a card that is near to no other card, as far as its record states it


class _Recorded(NamedTuple):
    """The facts in a node's records of its cards that count in addition to what vocabularies state."""

    other_names: tuple[tuple[str, frozenset[Card]], ...]
    models: tuple[tuple[Card, str], ...]
    unknown_memory: frozenset[Card]
    closeness: tuple[Closeness, ...]
    problems: tuple[str, ...]


_NOT_RECORDED = _Recorded((), (), frozenset(), (), ())


def _recorded(node: Node) -> _Recorded:
    text = node.annotations.get(card_records.ANNOTATION)
    return _NOT_RECORDED if text is None else _recorded_in(text)


def _cordoned(node: Node) -> Mapping[Card, tuple[str, ...]]:
    """Return the cards that annotations of a node close, whole cards with their instances, by these names."""
    is_any = any(name.startswith(card_records.CORDON) for name in node.annotations)
    return card_records.cordoned_cards(node.annotations, recorded_cards(node)) if is_any else {}


@lru_cache(maxsize=MOST_RECORDS)
def _recorded_in(text: str) -> _Recorded:
    records, problems = card_records.parse_card_records(text)
    unknown = frozenset(record.card for record in records if record.memory_source == MemorySource.UNKNOWN)
    places = (Closeness(each.card, each.numa_node, each.board, each.links) for each in records)
    closeness = tuple(place for place in places if place[1:] != _NOWHERE)
    models = tuple((each.card, f"{each.driver}-{each.model}".lower()) for each in records if each.driver or each.model)
    return _Recorded(tuple(card_records.cards_by_name(records).items()), models, unknown, closeness, problems)


def _identities(cards: Sequence[CardFacts]) -> Mapping[str, str]:
    """Return the annotation with the records of cards; none without cards, or if it would be too long."""
    text = card_records.format_card_records(card_records.card_records(cards))
    return {card_records.ANNOTATION: text} if cards and len(text) <= card_records.MOST_BYTES else {}


def _read_apart(vocabulary: Vocabulary, facts: NeedFacts, options: NeedOptions, faults: Faults) -> None:
    """Read what can be read apart of a pod that has a fault: each amount, and its preferences."""
    for container in facts.containers:
        for name, amount in sorted(container.requests.items()):
            if name in vocabulary.managed_resources:
                faults.of(parse_request, container, name, amount)
    preferences = {name: text for name, text in facts.annotations.items() if name in vocabulary.user_annotations}
    faults.of(with_preferences, PodNeed(()), preferences, options)


def _booked_need(vocabulary: Vocabulary, facts: NeedFacts) -> PodNeed:
    """Return what a bound pod takes. Of its guests' rules, only labels still count for the pods that come later."""
    need = vocabulary.booked_need(facts)
    for guest in vocabulary.guests:
        with suppress(BadNeed):
            need = replace(need, company=guest.with_rules(need, facts.annotations).company)
    return need


def _content(pod: Pod, annotations: Mapping[str, str]) -> bytes | None:
    """Return the parts of a pod that its need is read from, as one value: pods of one template share it.

    None if it is too large to be remembered. For a pod larger than any real one it is not even computed.
    """
    length = sum(map(len, annotations)) + sum(map(len, annotations.values()))
    if length > LARGEST_REMEMBERED or _too_many_resources(pod) is not None:
        return None
    content = _encoder.encode((pod.spec.containers, pod.spec.init_containers, annotations))
    return content if len(content) <= LARGEST_REMEMBERED else None


def _too_many_resources(pod: Pod) -> str | None:
    """Return a sentence about a container that requests more resources than any real one, None if there is none."""
    for containers in (pod.spec.init_containers, pod.spec.containers):
        for container in containers or ():
            if len(requests := container.requests) > MOST_RESOURCES:
                return (
                    f"container {quoted(container.name)}: expected requests of at most {MOST_RESOURCES} resources,"
                    f" found {len(requests)}; remove some"
                )
    return None


def container_count(pod: Pod) -> int:
    return len(pod.spec.containers or ()) + len(pod.spec.init_containers or ())


def _check_size(pod: Pod, names: Iterable[str]) -> None:
    """Raise TooLarge for a pod with more containers or resources or longer annotations than any real one."""
    if (count := container_count(pod)) > MOST_CONTAINERS:
        raise TooLarge(f"the pod has {count} containers, expected at most {MOST_CONTAINERS}; use several pods")
    if (count := len(pod.annotations)) > MOST_ANNOTATIONS:
        raise TooLarge(f"the pod has {count} annotations, expected at most {MOST_ANNOTATIONS}; remove some")
    if (sentence := _too_many_resources(pod)) is not None:
        raise TooLarge(sentence)
    for name in sorted(names):
        if len(text := pod.annotations.get(name, "")) > LONGEST_ANNOTATION:
            raise TooLarge(f"{name}: expected at most {LONGEST_ANNOTATION} characters, found {len(text)}; shorten it")


def _check_containers(need: PodNeed) -> None:
    """Raise BadNeed for a pod with more containers with cards than any real one has: placing them takes time."""
    if (count := sum(container.count > 0 for container in need.containers)) > MOST_CARD_CONTAINERS:
        raise BadNeed(
            f"the pod has {count} containers that ask for cards, expected at most {MOST_CARD_CONTAINERS};"
            " use several pods"
        )


def merged_facts(facts: Sequence[NodeFacts]) -> NodeFacts:
    """Merge what several vocabularies read from one node into one set of facts.

    A card has what any of them states. Where two state different amounts of one resource, the smaller counts, which
    becomes a problem.
    """
    if len(facts) == 1:
        return facts[0]
    problems = list(dict.fromkeys(problem for each in facts for problem in each.problems))
    facts = _on_named_cards(facts, problems)
    inventories = [each.inventory for each in facts]
    capacity: dict[Card, Amounts] = {}
    for card in sorted({card for inventory in inventories for card in inventory.capacity}):
        amounts: dict[str, int] = {}
        for inventory in inventories:
            for name, amount in inventory.capacity.get(card, {}).items():
                if amounts.setdefault(name, amount) != amount:
                    smaller = min(amounts[name], amount)
                    problems.append(
                        f"{card}: one vocabulary says {max(amounts[name], amount)} of {name}, another {smaller};"
                        " the smaller amount counts"
                    )
                    amounts[name] = smaller
        capacity[card] = amounts
    closed: dict[Card, frozenset[int]] = {}
    preferred_tiles: dict[Card, tuple[int, ...]] = {}
    for inventory in inventories:  # the smaller amount of tiles counts, so some that a vocabulary names may not exist
        for card, tiles in inventory.closed_tiles.items():
            count = capacity[card].get(TILES, 0)
            closed[card] = closed.get(card, frozenset()) | {tile for tile in tiles if tile < count}
        for card, order in inventory.preferred_tiles.items():
            count = capacity[card].get(TILES, 0)
            preferred_tiles.setdefault(card, tuple(tile for tile in order if tile < count))
    return NodeFacts(
        inventory=Inventory(
            capacity=capacity,
            disabled=frozenset().union(*(inventory.disabled for inventory in inventories)),
            closed_tiles=closed,
            preferred_card=next((each.preferred_card for each in inventories if each.preferred_card is not None), None),
            preferred_tiles=preferred_tiles,
            numa_groups=next((each.numa_groups for each in inventories if each.numa_groups is not None), None),
            links=tuple(dict.fromkeys(link for inventory in inventories for link in inventory.links)),
            boards=next((each.boards for each in inventories if each.boards), ()),
            partitions=tuple(partition for each in inventories for partition in each.partitions),
            partitioned=any(each.partitioned for each in inventories),
            models={card: model for each in inventories for card, model in each.models.items()},
        ),
        deschedule_cards=frozenset().union(*(each.deschedule_cards for each in facts)),
        deschedule_tiles=frozenset().union(*(each.deschedule_tiles for each in facts)),
        closed_by={card: tuple(text for each in facts for text in each.closed_by.get(card, ())) for card in capacity},
        problems=tuple(problems),
    )


def closeness_to(card: Card, cards: Iterable[CardFacts]) -> Mapping[Card, int]:
    """Return how close other cards of a node are to one, see `Inventory.closeness`."""
    places = [Closeness(each.card, each.numa_node, each.board, each.links) for each in cards]
    return with_recorded_closeness(Inventory(capacity={each.card: {} for each in sorted(places)}), places).closeness(
        card
    )


def with_recorded_closeness(inventory: Inventory, recorded: Sequence[Closeness]) -> Inventory:
    """Add the NUMA nodes, boards and links in the records of cards. What a vocabulary states comes first."""
    recorded = [each for each in recorded if each.card in inventory.capacity]
    numa_nodes = {each.card: each.numa_node for each in recorded if each.numa_node is not None}
    boards = {each.card: each.board for each in recorded if each.board is not None}
    linked = {card for link in inventory.links for card in (link.one.card, link.other.card)}
    pairs: Counter[tuple[Card, Card]] = Counter()
    for each in recorded:
        for other, number in Counter(each.links).items():
            if other in inventory.capacity and linked.isdisjoint((each.card, other)):
                pair = min(each.card, other), max(each.card, other)
                pairs[pair] = max(pairs[pair], number)
    numa_groups = _with_groups(inventory.numa_groups or (), numa_nodes)
    tiles = {card: Tile(card, 0) for card in inventory.capacity}
    return replace(
        inventory,
        numa_groups=numa_groups or inventory.numa_groups,
        boards=_with_groups(inventory.boards, boards),
        links=(*inventory.links, *(Link(tiles[one], tiles[other]) for one, other in sorted(pairs.elements()))),
    )


def _with_groups(groups: Sequence[tuple[Card, ...]], recorded: Mapping[Card, int]) -> tuple[tuple[Card, ...], ...]:
    """Return the groups with the cards that none of them has, by the numbers in their records."""
    of_card = {card: at for at, group in enumerate(groups) for card in group}
    placed = [list(group) for group in groups]
    of_number = {recorded[card]: at for card, at in of_card.items() if card in recorded}
    for card, number in recorded.items():
        if card in of_card:
            continue
        if number not in of_number:
            of_number[number] = len(placed)
            placed.append([])
        placed[of_number[number]].append(card)
    return tuple(map(tuple, placed))


def _on_named_cards(facts: Sequence[NodeFacts], problems: list[str]) -> list[NodeFacts]:
    """Return the facts with counted cards mapped to named cards, in their order.

    A counted card beyond the named ones does not exist; a named card beyond the counted ones has nothing of theirs.
    """
    named = sorted({card for each in facts if not each.counted for card in each.inventory.capacity})
    placed: list[NodeFacts] = []
    for each in facts:
        if each.counted and named:
            amounts = list(each.inventory.capacity.values())
            if len(amounts) != len(named):
                problems.append(
                    f"one vocabulary names {len(named)} card(s), another counts {len(amounts)}; the first"
                    f" {min(len(amounts), len(named))} of them count for both"
                )
            capacity = dict(zip(named, amounts, strict=False))
            each = replace(each, inventory=Inventory(capacity=capacity), counted=False)  # noqa: PLW2901
        placed.append(each)
    return placed
