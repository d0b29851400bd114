"""A pod's need: the cards that its containers ask for, and the rules for choosing them."""

import enum
from dataclasses import dataclass, fields
from functools import cached_property
from operator import attrgetter

from gas.placement.inventory import NO_COMPANY, Company
from gas.placement.order import DEFAULT_ORDER, CardOrder, NodeScore
from gas.placement.ratio import Ratio
from gas.values.amounts import TILES, SortedAmounts, StatedMemory, check_sorted, is_whole
from gas.values.cards import Card
from gas.values.errors import InvalidValue


class Role(enum.Enum):
    """When a container holds its cards, as Kubernetes accounts for init containers.

    INIT     until it ends, before the next container starts; then the pod's later containers may have them
    SIDECAR  a restartable init container: from its start until the pod ends
    APP      from the end of the init containers until the pod ends
    """

    INIT = "init"
    SIDECAR = "sidecar"
    APP = "app"


class Scope(enum.Enum):
    """Where all cards of a pod come from.

    NUMA       from one NUMA group; from any cards if the node does not state its groups
    BOARD      from one board; a card of which the node states no board is one of its own
    CARD       all containers get the same card
    NUMA_CARD  all containers get the same card, one of a NUMA group; any card if the node does not state its groups
    """

    ANYWHERE = "anywhere"
    NUMA = "numa"
    BOARD = "board"
    CARD = "card"
    NUMA_CARD = "numa-card"

    @property
    def is_one_card(self) -> bool:
        return self is Scope.CARD or self is Scope.NUMA_CARD


@dataclass(frozen=True, slots=True)
class ContainerNeed:
    """One container's need. Raises InvalidValue for a negative or fractional number and for amounts without a card."""

    name: str
    count: int = 0  # how many different cards
    # what it takes of each of its cards. The amount of its count resource is the number of device ids on each card,
    # mostly 1; the amount of ``tiles`` is the number of tiles on each card
    per_card: SortedAmounts = ()
    role: Role = Role.APP
    # what it takes of each of its cards as a part of what the card has, at most one ratio of each resource
    ratios: tuple[Ratio, ...] = ()

    def __post_init__(self) -> None:
        if not is_whole(self.count):
            raise InvalidValue(
                f"container {self.name!r}: expected a whole number of cards, 0 or more, found {self.count}"
            )
        if not isinstance(self.role, Role):
            raise InvalidValue(f"container {self.name!r}: expected a Role, found {self.role!r}")
        if not self.per_card and not self.ratios:
            return
        if self.count == 0:
            raise InvalidValue(f"container {self.name!r}: expected no amounts for a container that needs no card")
        check_sorted(self.per_card, f"container {self.name!r}")
        if self.ratios:
            self._check_ratios()

    def _check_ratios(self) -> None:
        names = [ratio.resource for ratio in self.ratios]
        absolute = {name for name, _ in self.per_card}
        for ratio in self.ratios:
            if ratio.resource == TILES:
                raise InvalidValue(f"container {self.name!r}: expected a number of tiles, found {ratio}")
            if names.count(ratio.resource) > 1 or ratio.resource in absolute:
                raise InvalidValue(
                    f"container {self.name!r}: expected one amount of {ratio.resource}, found {ratio} beside another"
                )

    @property
    def tiles(self) -> int:
        """Tiles on each card."""
        return next((amount for name, amount in self.per_card if name == TILES), 0)


@dataclass(frozen=True, slots=True)
class PartitionRule:
    """How a pod of whole cards uses the partitions of a node, see `Inventory.partitions`."""

    # only partitions will do; otherwise, and unless the node demands them, they are tried before other cards
    required: bool = False
    best: bool = False  # only those with the best score of all partitions of this size
    bandwidth: int = 0  # the least that the partition must state, 0 if any will do


@dataclass(frozen=True)
class PodNeed:
    """A pod's need. Raises InvalidValue for a combination that no choice can meet.

    Equal needs get equal results on equal nodes, so a need serves as a key.
    """

    # in the order in which kubelet starts them: init containers and sidecars, then app containers
    containers: tuple[ContainerNeed, ...]
    # the only cards that may be used; None if all may. A text is another name of cards, see `Inventory.other_names`
    allowed: frozenset[Card | str] | None = None
    denied: frozenset[Card | str] = frozenset()  # cards that may not be used, named in the same way
    # parts of the texts of `Inventory.models`: a card must have one of the first, unless there are none, and none of
    # the others
    models: frozenset[str] = frozenset()
    denied_models: frozenset[str] = frozenset()
    idle: bool = False  # only cards that no other pod has
    unfilled: frozenset[str] = frozenset()  # resources of which a card that has them must have something left
    # positions in ``containers`` of app containers that share one card; each has count 1 and no tiles
    same_card: frozenset[int] = frozenset()
    # positions of app containers that equally take of their cards, none of which two of them share
    apart: frozenset[int] = frozenset()
    linked: bool = False  # cards are given in pairs joined by a link, one tile of each; every count is even, tiles is 1
    scope: Scope = Scope.ANYWHERE  # a pod of one card has containers of at most one card
    partition: PartitionRule | None = None  # None if partitions do not matter to the pod
    order: CardOrder = DEFAULT_ORDER
    near: bool = False  # after the first card, the closest ones are tried first (`Inventory.closeness`)
    node_score: NodeScore | None = None  # how nodes are scored for the pod; None leaves that to the cluster
    company: Company = NO_COMPANY  # labels that decide with which other pods the pod shares a card
    # a name for the pod's one card, empty if it needs none: the card whose pods have this name, or an idle card if
    # there is none
    named: str = ""
    # names of the resources that only count cards: every container with cards wants one of them, so a refusal names
    # them only if nothing else is short
    count_resources: frozenset[str] = frozenset()
    # how the owner states ``memory.max``, for sentences about the need; None in bytes
    stated_memory: StatedMemory | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.scope, Scope):
            raise InvalidValue(f"scope: expected a Scope, found {self.scope!r}")
        has_app = False
        for container in self.containers:
            if has_app and container.role is not Role.APP:
                raise InvalidValue(f"container {container.name!r}: expected init containers before app containers")
            has_app = has_app or container.role is Role.APP
            if self.linked and container.count and (container.count % 2 or container.tiles != 1):
                raise InvalidValue(
                    f"container {container.name!r}: expected an even number of linked cards with 1 tile each, found"
                    f" {container.count} with {container.tiles}"
                )
            if self.scope.is_one_card and container.count > 1:
                raise InvalidValue(
                    f"container {container.name!r}: expected at most 1 card, because the pod has only one, found"
                    f" {container.count}"
                )
        self._check_wholes()
        if self.named and not self.scope.is_one_card:
            raise InvalidValue(f"named card {self.named!r}: expected a pod of one card, found scope {self.scope.value}")
        self._check_apart()
        for position in sorted(self.same_card):
            if not 0 <= position < len(self.containers):
                raise InvalidValue(f"same card: the pod has no container at position {position}")
            container = self.containers[position]
            if container.role is not Role.APP or container.count != 1 or container.tiles:
                raise InvalidValue(
                    f"container {container.name!r}: expected an app container with 1 card and no tiles, because it"
                    " shares its card"
                )

    def _check_apart(self) -> None:
        if self.apart and (self.linked or self.scope.is_one_card or self.apart & self.same_card):
            raise InvalidValue("apart: expected containers that need neither links nor one card")
        if not self.apart.issubset(range(len(self.containers))):
            raise InvalidValue(f"apart: expected positions of the pod's containers, found {sorted(self.apart)}")
        apart = [self.containers[position] for position in self.apart]
        if any(each.role is not Role.APP or not each.count or each.tiles for each in apart) or (
            len({(each.per_card, each.ratios) for each in apart}) > 1
        ):
            raise InvalidValue("apart: expected app containers with cards, no tiles and equal amounts of each card")

    @cached_property
    def cards(self) -> int:
        """How many cards the containers that stay until the pod ends ask for together."""
        return sum(container.count for container in self.containers if container.role is not Role.INIT)

    @cached_property
    def most_slots(self) -> int:
        """An upper bound of the slots that the containers take together, see `gas.placement.plan`."""
        moments = 1 + sum(container.role is Role.INIT and container.count > 0 for container in self.containers)
        return sum(
            (len(container.per_card) + len(container.ratios)) * (moments if container.role is Role.SIDECAR else 1)
            for container in self.containers
        )

    def _check_wholes(self) -> None:
        """Check that each resource is asked for as parts of one whole, since parts of the same card are added."""
        wholes: dict[str, str] = {}
        for container in self.containers:
            for ratio in container.ratios:
                if wholes.setdefault(ratio.resource, ratio.of) != ratio.of:
                    raise InvalidValue(
                        f"container {container.name!r}: expected a ratio of the same form as in other containers, found"
                        f" {ratio}"
                    )

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash(_values(self))

    @cached_property
    def has_ratios(self) -> bool:
        """True if what the pod takes of a card depends on what the card has."""
        return any(container.ratios for container in self.containers)

    @cached_property
    def wants_cards(self) -> bool:
        """True if any container wants a card. A pod that wants none fits everywhere."""
        return any(container.count for container in self.containers)


_values = attrgetter(*(each.name for each in fields(PodNeed)))  # returns the values of all fields of a need
