"""A cheap check that most full nodes fail: does every request fit at least alone?"""

from __future__ import annotations

from collections.abc import Sequence

from gas.cards import Card
from gas.placement.free_capacity import FreeCapacity
from gas.placement.linked import Links, pairs
from gas.placement.requests import Plan


def each_fits_alone(plan: Plan, cards: Sequence[Card], links: Links | None, room: FreeCapacity) -> bool:
    """Whether every request finds enough cards with room, or enough linked ones; ``room`` is untouched by
    this pod."""
    for request in plan.requests:
        if links is None:
            fitting = sum(room.has(request, card) for card in cards)
        else:
            fitting = len({card for pick in pairs(request, cards, links, room) for card in pick.cards})
        if fitting < request.count:
            return False
    return True
