"""Order the cards that a pod may use, and find groups that must not be mixed and linked pairs.

The rules: contract E6.1 to E6.6 and E7.8. The original makes a new list of candidates for every single card. Here one
list for each container gives the same result: while a container is placed, the order can change only for the cards that
it already has, and it never gets a card twice. Only nearness needs a new list after the first card.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from math import comb
from typing import Any

from gas.placement.card_rules import NO_CARDS, closed_cards
from gas.placement.free_capacity import FreeCapacity, Pick, Picks
from gas.placement.inventory import Inventory, Link, Partition, Usage, free_amount, free_amounts
from gas.placement.need import PartitionRule, PodNeed, Scope
from gas.placement.order import Natural
from gas.placement.plan import Plan, Request
from gas.values.amounts import Amounts
from gas.values.cards import Card, Tile

MOST_SETS = 128  # most sets of cards that are compared for nearness: more than there are of 8 cards
MOST_OTHERS = 16  # most cards of such a set after its first one


def usable_cards(need: PodNeed, inventory: Inventory, usage: Usage) -> tuple[Card, ...]:
    """Return the cards that no rule closes, in natural order.

    With that order the node's preferred card comes first, see `preferred_first`; a pod's own order of cards ignores it.
    """
    cards: Iterable[Card] = inventory.capacity
    if (preferred := preferred_card(need, inventory)) is not None:
        cards = preferred_first(inventory.cards, preferred)
    closed = closed_cards(need, inventory, usage)
    return tuple(card for card in cards if card not in closed)


def preferred_card(need: PodNeed, inventory: Inventory) -> Card | None:
    """Return the card that the node prefers, None if there is none or the pod's order of cards ignores it."""
    return inventory.preferred_card if isinstance(need.order, Natural) else None


def preferred_first(cards: Sequence[Card], preferred: Card) -> Sequence[Card]:
    """Swap the preferred card with the first one: 0, 1, 2, 3 with 2 preferred becomes 2, 1, 0, 3."""
    if preferred not in cards:
        return cards
    ordered = list(cards)
    place = ordered.index(preferred)
    ordered[0], ordered[place] = preferred, ordered[0]
    return ordered


def affine_cards(need: PodNeed, usage: Usage) -> frozenset[Card]:
    """Return the cards that have a pod with the same affinity."""
    if not (affinity := need.company.affinity):
        return NO_CARDS
    return frozenset(
        card for card in usage.company if any(other.affinity == affinity for other in usage.company_on(card))
    )


def card_groups(
    need: PodNeed, inventory: Inventory, usable: Sequence[Card], usage: Usage
) -> Sequence[tuple[Card, ...]]:
    """Return the sets of cards of which one must serve the whole pod, in the order in which they are tried.

    A pod of one card has a set for each card, or for each card of a NUMA group. A pod that needs a single NUMA node
    (contract E7.8) has one set for each of the node's groups, with the cards in the order of ``usable``, and one that
    needs a single board has one for each board. Otherwise, and if the node has no NUMA groups, all usable cards are one
    set. Partitions come before all these, or in their place.
    """
    if need.partition is None:
        return _groups(need, inventory, usable)
    partitions = _partitions(need.partition, need.cards, inventory, usage)
    groups = [tuple(card for card in usable if card in cards) for cards in partitions if cards.issubset(usable)]
    only = need.partition.required or inventory.partitioned
    return groups if only else [*groups, *_groups(need, inventory, usable)]


def _partitions(rule: PartitionRule, size: int, inventory: Inventory, usage: Usage) -> list[frozenset[Card]]:
    """Return the partitions of this size for a pod: those with the best score first.

    Of equal ones the first is the one that leaves the largest partitions of idle cards.
    """
    idle = frozenset(filter(usage.is_idle, inventory.capacity))

    def left(taken: Partition) -> list[int]:
        rest = idle - taken.cards
        return sorted((len(each.cards) for each in inventory.partitions if each.cards <= rest), reverse=True)

    of_size = [each for each in inventory.partitions if len(each.cards) == size]
    of_size.sort(key=lambda each: (each.score, left(each)), reverse=True)
    good = [each for each in of_size if not rule.best or each.score == of_size[0].score]
    return [each.cards for each in good if each.bandwidth >= rule.bandwidth]


def _groups(need: PodNeed, inventory: Inventory, usable: Sequence[Card]) -> Sequence[tuple[Card, ...]]:
    groups = inventory.numa_groups
    if need.scope is Scope.NUMA_CARD and groups is not None:
        return [(card,) for card in usable if any(card in group for group in groups)]
    if need.scope.is_one_card:
        return [(card,) for card in usable]
    if need.scope is Scope.NUMA and groups is not None:
        return [tuple(card for card in usable if card in group) for group in groups]
    if need.scope is Scope.BOARD:
        boards = [tuple(card for card in usable if card in board) for board in inventory.boards]
        return [*boards, *((card,) for card in usable if not any(card in board for board in boards))]
    return (tuple(usable),)


class Candidates:
    """The order in which the cards are tried for one request, given what the pod has so far.

    Without nearness it is the order of the need, `gas.placement.order`; cards with a pod of the same affinity come
    before all others. With nearness:

    - The pod's first card is the first one in the order of the need, and of equal ones the one with the best others.
    - The others are the set of cards that is closest, all pairs of the pod's cards together; of equal sets the one
      closest to the first card, then the one whose cards are earlier in the order of the need.
    - With more sets than `MOST_SETS`, or larger ones than `MOST_OTHERS`, only the cards closest to the first one count.
    - A card that the pod has already counts as good as the best of the others, for the pod's other containers.

    near   whether the order depends on the pod's first card, so that `of` must be called again after it
    links  None for a pod whose cards need not be linked
    """

    __slots__ = ("_affine", "_close", "_keeps_order", "free", "inventory", "links", "near", "need", "plan", "usage")

    def __init__(self, need: PodNeed, inventory: Inventory, usage: Usage, plan: Plan, free: FreeCapacity) -> None:
        self.need = need
        self.inventory = inventory
        self.usage = usage
        self.plan = plan
        self.free = free
        self.near = need.near
        self.links = inventory.links if need.linked else None
        self._affine = affine_cards(need, usage)
        self._close: dict[Card, dict[Card, int]] = {}
        self._keeps_order = not need.near and isinstance(need.order, Natural) and not self._affine

    def of(self, request: Request, cards: Sequence[Card], picks: Picks) -> Sequence[Card]:
        """Return ``cards`` in the order to try. With nearness, cards without room for the request are left out.

        Cards that are equal in the order of the need stay in the order of ``cards``. ``picks`` is what the pod has so
        far, its first card first.
        """
        if self._keeps_order:
            return cards
        order = self.need.order
        use = UseAtStart(self, request, picks)
        if not self.near:
            return sorted(cards, key=lambda card: (card not in self._affine, *order.key(card, use)))
        preferred = preferred_card(self.need, self.inventory)
        keys = {
            card: (card not in self._affine, card != preferred, *order.key(card, use))
            for card in cards
            if self.free.has(request, card)
        }
        has = list(dict.fromkeys(card for of_request in picks.values() for pick in of_request for card in pick.cards))
        wanted = max(sum(each.count for each in self.plan.staying), request.count)
        more = 0 if self.need.scope.is_one_card else max(wanted - len(has) - 1, 0)
        costs = self._costs(has, keys, more)
        if not has:
            return sorted(keys, key=lambda card: (keys[card], costs[card]))
        best, near = min(costs.values(), default=()), dict(self._closeness(has[0]))
        near[has[0]] = max((near[card] for card in costs), default=0)
        return sorted(keys, key=lambda card: (costs.get(card, best), -near[card], keys[card]))

    def of_sets(self, request: Request, cards: Sequence[Card], picks: Picks) -> Sequence[Card]:
        """Return ``cards`` in the order in which sets of them are tried: after the first card those nearest to it."""
        ordered = self.of(request, cards, picks)
        if not self.near or picks or not ordered:
            return ordered
        first, *others = ordered
        return [first, *self.of(request, others, {request.index: (Pick((first,)),)})]

    def _costs(self, has: Sequence[Card], keys: Mapping[Card, Any], more: int) -> dict[Card, tuple[Any, ...]]:
        """Return the cost of each card that the pod does not have, with the best ``more`` others: less is better."""
        new = [card for card in keys if card not in has]
        more = min(more, len(new) - 1)
        if more > MOST_OTHERS or (more > 0 and comb(len(new) - 1, more) > MOST_SETS):
            if has:
                return {card: (-self._closeness(has[0])[card], keys[card]) for card in new}
            return {
                card: tuple(sorted((-near[each], keys[each]) for each in new if each != card)[:more])
                for card, near in ((each, self._closeness(each)) for each in new)
            }
        to_others = {card: sum(self._closeness(one)[card] for one in has) for card in new}

        def cost(cards: tuple[Card, ...]) -> tuple[Any, ...]:
            pairs = sum(self._closeness(one)[other] for one, other in combinations(cards, 2))
            total = pairs + sum(to_others[card] for card in cards)
            near = self._closeness(has[0] if has else cards[0])
            return (-total, -sum(near[card] for card in cards), sorted(keys[card] for card in cards))

        return {
            card: min(cost((card, *others)) for others in combinations([each for each in new if each != card], more))
            for card in new
        }

    def _closeness(self, card: Card) -> Mapping[Card, int]:
        if (close := self._close.get(card)) is None:
            close = self._close[card] = self.inventory.closeness(card)
        return close


class UseAtStart:
    """The use of a node's cards at the start of a request, with what the pod itself has taken so far."""

    __slots__ = ("_moment", "_of", "_picks", "_request")

    def __init__(self, candidates: Candidates, request: Request, picks: Picks) -> None:
        self._of = candidates
        self._request = request
        self._moment = request.moments[0]
        self._picks = picks

    def used(self, card: Card, name: str) -> int:
        return self._of.inventory.capacity[card].get(name, 0) - self.left(card, name)

    def left(self, card: Card, name: str) -> int:
        """Return how much of a resource is left on a card; negative if the node shrank below what is booked."""
        left = free_amount(self._of.inventory, self._of.usage, card, name)
        if name not in self._of.plan.names:
            return left
        return left - self._of.free.taken(
            card, self._moment * len(self._of.plan.names) + self._of.plan.names.index(name)
        )

    def containers(self, card: Card) -> int:
        of_pod = sum(
            1 if request.apart else len(request.positions)
            for request in self._of.plan.requests
            if self._moment in request.moments
            for pick in self._picks.get(request.index, ())
            if card in pick.cards
        )
        return self._of.usage.containers.get(card, 0) + of_pod

    def capacity(self, card: Card) -> Amounts:
        return self._of.inventory.capacity[card]

    def all_left(self, card: Card) -> dict[str, int]:
        """Return `left` of every resource that the card has."""
        left = free_amounts(self._of.inventory, self._of.usage, card)
        if self._picks:
            start = self._moment * len(self._of.plan.names)
            for slot, name in enumerate(self._of.plan.names, start):
                if name in left:
                    left[name] -= self._of.free.taken(card, slot)
        return left

    def wanted(self, card: Card) -> Amounts:
        """Return what the container to be placed takes of a card."""
        return self._of.free.takes(self._request, card)


Links = Sequence[Link]


def pairs(request: Request, cards: Sequence[Card], links: Links, free: FreeCapacity) -> list[Pick]:
    """Return every pair of cards that has enough free, each pair of tiles once. Pairs of the result may share a card.

    Links count in both directions. The order is that of ``cards``, then of the tiles of a card, then of the links.
    """
    ends: dict[Tile, list[Tile]] = {}
    for link in links:
        ends.setdefault(link.one, []).append(link.other)
    for link in links:
        ends.setdefault(link.other, []).append(link.one)
    open_tiles = {card: free.tiles(request, card) for card in cards if free.has(request, card)}
    found: dict[frozenset[Tile], Pick] = {}
    for card in cards:
        for tile in open_tiles.get(card, ()):
            for end in ends.get(Tile(card, tile), ()):
                if end.index in open_tiles.get(end.card, ()):
                    pick = Pick((card, end.card), (tile, end.index))
                    found.setdefault(frozenset((Tile(card, tile), end)), pick)
    return list(found.values())


def first_fit_pairs(request: Request, cards: Sequence[Card], links: Links, free: FreeCapacity) -> Iterator[Pick]:
    """Yield the original's pairs, best first; the caller takes each from ``free`` before it asks for the next.

    The original follows a link from its left end only, and uses only the first link of each tile.
    """
    first_link: dict[Tile, Tile] = {}
    for link in links:
        first_link.setdefault(link.one, link.other)
    taken: set[Card] = set()
    for card in cards:
        if card in taken or not free.has(request, card):
            continue
        for tile in free.tiles(request, card):
            end = first_link.get(Tile(card, tile))
            if (
                end is not None
                and end.card in cards
                and end.card not in taken
                and free.has(request, end.card)
                and end.index in free.tiles(request, end.card)
            ):
                taken |= {card, end.card}
                yield Pick((card, end.card), (tile, end.index))
                break


def are_linked_alike(links: Mapping[Card, Links], one: Card, other: Card) -> bool:
    """Return whether two cards can be swapped without changing any link. ``links`` are by each of their cards."""
    swap = {one: other, other: one}
    touched = (*links.get(one, ()), *links.get(other, ()))
    now = {frozenset(link) for link in touched}
    swapped = {frozenset(Tile(swap.get(end.card, end.card), end.index) for end in link) for link in touched}
    return now == swapped
