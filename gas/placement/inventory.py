"""The cards of a node, and what is booked and free on them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple

from gas.values.amounts import TILES, Amounts, check_amounts
from gas.values.cards import Card, Tile, check_tiles
from gas.values.errors import InvalidValue


@dataclass(frozen=True, slots=True, kw_only=True)
class Company:
    """The affinity labels of a pod; empty texts are labels that it does not have."""

    affinity: str = ""  # a card must be idle or have a pod with the same affinity
    anti_affinity: str = ""  # a card must have no pod with the same anti-affinity
    exclusion: str = ""  # all pods of a card must have the same exclusion; having none counts as a value as well

    def has_affinity(self, others: Collection[Company]) -> bool:
        """Return whether a pod with this affinity may join the pods of a card; a card without pods is idle."""
        return not others or any(other.affinity == self.affinity for other in others)

    def has_no_anti_affinity(self, others: Collection[Company]) -> bool:
        return not self.anti_affinity or all(other.anti_affinity != self.anti_affinity for other in others)

    def has_same_exclusion(self, others: Collection[Company]) -> bool:
        return all(other.exclusion == self.exclusion for other in others)


NO_COMPANY = Company()  # the labels of a pod that has none


NOTHING: Mapping[str, int] = MappingProxyType({})  # the amounts of a card that has none, or on which nothing is booked


class Link(NamedTuple):
    """A direct connection between a tile of one card and a tile of another, usable in both directions."""

    one: Tile
    other: Tile


class Partition(NamedTuple):
    """Cards that the node's administrator gives out together, to one pod."""

    cards: frozenset[Card]
    score: int = 0  # how good it is; the best is tried first
    bandwidth: int = 0  # between its cards, in bytes; 0 if none is stated


@dataclass(frozen=True, slots=True, kw_only=True)
class Inventory:
    """The cards of one node.

    Raises InvalidValue for a capacity that is negative or fractional, and for a field that names a card or a tile that
    the node does not have. Only ``disabled``, ``preferred_card``, ``partitions`` and ``models`` may name others.
    """

    # in natural order of the cards; the amount of ``tiles`` is the number of a card's tiles
    capacity: Mapping[Card, Amounts]
    disabled: frozenset[Card] = frozenset()  # cards on which nothing new may start
    closed_tiles: Mapping[Card, frozenset[int]] = field(default_factory=dict)  # tiles that are not given out, by card
    preferred_card: Card | None = None  # the card to try first, if the node has it
    # tiles to give first, best first, each once, by card
    preferred_tiles: Mapping[Card, tuple[int, ...]] = field(default_factory=dict)
    # cards by NUMA node, each card once; None if the node states no NUMA nodes
    numa_groups: tuple[tuple[Card, ...], ...] | None = None
    # in the node's own order, one as often as there are links; their tiles are not checked, as cards without tiles may
    # be linked, too
    links: tuple[Link, ...] = ()
    boards: tuple[tuple[Card, ...], ...] = ()  # the cards that share a board, board by board, each card once
    # for pods of whole cards, see `PartitionRule`; they may name cards that the node does not have
    partitions: tuple[Partition, ...] = ()
    partitioned: bool = False  # whether such pods get partitions only
    # cards by other names that a need may use in place of a card, such as a model or a PCI address
    other_names: Mapping[str, frozenset[Card]] = field(default_factory=dict)
    # driver and model of cards in lower case, ``nvidia-nvidia a10``, for rules about models
    models: Mapping[Card, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for card, amounts in self.capacity.items():
            check_amounts(amounts.items(), card)
        if list(self.capacity) != sorted(self.capacity):
            raise InvalidValue(f"expected cards in natural order, found {', '.join(map(str, self.capacity))}")
        for card, closed in self.closed_tiles.items():
            self._check_tiles("closed", card, closed)
        for card, preferred in self.preferred_tiles.items():
            self._check_tiles("preferred", card, preferred)
        self._check_groups("NUMA groups", self.numa_groups or ())
        self._check_groups("boards", self.boards)
        for name, named in self.other_names.items():
            if others := sorted(named - self.capacity.keys()):
                raise InvalidValue(f"named cards, {name!r}: expected cards of the node, found {others[0]}")
        for one, other in self.links:
            if one.card == other.card or one.card not in self.capacity or other.card not in self.capacity:
                raise InvalidValue(
                    f"links: expected two different cards of the node, found {one.card} and {other.card}"
                )

    def _check_tiles(self, what: str, card: Card, indexes: Collection[int]) -> None:
        check_tiles(card, indexes)
        count = self.capacity.get(card, NOTHING).get(TILES, 0)
        if indexes and max(indexes) >= count:
            raise InvalidValue(f"{card}: expected {what} tiles below {count}, found {max(indexes)}")

    def _check_groups(self, what: str, groups: Collection[Collection[Card]]) -> None:
        grouped: set[Card] = set()
        for group in groups:
            for card in group:
                if card not in self.capacity:
                    raise InvalidValue(f"{what}: expected cards of the node, found {card}")
                if card in grouped:
                    raise InvalidValue(f"{what}: expected each card once, found {card} twice")
                grouped.add(card)

    @property
    def cards(self) -> tuple[Card, ...]:
        return tuple(self.capacity)

    def resolve(self, names: Iterable[Card | str]) -> frozenset[Card]:
        """Return the cards that are named, by themselves or by one of their other names; they need not all exist."""
        found: set[Card] = set()
        for name in names:
            if isinstance(name, Card):
                found.add(name)
            else:
                found |= self.other_names.get(name, frozenset())
        return frozenset(found)

    def closeness(self, card: Card) -> dict[Card, int]:
        """Return how close other cards are: 2 and their links, 2 on one board, 1 on one NUMA node, else 0."""
        close = dict.fromkeys(self.capacity, 0)
        for group in self.numa_groups or ():
            if card in group:
                close.update(dict.fromkeys(group, 1))
        for board in self.boards:
            if card in board:
                close.update(dict.fromkeys(board, 2))
        linked = Counter(
            other.card if one.card == card else one.card for one, other in self.links if card in (one.card, other.card)
        )
        close.update({other: 2 + links for other, links in linked.items()})
        close[card] = 0
        return close


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """The amounts and tiles booked on one node now, a view of the ledger: read it at once and do not keep it."""

    # by card; cards that the node no longer has may be among them
    amounts: Mapping[Card, Amounts] = field(default_factory=dict)
    tiles: Mapping[Card, frozenset[int]] = field(default_factory=dict)  # by card, the tiles that a pod holds
    # by card, how many containers have it; a card without containers is idle
    containers: Mapping[Card, int] = field(default_factory=dict)
    # by card, the different labels of its pods; a card whose pods all have no label may be missing
    company: Mapping[Card, Collection[Company]] = field(default_factory=dict)
    # by card, the names that its pods have given it; a card without a name is missing
    names: Mapping[Card, Collection[str]] = field(default_factory=dict)

    def is_idle(self, card: Card) -> bool:
        return not self.containers.get(card)

    def company_on(self, card: Card) -> Collection[Company]:
        return () if self.is_idle(card) else self.company.get(card, _UNLABELLED)


_UNLABELLED = (NO_COMPANY,)

UNUSED = Usage()


def free_amount(inventory: Inventory, usage: Usage, card: Card, name: str) -> int:
    """Return how much of a resource is free on a card; negative if the node shrank below what is booked.

    A closed tile is not free, even if no pod holds it (contract E8.11).
    """
    left = inventory.capacity.get(card, NOTHING).get(name, 0) - usage.amounts.get(card, NOTHING).get(name, 0)
    if name == TILES:
        left -= len(inventory.closed_tiles.get(card, frozenset()) - usage.tiles.get(card, frozenset()))
    return left


def free_amounts(inventory: Inventory, usage: Usage, card: Card) -> dict[str, int]:
    """Return `free_amount` of every resource that a card has."""
    booked = usage.amounts.get(card)
    free = inventory.capacity[card]
    free = {name: has - booked.get(name, 0) for name, has in free.items()} if booked else dict(free)
    if closed := inventory.closed_tiles.get(card):
        free[TILES] -= len(closed - usage.tiles.get(card, frozenset()))
    return free


def free_tiles(inventory: Inventory, usage: Usage, card: Card) -> tuple[int, ...]:
    """Return the tiles of a card that may be given out: preferred ones first, then the others in ascending order."""
    shut = inventory.closed_tiles.get(card, frozenset()) | usage.tiles.get(card, frozenset())
    count = inventory.capacity[card].get(TILES, 0)
    preferred = [tile for tile in inventory.preferred_tiles.get(card, ()) if tile not in shut]
    return (*preferred, *(tile for tile in range(count) if tile not in shut and tile not in preferred))
