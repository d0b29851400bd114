"""Order the cards that are tried, and choose how nodes are scored: soft rules, which never decide whether a pod fits.

`parse_card_order` and `str()` of an order have the same text form: ``natural``, ``least-used=millicores``. So have
`parse_node_score` and `str()` of a policy. `gas.placement.node_cost` computes the scores.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import TYPE_CHECKING, ClassVar

from gas.placement.waste import Mix, share_left
from gas.values.amounts import MEMORY_MAX, MILLICORES, SortedAmounts
from gas.values.cards import Card
from gas.values.errors import InvalidValue
from gas.values.quoted import quoted

if TYPE_CHECKING:
    from gas.placement.candidates import UseAtStart


@dataclass(frozen=True, slots=True)
class CardOrder(ABC):
    """An order of cards. Cards with smaller keys are tried first, cards with equal keys in natural order."""

    name: ClassVar[str]

    @abstractmethod
    def key(self, card: Card, use: UseAtStart) -> tuple[int, ...]:
        """Return the sort key of a card. All cards of one node have keys of the same length."""

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Natural(CardOrder):
    """Try ``card2`` before ``card10``. The card that the node prefers comes first; every other order ignores it."""

    name: ClassVar[str] = "natural"

    # False if neither the pod nor the administrator has chosen an order, so that another may take its place
    chosen: bool = True

    def key(self, card: Card, use: UseAtStart) -> tuple[int, ...]:
        return ()


@dataclass(frozen=True, slots=True)
class _ByResource(CardOrder):
    """An order by one resource, which the pod need not want. Raises InvalidValue if it has no name."""

    resource: str

    def __post_init__(self) -> None:
        if not self.resource:
            raise InvalidValue(f"{self.name}: expected the name of a resource")

    def __str__(self) -> str:
        return f"{self.name}={self.resource}"


@dataclass(frozen=True, slots=True)
class LeastUsed(_ByResource):
    """The card of which least is used first, which spreads pods. Closed tiles count as used."""

    name: ClassVar[str] = "least-used"

    def key(self, card: Card, use: UseAtStart) -> tuple[int, ...]:
        return (use.used(card, self.resource),)


@dataclass(frozen=True, slots=True)
class BestFit(_ByResource):
    """The card of which least is left first, which keeps large remainders for large pods."""

    name: ClassVar[str] = "best-fit"

    def key(self, card: Card, use: UseAtStart) -> tuple[int, ...]:
        return (use.left(card, self.resource),)


@dataclass(frozen=True, slots=True)
class _ByParts(CardOrder):
    """An order by how large a part of each resource is used, with what the pod has taken so far."""

    weights: SortedAmounts = ((MEMORY_MAX, 1), (MILLICORES, 1))  # how much each resource counts

    def used(self, card: Card, use: UseAtStart) -> int:
        """Return the weighted sum of the used parts, in units of 2^-40."""
        capacity = use.capacity(card)
        parts = ((weight, use.used(card, name), capacity.get(name)) for name, weight in self.weights)
        return sum((weight * used << 40) // has for weight, used, has in parts if has)


@dataclass(frozen=True, slots=True)
class LeastUsedParts(_ByParts):
    """The card with the smallest used parts first, which spreads pods over unlike cards as well."""

    name: ClassVar[str] = "least-used"

    def key(self, card: Card, use: UseAtStart) -> tuple[int, ...]:
        return (self.used(card, use),)


@dataclass(frozen=True, slots=True)
class MostUsedParts(_ByParts):
    """The card with the largest used parts first, which packs pods."""

    name: ClassVar[str] = "most-used"

    def key(self, card: Card, use: UseAtStart) -> tuple[int, ...]:
        return (-self.used(card, use),)


@dataclass(frozen=True, slots=True)
class FewestContainers(CardOrder):
    """The card with the fewest containers first, however much they take."""

    name: ClassVar[str] = "fewest-containers"

    def key(self, card: Card, use: UseAtStart) -> tuple[int, ...]:
        return (use.containers(card),)


@dataclass(frozen=True, slots=True)
class UsedFirst(CardOrder):
    """Cards that have a container first, which keeps the others idle."""

    name: ClassVar[str] = "used-first"

    def key(self, card: Card, use: UseAtStart) -> tuple[int, ...]:
        return (not use.containers(card),)


@dataclass(frozen=True, slots=True)
class LeastWaste(CardOrder):
    """The card on which least more will stay unused by the pods of a mix, then the fullest.

    It is chosen for pods whose node was scored by the same mix, so it has no text form to parse.
    """

    name: ClassVar[str] = "least-waste"

    mix: Mix

    def key(self, card: Card, use: UseAtStart) -> tuple[int, ...]:
        amounts = use.capacity(card), use.all_left(card), use.wanted(card)
        return _waste(self.mix, *(tuple(each.items()) for each in amounts))


@lru_cache(4096)
def _waste(mix: Mix, capacity: SortedAmounts, free: SortedAmounts, wanted: SortedAmounts) -> tuple[int, int]:
    """Return how much more of a card will stay unused, and its share that is left: most cards of a node are alike."""
    has, left = dict(capacity), dict(free)
    before, after = share_left(has, left), share_left(has, left, dict(wanted))
    seen = mix.on(has)
    return seen.wasted(after) - seen.wasted(before), before


NATURAL = Natural()

DEFAULT_ORDER = Natural(chosen=False)  # the order if neither the pod nor the administrator has chosen one

_PLAIN: tuple[CardOrder, ...] = (NATURAL, FewestContainers(), UsedFirst(), LeastUsedParts(), MostUsedParts())
_BY_RESOURCE: tuple[type[_ByResource], ...] = (LeastUsed, BestFit)


def resource_of(order: CardOrder) -> str | None:
    """Return the resource that an order goes by, None if it goes by none."""
    return order.resource if isinstance(order, _ByResource) else None


CARD_ORDERS = "natural|least-used[=RESOURCE]|most-used|best-fit=RESOURCE|fewest-containers|used-first"
"""The text forms, for help texts and messages."""


def parse_card_order(text: str) -> CardOrder:
    """Parse the text form of an order. Raises InvalidValue; resources are named without a prefix."""
    name, equals, resource = text.strip().partition("=")
    for order in _PLAIN:
        if name == order.name and not equals:
            return order
    for kind in _BY_RESOURCE:
        if name == kind.name and resource and "/" not in resource:
            return kind(resource)
    without = " without its prefix" if "/" in resource else ""
    raise InvalidValue(f"expected {CARD_ORDERS}, with a RESOURCE such as millicores{without}, found {quoted(text)}")


class NodeScore(StrEnum):
    """A policy of scoring nodes."""

    BALANCE = "balance"  # the node on which the pod leaves least unusable (`gas.placement.node_cost`)
    BEST_FIT = "best-fit"  # the node whose cards have least left
    BEST_FIT_CARD = "best-fit-card"  # the node on which the cards that the pod gets have least left
    SPREAD = "spread"  # the node whose cards have the largest share left
    LEAST_LOADED = "least-loaded"  # the node with the fewest containers on each card
    NONE = "none"  # all nodes are equal


NODE_SCORES = "|".join(NodeScore)  # the text forms, for help texts and messages


def parse_node_score(text: str) -> NodeScore:
    try:
        return NodeScore(text.strip())
    except ValueError:
        raise InvalidValue(f"expected {NODE_SCORES}, found {quoted(text)}") from None
