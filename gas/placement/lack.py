"""How much a node that refuses a pod lacks, so that of many refusals the one nearest to fitting can be named first."""

from collections.abc import Sequence
from typing import NamedTuple

from gas.placement.candidates import usable_cards
from gas.placement.inventory import Inventory, Usage, free_amount
from gas.placement.need import PodNeed
from gas.placement.plan import plan_of
from gas.placement.ratio import Ratio, Wanted, amounts_on
from gas.placement.refusal import FewerCardsThanWanted, NotTogether, Refusal, Shortage
from gas.values.amounts import MEMORY_MAX, Amounts, describe


class Lack(NamedTuple):
    """The shortage of one node."""

    gap: float  # the largest part of an asked amount that is not free, 0 to 1; 1 more where it never will be
    text: str  # the reason
    nearest: str = ""  # the card that lacks least, with what is free there; empty if no amount is short


def lack_of_cards(need: PodNeed, inventory: Inventory, usage: Usage, refusal: Refusal) -> Lack:
    """Return what the cards of a node lack that refuses the pod."""
    text = str(refusal)
    if isinstance(refusal, FewerCardsThanWanted):
        return Lack(2 - refusal.cards / refusal.wanted, text)
    short = getattr(refusal, "shortage", None) or getattr(refusal, "short", None) or refusal
    wanted: tuple[Wanted, ...] | None = getattr(short, "amounts", None)
    if not wanted:
        return Lack(0.0, text)
    resources = plan_of(need).names
    free = {
        str(card): {each: max(free_amount(inventory, usage, card, each), 0) for each in resources}
        for card in usable_cards(need, inventory, usage)
    }
    has = {str(card): amounts for card, amounts in inventory.capacity.items()}
    places = [(card, has[card], of_card) for card, of_card in free.items()]
    if isinstance(short, NotTogether):
        sums = {each: sum(of_card[each] for of_card in free.values()) for each in resources}
        places = [("on all cards together", {}, sums)]
    gaps = [(*found, where) for where, of_all, is_free in places if (found := _gap(wanted, of_all, is_free))]
    gaps.sort(key=lambda each: each[0])
    at = short.wanted - 1 if isinstance(short, Shortage) else 0
    if at >= len(gaps):
        return Lack(1.0, text)
    gap, resource, asked, there, where = gaps[at]
    stated = need.stated_memory
    if stated is not None and resource == MEMORY_MAX:
        there -= there % stated.unit.bytes  # no pod can ask for a part of a unit
    words = describe(resource, there, stated)
    if words == describe(resource, asked, stated):  # bytes that are equal once they are rounded
        words = f"{there} of {asked} bytes of {resource}"
    return Lack(gap, text, f"{where} with {words}" if gap else "")


def _gap(wanted: Sequence[Wanted], has: Amounts, free: Amounts) -> tuple[float, str, int, int] | None:
    """Return the largest part of an amount that is not free, the resource, what is asked of it, and what is free.

    ``has`` is what the card has, empty for several cards. If it is too small, the part is 1 more. None if all that is
    asked for are parts of amounts that it does not have.
    """
    plain = dict(each for each in wanted if not isinstance(each, Ratio))
    asks = amounts_on(has, plain, [each for each in wanted if isinstance(each, Ratio)])
    gaps = [(1 - free[name] / asked, name, asked) for name, asked in asks.items() if asked]
    if not gaps:
        return None
    gap, resource, asked = max(gaps)
    never = bool(has) and any(has.get(name, 0) < amount for name, amount in asks.items())
    return max(gap, 0.0) + never, resource, asked, free[resource]
