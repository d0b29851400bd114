"""The decision for one pod on one node: its cards and tiles, or the reason why it does not fit."""

from __future__ import annotations

from gas.placement.candidates import preferred_card
from gas.placement.choice import Choice, ContainerChoice
from gas.placement.free_capacity import Picks
from gas.placement.inventory import Inventory, Usage
from gas.placement.need import PodNeed
from gas.placement.plan import plan_of
from gas.placement.reason import reason
from gas.placement.refusal import Refusal, SearchLimitHit
from gas.placement.solve import Unsolved, solve
from gas.placement.tiles import choose_tiles
from gas.values.amounts import TILES, is_whole
from gas.values.cards import Card
from gas.values.errors import InvalidValue

DEFAULT_STEP_LIMIT = 5_000
"""Keeps the hardest pod on the worst node below about 0.1 s: a step takes some 10 µs. Ordinary pods need few steps."""


def place(
    need: PodNeed,
    inventory: Inventory,
    usage: Usage,
    *,
    step_limit: int = DEFAULT_STEP_LIMIT,
) -> Choice | Refusal:
    """Choose cards and tiles for every container of the pod (contract E6.5 to E6.9).

    A pod that wants no card fits everywhere. Any other pod is refused only if no choice fits, or if the search was cut
    short. Equal arguments give equal results.

    usage       what is booked on the node; only read
    step_limit  the steps that the complete search may take, 0 for first fit alone; if they are not enough, the result
                is SearchLimitHit

    Raises InvalidValue for a negative or fractional ``step_limit``.
    """
    if not is_whole(step_limit):
        raise InvalidValue(f"step_limit: expected a whole number, 0 or more, found {step_limit}")
    if not need.wants_cards:
        return Choice(tuple(ContainerChoice() for _ in need.containers))
    picks = solve(need, inventory, usage, step_limit)
    if picks is Unsolved.OUT_OF_STEPS:
        return SearchLimitHit(step_limit)
    if picks is Unsolved.NOTHING_FITS:
        return reason(need, inventory, usage, step_limit)
    return _choice(need, inventory, usage, picks)


def _choice(need: PodNeed, inventory: Inventory, usage: Usage, picks: Picks) -> Choice:
    cards: list[tuple[Card, ...]] = [()] * len(need.containers)
    linked_tiles: list[tuple[tuple[int, ...], ...]] = [()] * len(need.containers)
    plan = plan_of(need)
    for request in plan.requests:
        picked = picks[request.index]
        for position in request.positions:
            cards[position] = tuple(card for pick in picked for card in pick.cards)
            linked_tiles[position] = tuple((tile,) for pick in picked for tile in pick.tiles)
    preferred = preferred_card(need, inventory)
    wants_any_tiles = TILES in plan.names and not need.linked
    tiles = choose_tiles(need, inventory, usage, cards) if wants_any_tiles else linked_tiles
    return Choice(
        containers=tuple(ContainerChoice(*what) for what in zip(cards, tiles, strict=True)),
        preferred=preferred is not None and any(preferred in chosen for chosen in cards),
    )
