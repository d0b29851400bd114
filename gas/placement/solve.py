"""Where the requests of a pod go: first the greedy answer, then the complete search.

A pod without init containers gets, of the two, the first that has an answer. For one that has some, the same
with a wish on top, since kubelet hands the cards of ended init containers on (`kubelet_reuse`). In this
order:

1. app containers as if there were no init containers, so that their cards are those of the greedy answer;
   beside them the sidecars, likewise greedy; then the init containers, searched so that everything obeys what
   kubelet hands on;
2. the complete search for an answer that obeys;
3. the complete search for any answer.

A pod that wants one NUMA group goes through each step with every group before the next step begins.
"""

from __future__ import annotations

import enum
from functools import partial

from gas.placement.candidates import Candidates, usable_cards
from gas.placement.fit import each_fits_alone
from gas.placement.free_capacity import FreeCapacity
from gas.placement.greedy import Picks, greedy
from gas.placement.inventory import Inventory, Usage
from gas.placement.need import PodNeed
from gas.placement.requests import plan_of
from gas.placement.search import Search
from gas.placement.single_numa import card_groups
from gas.placement.steps import Steps


class Unsolved(enum.Enum):
    """Why there is no answer."""

    NOTHING_FITS = "nothing fits"
    NOT_KNOWN = "the search ran out of steps"


def solve(need: PodNeed, inventory: Inventory, usage: Usage, balanced: str | None, step_limit: int) -> Picks | Unsolved:
    """What each request of the need's plan gets; ``step_limit`` is for all searches together."""
    plan = plan_of(need)
    usable = usable_cards(need, inventory, balanced=balanced is not None)
    room = FreeCapacity(plan, inventory, usage, usable, by_tile=need.linked)
    candidates = Candidates(inventory, usage, plan, room, balanced)
    groups = card_groups(need, inventory, usable)
    links = inventory.links if need.linked else None
    steps = Steps(step_limit)
    search = partial(Search, plan, links=links, candidates=candidates, room=room, steps=steps)
    searches = 3 * len(groups)

    for cards in groups:
        staying = greedy(plan.staying, cards, candidates, links, room)
        if staying is None:
            continue
        if not plan.has_init_containers:
            return staying
        steps.share(searches)
        searches -= 1
        found = search(cards, obey_reuse=True, fixed=staying).run()
        if found is not None:
            return found
        for request in plan.staying:
            for pick in staying[request.index]:
                room.give_back(request, pick)

    groups = [cards for cards in groups if each_fits_alone(plan, cards, links, room)]
    wishes = (True, False) if plan.has_init_containers else (False,)
    searches = len(wishes) * len(groups)
    answer = Unsolved.NOTHING_FITS
    for obey_reuse in wishes:
        for cards in groups:
            steps.share(searches)
            searches -= 1
            found = search(cards, obey_reuse=obey_reuse, fixed={}).run()
            if found is not None:
                return found
            if steps.ran_out and not obey_reuse:
                answer = Unsolved.NOT_KNOWN
    return answer
