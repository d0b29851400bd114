"""Find the cards of each request: first fit, then the complete search.

A pod without init containers is placed by first fit, which gives what the original gives (contract E6.7). If that finds
nothing, the complete search places it. A pod with init containers prefers what kubelet would give it anyway
(`follows_reuse`), so it gets the result of the first of these steps that has one:

1. App containers by first fit as if there were no init containers, then the sidecars with them by first fit, then a
   search for the init containers so that all containers follow kubelet's reuse.
2. The complete search for a result that follows kubelet's reuse.
3. The complete search for any result.

A pod that needs a single NUMA node or a single card tries every group or card in one step before the next step begins.
"""

import enum
from collections.abc import Iterator, Sequence
from functools import partial

from gas.placement.candidates import Candidates, card_groups, first_fit_pairs, pairs, usable_cards
from gas.placement.free_capacity import FreeCapacity, Pick, Picks
from gas.placement.inventory import Inventory, Usage
from gas.placement.need import PodNeed
from gas.placement.plan import Request, plan_of
from gas.placement.search import Search, StepBudget
from gas.values.cards import Card


class Unsolved(enum.Enum):
    NOTHING_FITS = "nothing fits"
    OUT_OF_STEPS = "the search ran out of steps"


def solve(need: PodNeed, inventory: Inventory, usage: Usage, step_limit: int) -> Picks | Unsolved:
    """Return the picks of each request of the need's plan; ``step_limit`` is for all searches together."""
    plan = plan_of(need)
    usable = usable_cards(need, inventory, usage)
    free = FreeCapacity(plan, inventory, usage, usable, by_tile=need.linked)
    candidates = Candidates(need, inventory, usage, plan, free)
    in_order = candidates.of(plan.requests[0], usable, {}) if need.scope.is_one_card else usable
    groups = card_groups(need, inventory, in_order, usage)
    steps = StepBudget(step_limit)
    search = partial(Search, candidates=candidates, steps=steps)
    searches = 3 * len(groups)

    for cards in groups:
        staying = first_fit(plan.staying, cards, candidates)
        if staying is None:
            continue
        if not plan.has_init_containers:
            return staying
        steps.share(searches)
        searches -= 1
        found = search(cards, follow_reuse=True, fixed=staying).run()
        if found is not None:
            return found
        for request in plan.staying:
            for pick in staying[request.index]:
                free.give_back(request, pick)

    groups = [cards for cards in groups if each_fits_alone(cards, candidates)]
    preferences = (True, False) if plan.has_init_containers else (False,)
    searches = len(preferences) * len(groups)
    answer = Unsolved.NOTHING_FITS
    for follow_reuse in preferences:
        for cards in groups:
            steps.share(searches)
            searches -= 1
            found = search(cards, follow_reuse=follow_reuse, fixed={}).run()
            if found is not None:
                return found
            if steps.ran_out and not follow_reuse:
                answer = Unsolved.OUT_OF_STEPS
    return answer


def first_fit(requests: Sequence[Request], cards: Sequence[Card], candidates: Candidates) -> Picks | None:
    """Give each request in turn the first cards that have enough free, and never reconsider (contract E6.7).

    The picks are taken from what is free. Returns None if a request finds too few cards; nothing is then taken.
    """
    free = candidates.free
    found: Picks = {}
    for request in requests:
        picks: list[Pick] = []
        for pick in _fitting(request, cards, found, candidates):
            free.take(request, pick)
            picks.append(pick)
            found[request.index] = tuple(picks)
            if len(picks) * len(pick.cards) == request.count:
                break
        else:
            for earlier in requests:
                for pick in found.get(earlier.index, ()):
                    free.give_back(earlier, pick)
            return None
    return found


def _fitting(request: Request, cards: Sequence[Card], found: Picks, candidates: Candidates) -> Iterator[Pick]:
    """Yield the picks for a request, best first; the caller takes each, also in ``found``, before it asks for more.

    With nearness, the cards are ordered again after each pick, because the first pick decides which cards are near.
    """
    free = candidates.free
    while True:
        order = candidates.of(request, cards, found)
        if candidates.links is not None:
            picks = first_fit_pairs(request, order, candidates.links, free)
        else:
            picks = (Pick((card,)) for card in order if free.has(request, card))
        if not candidates.near:
            yield from picks
            return
        if (pick := next(picks, None)) is None:
            return
        yield pick
        cards = [card for card in cards if card not in pick.cards]


def each_fits_alone(cards: Sequence[Card], candidates: Candidates) -> bool:
    """Return whether every request finds enough cards if it is the only one; most full nodes fail this cheap check.

    This pod must not have taken anything yet.
    """
    free = candidates.free
    for request in candidates.plan.requests:
        if candidates.links is None:
            fitting = sum(free.has(request, card) for card in cards)
        else:
            fitting = len({card for pick in pairs(request, cards, candidates.links, free) for card in pick.cards})
        if fitting < request.count:
            return False
    return True
