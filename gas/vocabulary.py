"""The seam between gas and the vocabularies that its users write their needs in.

A vocabulary is the set of names that one GPU scheduling system uses: how pods ask for cards, how nodes say which cards
they have, and what kubelet is offered for a card. Extender and plugin know only the interfaces of this module.
Placement and the ledger do not even know these: a vocabulary turns Kubernetes objects into needs and inventories in
canonical amounts (``memory.max`` in bytes, ``millicores`` with 1000 a card, ``tiles``) plus a count resource of its
own, so that pods of several vocabularies share a card safely.

The interfaces are split by question, and a `Vocabulary` is a frozen record of them. What gas itself writes on a pod,
the decision and the receipt, is the same for every vocabulary: see `gas.decision`.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple, Protocol

import msgspec
from cachetools import LRUCache

from gas import card_records
from gas.amounts import TILES, Amounts
from gas.card_facts import CardFacts, MemorySource
from gas.cards import Card, Tile
from gas.decision.annotations import choice_annotations, read_choice
from gas.decision.names import WRITTEN_ANNOTATIONS
from gas.errors import GasError
from gas.json_patch import Patch
from gas.objects import Node, Pod
from gas.placement.choice import Choice
from gas.placement.inventory import Inventory
from gas.placement.need import PodNeed
from gas.placement.order import DEFAULT_ORDER, CardOrder
from gas.quoted import quoted

MOST_NEEDS = 4096
"""Needs that are remembered by the content that they were read from: about 2 kB each."""

LARGEST_REMEMBERED = 32 * 1024
"""Bytes of the largest content whose need is remembered. Larger ones are rare, and are read again each time."""

MOST_RESOURCES = 32
"""Resources that a container of a GPU pod may request. Real ones request a dozen; each costs time on every node."""

MOST_CARD_CONTAINERS = 64
"""Containers of a pod that may ask for cards. Each is placed on every node, beside those that run at the same time."""

LONGEST_WISH = 32 * 1024
"""Characters of an annotation that a need is read from: over 2,000 PCI addresses of cards."""

_encoder = msgspec.json.Encoder(order="sorted")


class BadNeed(GasError):
    """No node could give what the pod asks for. The sentence has at most 200 characters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NeedOptions:
    """The needs that the administrator lets pods state.

    allowlist, denylist  whether annotations that allow or deny single cards count
    card_order           the order in which cards are tried for a pod that does not choose one
    """

    allowlist: bool = False
    denylist: bool = False
    card_order: CardOrder = DEFAULT_ORDER


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFacts:
    """The facts about cards that a node's object states.

    counted           the node states only how many cards it has, so that card0, card1 and so on stand for the first
                      card, the second and so on; where another vocabulary names the cards, these are meant
    deschedule_cards  pods that hold one of these should leave; the cards are not disabled by it
    deschedule_tiles  likewise; these tiles are closed as well
    unknown_memory    cards of which the plugin does not know how much memory they have
    problems          what is invalid on the node, one sentence each, the same for equal nodes
    """

    inventory: Inventory
    counted: bool = False
    deschedule_cards: frozenset[Card] = frozenset()
    deschedule_tiles: frozenset[Tile] = frozenset()
    unknown_memory: frozenset[Card] = frozenset()
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeDescription:
    """The texts and amounts that the plugin writes on its node.

    resources  amounts by full name; those of memory are in bytes
    """

    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    resources: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceOptions:
    """How the administrator wants cards to be offered.

    shared_dev_num      how many containers may share one card
    pci_grouping_level  how many folders of their sysfs paths the cards of one board share; 0: boards are not described
    """

    shared_dev_num: int = 1
    pci_grouping_level: int = 0


class PodWords(Protocol):
    """Turn a pod into its need."""

    @property
    def metadata(self) -> frozenset[str]:
        """Names of the annotations and labels of a bound pod that `booked_need` depends on, beside its containers."""

    @property
    def resources(self) -> tuple[str, ...]:
        """Full names of the resources of which every pod with cards requests one: kube-scheduler asks about these."""

    def speaks(self, pod: Pod) -> bool:
        """Return whether the pod asks for anything in this vocabulary. Called for every pod of the cluster."""

    def need(self, pod: Pod, options: NeedOptions) -> PodNeed:
        """Return what a pod needs that is not bound yet. Raises BadNeed with a sentence for its owner.

        It depends on the pod's containers, annotations and labels, and on nothing else of the pod.
        """

    def booked_need(self, pod: Pod) -> PodNeed:
        """Return what the containers of a bound pod take, as far as it can be read. Raises BadNeed.

        Rules and wishes in its annotations no longer count: they were met or not, and may have been edited since. What
        other pods depend on counts, such as company labels.
        """


class ChoiceWords(Protocol):
    """Turn a choice into the vocabulary's own annotations, beside those of `gas.decision`, and back."""

    @property
    def annotations(self) -> frozenset[str]:
        """Names of the pod annotations that `write` may set and `read` looks at."""

    def write(self, pod: Pod, need: PodNeed, choice: Choice, moment: int, node: NodeFacts | None) -> Mapping[str, str]:
        """Return the vocabulary's own annotations for a choice.

        moment  nanoseconds since the epoch, the same as in ``gas-ts``
        node    the node that was chosen
        """

    def read(self, pod: Pod, need: PodNeed, node: NodeFacts | None) -> Choice | None:
        """Return the choice written on a pod that the vocabulary's old system bound, None if none is written.

        Raises MalformedAnnotation when its annotations cannot be a choice for this need.
        """


class NodeWords(Protocol):
    """Turn a node into facts about its cards."""

    def source(self, node: Node) -> Hashable:
        """Return every part of the node's object that `facts` depends on, by value: equal sources have equal facts."""

    def facts(self, node: Node) -> NodeFacts | None:
        """Return what the node says in this vocabulary, None if it says nothing. Invalid parts become problems."""


class DeviceWords(Protocol):
    """Turn cards into what kubelet is offered, and into what the plugin writes on the node.

    Resources are full names, such as ``gpu.intel.com/i915``.
    """

    @property
    def resources(self) -> tuple[str, ...]:
        """All resources that give cards to a container."""

    def ids_per_card(self, card: CardFacts, options: DeviceOptions) -> Mapping[str, int]:
        """Return how many device ids of which of `resources` a card is offered with."""

    def fewer_ids(self, resource: str) -> str:
        """Return what to do so that cards are offered with fewer ids of one of `resources`; empty if nothing helps."""

    def monitoring_resources(self, *, split: bool) -> tuple[str, ...]:
        """Return all resources that give a container access to every card of the node.

        split  one for each driver instead of one for all
        """

    def monitoring_resource(self, card: CardFacts, *, split: bool) -> str | None:
        """Return which of `monitoring_resources` gives access to a card, None if none does."""

    def describe(self, cards: Sequence[CardFacts], options: DeviceOptions) -> NodeDescription:
        """Return what a node with these cards says of them; nothing when it has none."""

    def owns_label(self, name: str) -> bool:
        """Return whether a node label is one that `describe` writes, so that an outdated one is removed."""

    def owns_annotation(self, name: str) -> bool:
        """Return the same for a node annotation."""

    def owns_resource(self, name: str) -> bool:
        """Return the same for a resource in the node's status."""

    def environment(self, pod: Pod, container: str, cards: Sequence[CardFacts]) -> Mapping[str, str]:
        """Return the variables that a container with these cards gets in this vocabulary."""

    def after_allocate(self, pod: Pod) -> Mapping[str, str]:
        """Return the annotations to write on a pod once its container has got its cards."""


class AdmissionWords(Protocol):
    """Check and complete a pod when it is created, beyond what `PodWords.need` refuses at any time."""

    def faults(self, pod: Pod) -> Sequence[str]:
        """Return reasons to refuse a new pod that has a need all the same, such as requests that count for nothing."""

    def warnings(self, pod: Pod, options: NeedOptions) -> Sequence[str]:
        """Return what the owner of a new pod probably did not mean, one sentence each."""

    def complete(self, pod: Pod) -> Patch:
        """Return the vocabulary's defaults for a new pod; nothing if it has them already."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Vocabulary:
    """One vocabulary: a record with one object for each interface.

    name       as ``--vocabularies`` has it
    wishes     the annotations with gas's prefix that users write and needs obey; None if others are not reported
    admission  None if there is nothing else to check or complete when a pod is created
    """

    name: str
    pods: PodWords
    choices: ChoiceWords
    nodes: NodeWords
    devices: DeviceWords
    wishes: frozenset[str] | None = None
    admission: AdmissionWords | None = None

    def read_choice(self, pod: Pod, need: PodNeed, node: NodeFacts | None) -> Choice | None:
        """Return the choice written on a pod, by us or by the system that the vocabulary comes from; None if none is.

        Raises MalformedAnnotation if what is written cannot be a choice for this need.
        """
        choice = read_choice(pod, need)
        return self.choices.read(pod, need, node) if choice is None else choice


class Vocabularies:
    """The vocabularies that are switched on, asked as one.

    A pod speaks one of them: a need in the words of two is refused, since no card could be booked for both.

    most_needs  needs that are remembered
    """

    def __init__(self, vocabularies: Iterable[Vocabulary], *, most_needs: int = MOST_NEEDS) -> None:
        self._all = tuple(vocabularies)
        self._needs: LRUCache[Hashable, PodNeed] = LRUCache(most_needs)
        self.annotations = frozenset(WRITTEN_ANNOTATIONS).union(*(each.choices.annotations for each in self._all))
        """Every annotation that a choice or a receipt is written in."""
        self.metadata = self.annotations.union(*(each.pods.metadata for each in self._all))
        """Every annotation and label of a bound pod that its booking depends on."""

    def __iter__(self) -> Iterator[Vocabulary]:
        return iter(self._all)

    def speaks(self, pod: Pod) -> bool:
        """Return whether the pod asks for anything in any vocabulary."""
        return self.spoken_by(pod) is not None

    def need(self, pod: Pod, options: NeedOptions) -> PodNeed:
        """Return the need of a pod that is not bound yet; a need without containers if it speaks no vocabulary.

        Raises BadNeed, also for a pod in the words of two vocabularies.
        """
        content = (_content(pod, pod.metadata.annotations, pod.metadata.labels), options)
        if (need := self._needs.get(content)) is None:
            need = self._read_need(pod, options)
            self._remember(content, need)
        return need

    def booked_need(self, pod: Pod) -> PodNeed:
        """Return what a bound pod takes, in the first vocabulary that it speaks. Raises BadNeed."""
        vocabulary = self.spoken_by(pod)
        if vocabulary is None:
            return PodNeed(())
        names = vocabulary.pods.metadata
        content = (
            _content(pod, _only(names, pod.metadata.annotations), _only(names, pod.metadata.labels)),
            vocabulary.name,
        )
        if (need := self._needs.get(content)) is None:
            need = vocabulary.pods.booked_need(pod)
            self._remember(content, need)
        return need

    def _remember(self, content: tuple[bytes, Hashable], need: PodNeed) -> None:
        if len(content[0]) <= LARGEST_REMEMBERED:
            self._needs[content] = need

    def _read_need(self, pod: Pod, options: NeedOptions) -> PodNeed:
        if not pod.spec.containers:
            raise BadNeed("the pod has no containers")
        spoken = [each for each in self._all if each.pods.speaks(pod)]
        if len(spoken) > 1:
            first, second = (each.name for each in spoken[:2])
            raise BadNeed(f"the pod asks for GPUs in the words of {first} and of {second}; use only one of them")
        if not spoken:
            return PodNeed(())
        _check_size(pod, spoken[0].wishes or ())
        need = spoken[0].pods.need(pod, options)
        _check_containers(need)
        return need

    def write_choice(
        self, pod: Pod, need: PodNeed, choice: Choice, moment: int, node: NodeFacts | None
    ) -> dict[str, str]:
        """Return the annotations that a Binding carries for a choice, the empty text for outdated ones.

        moment  nanoseconds since the epoch
        node    the node that was chosen

        An annotation of these that is already on the pending pod and that the choice does not set is outdated: it comes
        from a template made of another pod, or from a forger.
        """
        fresh = choice_annotations(need, choice, timestamp_ns=moment)
        if need.wants_cards and (vocabulary := self.spoken_by(pod)) is not None:
            fresh |= vocabulary.choices.write(pod, need, choice, moment, node)
        outdated = {name: "" for name in self.annotations if pod.annotations.get(name) and name not in fresh}
        return outdated | fresh

    def source(self, node: Node) -> Hashable:
        """Return every part of a node's object that `facts` depends on, by value."""
        said = _recorded(node)
        named = tuple(said.other_names.items())
        return (*(each.nodes.source(node) for each in self._all), named, said.unknown_memory, said.problems)

    def facts(self, node: Node) -> NodeFacts:
        """Return what a node says about its cards in all vocabularies together."""
        facts = merged_facts([facts for each in self._all if (facts := each.nodes.facts(node)) is not None])
        said = _recorded(node)
        if said == _NOT_RECORDED:
            return facts
        cards = facts.inventory.capacity.keys()
        known = {name: of_name for name, of in said.other_names.items() if (of_name := of & cards)}
        return replace(
            facts,
            inventory=replace(facts.inventory, other_names=known),
            unknown_memory=said.unknown_memory & cards,
            problems=(*facts.problems, *said.problems),
        )

    @cached_property
    def resources(self) -> tuple[str, ...]:
        """All resources that give cards to a container, by full name."""
        return tuple(dict.fromkeys(resource for each in self._all for resource in each.devices.resources))

    @cached_property
    def managed_resources(self) -> tuple[str, ...]:
        """All resources whose pods kube-scheduler asks the extender about, by full name."""
        return tuple(dict.fromkeys(resource for each in self._all for resource in each.pods.resources))

    def ids_per_card(self, card: CardFacts, options: DeviceOptions) -> Mapping[str, int]:
        """Return how many device ids of which of `resources` a card is offered with."""
        return {name: ids for each in self._all for name, ids in each.devices.ids_per_card(card, options).items()}

    def fewer_ids(self, resource: str) -> str:
        """Return what to do so that cards are offered with fewer ids of a resource; empty if nothing helps."""
        advice = (each.devices.fewer_ids(resource) for each in self._all if resource in each.devices.resources)
        return next(filter(None, advice), "")

    def monitoring_resources(self, *, split: bool) -> tuple[str, ...]:
        """Return all resources that give a container access to every card of the node."""
        return tuple(
            dict.fromkeys(name for each in self._all for name in each.devices.monitoring_resources(split=split))
        )

    def monitoring_of(self, card: CardFacts, *, split: bool) -> tuple[str, ...]:
        """Return which of `monitoring_resources` give access to a card."""
        found = (each.devices.monitoring_resource(card, split=split) for each in self._all)
        return tuple(dict.fromkeys(name for name in found if name is not None))

    def describe(self, cards: Sequence[CardFacts], options: DeviceOptions) -> NodeDescription:
        """Return what a node with these cards says of them in all vocabularies together."""
        described = [each.devices.describe(cards, options) for each in self._all]
        return NodeDescription(
            labels={name: text for each in described for name, text in each.labels.items()},
            annotations={
                **_identities(cards),
                **{name: text for each in described for name, text in each.annotations.items()},
            },
            resources={name: amount for each in described for name, amount in each.resources.items()},
        )

    def owns_label(self, name: str) -> bool:
        """Return whether a node label is one that `describe` writes."""
        return any(each.devices.owns_label(name) for each in self._all)

    def owns_annotation(self, name: str) -> bool:
        """Return the same for a node annotation."""
        return name == card_records.ANNOTATION or any(each.devices.owns_annotation(name) for each in self._all)

    def owns_resource(self, name: str) -> bool:
        """Return the same for a resource in the node's status."""
        return any(each.devices.owns_resource(name) for each in self._all)

    def environment(self, pod: Pod, container: str, cards: Sequence[CardFacts]) -> Mapping[str, str]:
        """Return the variables that a container with these cards gets in the vocabulary that its pod speaks."""
        vocabulary = self.spoken_by(pod)
        return vocabulary.devices.environment(pod, container, cards) if vocabulary else {}

    def after_allocate(self, pod: Pod) -> Mapping[str, str]:
        """Return the annotations to write on a pod once its containers have got their cards."""
        vocabulary = self.spoken_by(pod)
        return vocabulary.devices.after_allocate(pod) if vocabulary else {}

    def spoken_by(self, pod: Pod) -> Vocabulary | None:
        """Return the first vocabulary that a pod is written in, None if it asks for no cards in any."""
        for vocabulary in self._all:
            if vocabulary.pods.speaks(pod):
                return vocabulary
        return None


class _Recorded(NamedTuple):
    """The parts of a node's records of its cards that count, beside what vocabularies say."""

    other_names: Mapping[str, frozenset[Card]]
    unknown_memory: frozenset[Card]
    problems: tuple[str, ...]


_NOT_RECORDED = _Recorded({}, frozenset(), ())


def _recorded(node: Node) -> _Recorded:
    """Return what the records of a node's cards say, and what is invalid about them."""
    if (text := node.annotations.get(card_records.ANNOTATION)) is None:
        return _NOT_RECORDED
    records, problems = card_records.parse_card_records(text)
    unknown = frozenset(record.card for record in records if record.memory_source == MemorySource.UNKNOWN)
    return _Recorded(card_records.cards_by_name(records), unknown, problems)


def _identities(cards: Sequence[CardFacts]) -> Mapping[str, str]:
    """Return the annotation with the records of cards; none without cards, or if it would be too long."""
    text = card_records.format_card_records(card_records.card_records(cards))
    return {card_records.ANNOTATION: text} if cards and len(text) <= card_records.MOST_BYTES else {}


def _content(pod: Pod, annotations: Mapping[str, str] | None, labels: Mapping[str, str] | None) -> bytes:
    """Return the parts of a pod that its need is read from, as one value: pods of one template share it."""
    return _encoder.encode((pod.spec.containers, pod.spec.init_containers, annotations, labels))


def _check_size(pod: Pod, wishes: Iterable[str]) -> None:
    """Raise BadNeed for a pod with more resources or longer wishes than any real one has: reading them takes time."""
    for containers in (pod.spec.init_containers, pod.spec.containers):
        for container in containers or ():
            requests = (container.resources.requests if container.resources else None) or ()
            if len(requests) > MOST_RESOURCES:
                raise BadNeed(
                    f"container {quoted(container.name)}: expected requests of at most {MOST_RESOURCES} resources,"
                    f" found {len(requests)}; remove some"
                )
    for name in sorted(wishes):
        if len(text := pod.annotations.get(name, "")) > LONGEST_WISH:
            raise BadNeed(f"{name}: expected at most {LONGEST_WISH} characters, found {len(text)}; shorten it")


def _check_containers(need: PodNeed) -> None:
    """Raise BadNeed for a pod with more containers with cards than any real one has: placing them takes time."""
    if (count := sum(container.count > 0 for container in need.containers)) > MOST_CARD_CONTAINERS:
        raise BadNeed(
            f"the pod has {count} containers that ask for cards, expected at most {MOST_CARD_CONTAINERS};"
            " use several pods"
        )


def _only(names: frozenset[str], texts: Mapping[str, str] | None) -> dict[str, str]:
    return {name: texts[name] for name in names & texts.keys()} if texts else {}


def merged_facts(facts: Sequence[NodeFacts]) -> NodeFacts:
    """Merge what several vocabularies read from one node into one set of facts.

    A card has what any of them says. Where two state different amounts of one resource, the smaller counts and a
    problem says so.
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
        ),
        deschedule_cards=frozenset().union(*(each.deschedule_cards for each in facts)),
        deschedule_tiles=frozenset().union(*(each.deschedule_tiles for each in facts)),
        problems=tuple(problems),
    )


def _on_named_cards(facts: Sequence[NodeFacts], problems: list[str]) -> list[NodeFacts]:
    """Return the facts with those cards that are only counted as cards that are named, in their order.

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
