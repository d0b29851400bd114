"""The free amounts of each card, for a pod that waits: one sentence for each card."""

from __future__ import annotations

from gas.placement.card_rules import CARD_RULES
from gas.placement.free_capacity import FreeCapacity
from gas.placement.inventory import Inventory, Usage
from gas.placement.linked import pairs
from gas.placement.need import PodNeed
from gas.placement.plan import plan_of
from gas.values.amounts import gigabytes, is_bytes
from gas.values.cards import Card


def card_details(need: PodNeed, inventory: Inventory, usage: Usage) -> tuple[str, ...]:
    """Describe the node's cards in their order: ``"card0: 3.0 of 8.0 GB of memory.max free, 5.0 needed"``.

    The needed amount is the most that one container, or the containers that share a card, want of one card. Count
    resources are left out unless they are short. The result is empty for a pod that wants no card.
    """
    if not need.wants_cards:
        return ()
    plan = plan_of(need)
    free = FreeCapacity(plan, inventory, usage, inventory.cards, by_tile=need.linked)
    linked: set[Card] = set()
    if need.linked:
        found = (pairs(request, inventory.cards, inventory.links, free) for request in plan.requests)
        linked = {card for picks in found for pick in picks for card in pick.cards}

    closed = [(rule, rule.closed(need, inventory, usage)) for rule in CARD_RULES]

    def detail(card: Card) -> str:
        parts = [rule.detail(need, usage) for rule, cards in closed if card in cards]
        if need.linked and card not in linked:
            parts.append("no free link to a card with room")
        most: dict[str, int] = {}
        for request in plan.requests:
            for name, amount in free.takes(request, card).items():
                most[name] = max(most.get(name, 0), amount)
        for place, name in enumerate(plan.names):
            left = free.free(card, place)
            if name not in need.count_resources or left < most[name]:
                capacity = inventory.capacity[card].get(name, 0)
                parts.append(_numbers(name, max(left, 0), capacity, most[name]))
        if not parts:
            parts.append("has room")
        return f"{card}: {'; '.join(parts)}"

    return tuple(detail(card) for card in inventory.cards)


def _numbers(name: str, free: int, capacity: int, needed: int) -> str:
    """Compare free and needed, in bytes where rounding to gigabytes would hide the difference."""
    if capacity <= 0:
        return f"has no {name}"
    if not is_bytes(name):
        return f"{free} of {capacity} {name} free, {needed} needed"
    if gigabytes(free) == gigabytes(needed) and free != needed:
        return f"{free} of {capacity} bytes of {name} free, {needed} needed"
    return f"{gigabytes(free)} of {gigabytes(capacity)} GB of {name} free, {gigabytes(needed)} needed"
