"""The cards that a pod may use, the order in which they are tried, and the groups that must not be mixed.

The rules are E6.1 to E6.6 and E7.8 of the contract. The original makes the list of candidates anew for every single
card. While one container is placed, only the cards that it already has change their place in that list, so one list for
each container gives the same result.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gas.amounts import TILES
from gas.cards import Card
from gas.placement.card_rules import closed_cards
from gas.placement.free_capacity import FreeCapacity
from gas.placement.inventory import NOTHING, Inventory, Usage
from gas.placement.need import PodNeed
from gas.placement.plan import Plan, Request


def usable_cards(need: PodNeed, inventory: Inventory, usage: Usage, *, balanced: bool) -> tuple[Card, ...]:
    """Return the cards that no rule closes.

    They are in natural order, except that the node's preferred card comes first as in `preferred_first`. With a
    balanced resource the preferred card is ignored.
    """
    cards: Iterable[Card] = inventory.capacity
    if not balanced and inventory.preferred_card is not None:
        cards = preferred_first(inventory.cards, inventory.preferred_card)
    closed = closed_cards(need, inventory, usage)
    return tuple(card for card in cards if card not in closed) if closed else tuple(cards)


def preferred_first(cards: Sequence[Card], preferred: Card) -> Sequence[Card]:
    """Swap the preferred card with the first one: 0, 1, 2, 3 with 2 preferred becomes 2, 1, 0, 3."""
    if preferred not in cards:
        return cards
    ordered = list(cards)
    place = ordered.index(preferred)
    ordered[0], ordered[place] = preferred, ordered[0]
    return ordered


def card_groups(need: PodNeed, inventory: Inventory, usable: tuple[Card, ...]) -> Sequence[tuple[Card, ...]]:
    """Return the sets of cards of which one must serve the whole pod, in the order in which they are tried.

    A pod that needs a single NUMA node (contract E7.8) has one set for each of the node's groups, with the cards in
    the order of ``usable``. All usable cards are one set if the pod does not need it, or if the node has no groups.
    """
    if not need.single_numa or inventory.numa_groups is None:
        return (usable,)
    return [tuple(card for card in usable if card in group) for group in inventory.numa_groups]


class Candidates:
    """The order in which the cards are tried for one request, given what the pod has taken so far."""

    __slots__ = ("_booked", "_free", "_place", "_width")

    def __init__(
        self, inventory: Inventory, usage: Usage, plan: Plan, free: FreeCapacity, balanced: str | None
    ) -> None:
        self._free = free
        self._booked: dict[Card, int] | None = None
        if balanced is None:
            return
        self._width = len(plan.names)
        self._place = plan.names.index(balanced) if balanced in plan.names else None
        self._booked = {card: _booked(inventory, usage, card, balanced) for card in free.left}

    def of(self, request: Request, cards: Sequence[Card]) -> Sequence[Card]:
        """Return ``cards`` in the order to try; the least used of the balanced resource comes first, if there is one.

        Without a balanced resource, and among equally used cards, the order of ``cards`` stays.
        """
        booked = self._booked
        if booked is None:
            return cards
        if self._place is None:
            return sorted(cards, key=booked.__getitem__)
        slot = request.moments[0] * self._width + self._place
        return sorted(cards, key=lambda card: booked[card] + self._free.taken(card, slot))


def _booked(inventory: Inventory, usage: Usage, card: Card, name: str) -> int:
    """Return how much of a resource is used on a card; a closed tile counts as used, also if no pod holds it."""
    booked = usage.amounts.get(card, NOTHING).get(name, 0)
    if name == TILES:
        booked += len(inventory.closed_tiles.get(card, frozenset()) - usage.tiles.get(card, frozenset()))
    return booked
