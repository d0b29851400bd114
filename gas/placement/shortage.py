"""What exactly is short, in the fewest resources that say it."""

from __future__ import annotations

from collections.abc import Sequence

from gas.amounts import SortedAmounts
from gas.cards import Card
from gas.placement.free_capacity import FreeCapacity
from gas.placement.refusal import NotTogether, Shortage
from gas.placement.requests import Plan, Request


def shortage(plan: Plan, request: Request, groups: Sequence[Sequence[Card]], room: FreeCapacity) -> Shortage | None:
    """Find what one request of the plan lacks in every group of cards; None if it fits, alone, in one of them.

    room  untouched by this pod
    """
    needs = dict(zip(request.per_card, request.takes, strict=False))

    def fitting(amounts: SortedAmounts) -> int:
        takes = [needs[named] for named in amounts]
        return max(
            (sum(all(room.left[card][slot] >= n for slot, n in takes) for card in cards) for cards in groups),
            default=0,
        )

    if fitting(request.per_card) >= request.count:
        return None
    alone = {named: fitting((named,)) for named in request.per_card}
    short = min(
        request.per_card,
        key=lambda named: (alone[named] >= request.count, named[0] in plan.count_resources, alone[named]),
    )
    amounts: SortedAmounts = (short,)
    if alone[short] >= request.count:
        somewhere_short = tuple(named for named in request.per_card if _is_short_on_any(needs[named], groups, room))
        telling = tuple(named for named in somewhere_short if named[0] not in plan.count_resources)
        amounts = telling if fitting(telling) < request.count else somewhere_short
    return Shortage(request.count, fitting(amounts), amounts, len(request.positions))


def not_together(plan: Plan) -> NotTogether:
    """All containers fit alone; in total, at the fullest moment, they need too much or lie too badly."""
    totals = plan.totals()
    amounts = tuple((name, max(totals[place :: len(plan.names)])) for place, name in enumerate(plan.names))
    telling = tuple(named for named in amounts if named[0] not in plan.count_resources)
    return NotTogether(len(plan.in_start_order), telling or amounts)


def _is_short_on_any(take: tuple[int, int], groups: Sequence[Sequence[Card]], room: FreeCapacity) -> bool:
    slot, amount = take
    return any(room.left[card][slot] < amount for cards in groups for card in cards)
