"""The interface between gas and the vocabularies that its users write their needs in.

A vocabulary is the set of names that one GPU scheduling system uses: how pods ask for cards, how nodes state which
cards they have, and what kubelet is offered for a card. Extender and plugin know only the interface of this module,
and `gas.vocabularies.combined`, which combines the vocabularies that are switched on. Placement and the ledger do not
know even these: a vocabulary turns Kubernetes objects into needs and inventories in canonical amounts (``memory.max``
in bytes, ``millicores`` with 1000 a card, ``tiles``) plus a count resource of its own, so that pods of several
vocabularies share a card safely.

A `Vocabulary` also declares the names that deploy/ and docs/ state: ``make manifest`` and ``make reference`` write them
there. What gas itself writes on a pod, the
decision and the receipt, is the same for every vocabulary: see `gas.decision`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple, TypeVar

from gas.daemon.flags import CommandFlags, PartFlags
from gas.decision.annotations import read_choice
from gas.objects.json_patch import Patch
from gas.objects.stored import NewPod, Node, Pod, Quantity
from gas.placement.choice import Choice
from gas.placement.inventory import Inventory
from gas.placement.need import PodNeed, Role
from gas.placement.order import DEFAULT_ORDER, CardOrder
from gas.values import card_records
from gas.values.card_facts import CardFacts
from gas.values.cards import Card, Tile
from gas.values.errors import GasError

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Beginnings:
    """Name beginnings of resources and annotations by which the API server knows certain pods."""

    resources: tuple[str, ...] = ()
    annotations: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenNames:
    """Names that the plugin may write on its node and on the pods there; one that ends in / stands for all under it."""

    labels: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()
    annotations: tuple[str, ...] = ()
    pod_annotations: tuple[str, ...] = ()


class Row(NamedTuple):
    name: str
    used_by: str  # who asks for a resource or writes a text
    meaning: str  # the unit of a resource, or the value of a text


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """The tables of a vocabulary on the reference page."""

    owner: str  # in the genitive, for the title of a table: ``Aliyun's``
    page: str = ""  # file name of its own page; empty if it has none
    resources: tuple[Row, ...] = ()
    node_labels: tuple[Row, ...] = ()
    node_annotations: tuple[Row, ...] = ()
    pod_annotations: tuple[Row, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Component:
    """The kustomize component that switches a vocabulary on, in addition to the default one."""

    about: str  # one or more sentences for the comment at its top
    others: tuple[str, ...] = ()  # other vocabularies that it switches on as well


LONGEST_SENTENCE = 200  # characters of the longest sentence of a `BadNeed`


class BadNeed(GasError):
    """No node could give what the pod asks for. The sentence has at most LONGEST_SENTENCE characters.

    others  sentences about further faults of the pod
    """

    def __init__(self, sentence: str, *others: str) -> None:
        super().__init__(sentence)
        self.others = others


class Faults:
    """The faults of one pod, collected so that its owner sees all of them at once."""

    def __init__(self) -> None:
        self._found: dict[str, None] = {}

    def of(self, read: Callable[..., T], *arguments: object) -> T | None:
        """Return what ``read`` returns, or None for a BadNeed, which is collected."""
        try:
            return read(*arguments)
        except BadNeed as bad:
            self.add(str(bad), *bad.others)
            return None

    def add(self, *sentences: str) -> None:
        self._found.update(dict.fromkeys(sentences))

    def none_in(self, read: T | None) -> T:
        """Return what was read. Raises BadNeed with everything that was collected, if anything was."""
        if self._found or read is None:
            raise BadNeed(*self._found)
        return read


@dataclass(frozen=True, slots=True, kw_only=True)
class NeedOptions:
    """The needs that the administrator lets pods state."""

    allowlist: bool = False  # whether annotations that allow single cards count
    denylist: bool = False  # the same for those that deny some
    card_order: CardOrder = DEFAULT_ORDER  # for a pod that does not choose one
    order_for_all: bool = False  # whether that order counts in vocabularies that have their own
    card_near: bool = False  # whether near cards are tried first, for a pod that does not say


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFacts:
    """The facts about cards that a node's object states."""

    inventory: Inventory
    name: str = ""  # of the node; only where `uuids` are, since nodes alike share their facts
    # the node states only how many cards it has, so that card0, card1 and so on stand for the first card, the second
    # and so on; where another vocabulary names the cards, these are meant
    counted: bool = False
    # pods that hold one of these should leave; the cards are not disabled by it
    deschedule_cards: frozenset[Card] = frozenset()
    # pods that hold one of these tiles should leave; the tiles are closed as well
    deschedule_tiles: frozenset[Tile] = frozenset()
    # by card, the labels that close it or its tiles, or say that its pods should leave
    closed_by: Mapping[Card, tuple[str, ...]] = field(default_factory=dict)
    # the managed resources that a device plugin offers on the node, or offered before it went away
    offered: frozenset[str] = frozenset()
    unknown_memory: frozenset[Card] = frozenset()  # cards of which the plugin does not know how much memory they have
    # of cards; only where a pod's annotations or variables may name one
    uuids: Mapping[str, Card] = field(default_factory=dict)
    problems: tuple[str, ...] = ()  # what is invalid on the node, one sentence each, the same for equal nodes


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeDescription:
    """The texts and amounts that the plugin writes on its node; resources by full name, those of memory in bytes."""

    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    resources: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceOptions:
    """How the administrator wants cards to be offered."""

    shared_dev_num: int = 1  # how many containers may share one card
    # how many folders of their sysfs paths the cards of one board share; 0: boards are not described
    pci_grouping_level: int = 0


@dataclass(frozen=True, slots=True)
class ContainerFacts:
    """One container: its name, when it holds its cards, and what it requests by full name of the resource."""

    name: str
    role: Role
    requests: Mapping[str, Quantity]


@dataclass(frozen=True, slots=True)
class NeedFacts:
    """All facts that a need is read from. `gas.vocabularies.pod_parts.need_facts` returns those of a pod."""

    containers: Sequence[ContainerFacts]  # at least one, in the order in which kubelet starts them
    annotations: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Vocabulary(ABC):
    """One vocabulary. A class that inherits from this one states only what it has.

    It recognizes pods and turns them into needs, turns nodes into inventories, choices into annotations of its own and
    back, and cards into what kubelet is offered. Without its own methods it writes nothing in addition to
    `gas.decision`, offers no monitoring, gives no variables, and has no checks and no defaults for new pods. Resources
    are full names, such as ``gpu.intel.com/i915``.
    """

    name: ClassVar[str]  # as ``--vocabularies`` has it
    reference: ClassVar[Reference]
    component: ClassVar[Component | None] = None  # None if no component of deploy/ switches it on
    flags: ClassVar[type[PartFlags] | None] = None  # its own, in extender and plugin alike; None if it has none
    # the annotations with gas's prefix that users write and needs obey
    user_annotations: ClassVar[frozenset[str]] = frozenset()
    # names of other vocabularies to whose pods its rules, annotations and warnings apply as well
    joins: ClassVar[frozenset[str]] = frozenset()
    # full names of resources that no other vocabulary reads while this one is switched on
    replaces: ClassVar[frozenset[str]] = frozenset()
    guests: tuple[Vocabulary, ...] = ()  # those that are switched on and join this one

    def with_flags(self, flags: CommandFlags) -> Vocabulary:
        """Return the vocabulary with the values of its flags on a command line."""
        return self

    def without(self, resources: frozenset[str]) -> Vocabulary:
        """Return the vocabulary without resources that another one replaces."""
        return self

    # Pods

    @property
    @abstractmethod
    def managed_resources(self) -> tuple[str, ...]:
        """Those of which every pod with cards requests one: for these kube-scheduler calls the extender."""

    @property
    def ignored_resources(self) -> frozenset[str]:
        """Those of `managed_resources` that no node offers, so kube-scheduler must not look for them."""
        return frozenset()

    asking: ClassVar[Beginnings]  # every pod that `matches` has one: for these pods the API server calls webhooks
    # names of the annotations that `booked_need` depends on, in addition to containers
    metadata: ClassVar[frozenset[str]] = frozenset()
    # whether the card of a pod that has one card, and no name for it, gets a name when it is chosen: the name that it
    # has, or else a new one
    names_cards: ClassVar[bool] = False

    @abstractmethod
    def matches(self, pod: Pod) -> bool:
        """Return whether the pod asks for anything in this vocabulary. Called for every pod of the cluster."""

    @abstractmethod
    def need(self, facts: NeedFacts, options: NeedOptions) -> PodNeed:
        """Return the need of a pod that is not bound yet. Raises BadNeed with a sentence for its owner."""

    @abstractmethod
    def booked_need(self, facts: NeedFacts) -> PodNeed:
        """Return what the containers of a bound pod take, as far as it can be read. Raises BadNeed.

        Rules and preferences in its annotations no longer count: they were met or not, and may have been edited since.
        What other pods depend on counts, such as affinity labels.
        """

    def with_rules(self, need: PodNeed, annotations: Mapping[str, str]) -> PodNeed:
        """Return a need that a vocabulary of ``joins`` has read, with the rules of this one. Raises BadNeed."""
        return need

    @property
    def when_off(self) -> str:
        """A sentence about a running pod that was given cards while the vocabulary was switched on."""
        return f"its cards stay booked, but its vocabulary {self.name} is switched off; add it to --vocabularies"

    def contradiction(self, pod: Pod) -> str:
        """Return how the annotations of a bound pod contradict what is booked for it, as a sentence; empty if not."""
        return ""

    # Choices

    # names of the pod annotations that `write` may set and `read` looks at
    choice_annotations: ClassVar[frozenset[str]] = frozenset()
    # those of them that are written as labels as well
    label_annotations: ClassVar[frozenset[str]] = frozenset()
    # the one of them with the time of the decision in nanoseconds, as ``gas-ts`` has it; empty if none has
    time_annotation: ClassVar[str] = ""

    def write(self, pod: Pod, need: PodNeed, choice: Choice, time_ns: int, node: NodeFacts | None) -> Mapping[str, str]:
        """Return the vocabulary's own annotations for a choice on a node; ``time_ns`` is that of ``gas-ts``."""
        return {}

    def is_fixed(self, pod: Pod) -> bool:
        """Return whether a part of the pod that cannot be edited names its cards, which no container requests."""
        return False

    def read(self, pod: Pod, need: PodNeed, node: NodeFacts | None) -> Choice | None:
        """Return the choice that the vocabulary's old system wrote on a pod, or None. Raises as `read_choice`."""
        return None

    def read_choice(self, pod: Pod, need: PodNeed, node: NodeFacts | None) -> Choice | None:
        """Return the choice written on a pod, by gas or by the system that the vocabulary comes from; None if none is.

        Raises MalformedAnnotation if what is written cannot be a choice for this need.
        """
        written = (each.read(pod, need, node) for each in (self, *self.guests))
        return read_choice(pod, need) or next((choice for choice in written if choice is not None), None)

    # Nodes

    @abstractmethod
    def source(self, node: Node) -> Hashable:
        """Return every part of the node's object that `facts` depends on, by value: equal sources have equal facts."""

    @abstractmethod
    def facts(self, node: Node) -> NodeFacts | None:
        """Return what the node states in this vocabulary, None if nothing. Invalid parts become problems."""

    def offered(self, node: Node) -> frozenset[str]:
        """Return the `managed_resources` that a device plugin offers on a node, or offered before it went away."""
        if card_records.ANNOTATION in node.annotations:
            return frozenset(self.managed_resources)
        amounts = (node.status.allocatable or {}, node.status.capacity or {}) if node.status else ()
        return frozenset(
            name for name in self.managed_resources if any(str(each.get(name, 0)) != "0" for each in amounts)
        )

    def uuids(self, node: Node) -> Mapping[str, Card]:
        """Return the cards of a node without records by UUID, as the vocabulary's old system states them."""
        return {}

    # Devices

    @property
    @abstractmethod
    def resources(self) -> tuple[str, ...]:
        """All that give cards to a container."""

    one_card: ClassVar[bool] = False  # whether all ids that the containers of a pod get are of one card
    together: ClassVar[bool] = False  # whether each app container of a pod gets the cards of all of them
    # the names that `describe` and `after_allocate` write: the plugin's admission policy allows these
    written: ClassVar[WrittenNames] = WrittenNames()

    @abstractmethod
    def ids_per_card(self, card: CardFacts, options: DeviceOptions) -> Mapping[str, int]:
        """Return how many device ids of which of `resources` a card is offered with."""

    def fewer_ids(self, resource: str) -> str:
        """Return what to do so that cards are offered with fewer ids of one of `resources`; empty if nothing helps."""
        return ""

    def monitoring_resources(self, *, split: bool) -> tuple[str, ...]:
        """Return all resources that give a container access to every card; with ``split`` one for each driver."""
        return ()

    def monitoring_resource(self, card: CardFacts, *, split: bool) -> str | None:
        """Return which of `monitoring_resources` gives access to a card, None if none does."""
        return None

    def describe(self, cards: Sequence[CardFacts], options: DeviceOptions) -> NodeDescription:
        """Return what a node with these cards states about them; nothing when it has none."""
        return NodeDescription()

    def owns_label(self, name: str) -> bool:
        """Return whether a node label is one that `describe` writes, so that an outdated one is removed."""
        return name in self.written.labels

    def owns_annotation(self, name: str) -> bool:
        return name in self.written.annotations

    def owns_resource(self, name: str) -> bool:
        return name in self.written.resources

    def environment(self, pod: Pod, container: str, cards: Sequence[CardFacts], node: NodeFacts) -> Mapping[str, str]:
        """Return the variables that a container with these cards of a node gets in this vocabulary."""
        return {}

    def isolation(self, pod: Pod) -> str:
        """Return the software by which the pod wants its use of cards limited, in lower case; empty if none."""
        return ""

    def after_allocate(self, pod: Pod) -> Mapping[str, str]:
        """Return the annotations to write on a pod once its container has got its cards."""
        return {}

    # New pods

    completed: ClassVar[Beginnings] = Beginnings()  # beginnings of which every pod that gets defaults has one

    def faults(self, pod: Pod) -> Sequence[str]:
        """Return reasons to refuse a new pod that has a need all the same, such as requests that count for nothing."""
        return ()

    def warnings(self, pod: Pod, options: NeedOptions) -> Sequence[str]:
        """Return what the owner of a new pod probably did not mean, one sentence each."""
        return ()

    def complete(self, pod: NewPod) -> Patch:
        """Return the vocabulary's defaults for a new pod; nothing if it has them already."""
        return ()
