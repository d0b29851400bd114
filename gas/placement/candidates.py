"""Which cards may be used, and which is tried first (contract E6.1 to E6.6).

The original makes the list of candidates anew for every single card. While one container is served only the
cards that it already holds change their place in that list, so one list a container gives the same answers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gas.amounts import TILES
from gas.cards import Card
from gas.placement.free_capacity import FreeCapacity
from gas.placement.inventory import NOTHING, Inventory, Usage
from gas.placement.need import PodNeed
from gas.placement.requests import Plan, Request


def usable_cards(need: PodNeed, inventory: Inventory, *, balanced: bool) -> tuple[Card, ...]:
    """The cards that are not disabled, are allowed and not denied; natural order, a preferred card as in
    `preferred_first`.

    With a balanced resource the preferred card has no say.
    """
    cards: Iterable[Card] = inventory.capacity
    if not balanced and inventory.preferred_card is not None:
        cards = preferred_first(inventory.cards, inventory.preferred_card)
    if not inventory.disabled and need.allowed is None and not need.denied:
        return tuple(cards)
    closed = inventory.disabled | need.denied
    return tuple(card for card in cards if card not in closed and (need.allowed is None or card in need.allowed))


def preferred_first(cards: Sequence[Card], preferred: Card) -> Sequence[Card]:
    """The preferred card changes places with the first one: 0, 1, 2, 3 with 2 preferred is 2, 1, 0, 3."""
    if preferred not in cards:
        return cards
    ordered = list(cards)
    place = ordered.index(preferred)
    ordered[0], ordered[place] = preferred, ordered[0]
    return ordered


class Candidates:
    """The order in which the cards are tried for one container, given what the pod has taken so far."""

    __slots__ = ("_booked", "_place", "_room", "_width")

    def __init__(
        self, inventory: Inventory, usage: Usage, plan: Plan, room: FreeCapacity, balanced: str | None
    ) -> None:
        self._room = room
        self._booked: dict[Card, int] | None = None
        if balanced is None:
            return
        self._width = len(plan.names)
        self._place = plan.names.index(balanced) if balanced in plan.names else None
        self._booked = {card: _booked(inventory, usage, card, balanced) for card in room.left}

    def of(self, request: Request, cards: Sequence[Card]) -> Sequence[Card]:
        """``cards``, which are in natural or preferred order, with the least used first if a resource is
        balanced."""
        booked = self._booked
        if booked is None:
            return cards
        if self._place is None:
            return sorted(cards, key=booked.__getitem__)
        slot = request.moments[0] * self._width + self._place
        return sorted(cards, key=lambda card: booked[card] + self._room.taken(card, slot))


def _booked(inventory: Inventory, usage: Usage, card: Card, name: str) -> int:
    """A closed tile that nobody holds counts as used."""
    booked = usage.amounts.get(card, NOTHING).get(name, 0)
    if name == TILES:
        booked += len(inventory.closed_tiles.get(card, frozenset()) - usage.tiles.get(card, frozenset()))
    return booked
