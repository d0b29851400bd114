"""Whether a pod fits a node, with which cards and tiles, and if not, why not. Pure: the same question, the
same answer."""

from __future__ import annotations

from gas.cards import Card
from gas.placement.choice import Choice, ContainerChoice
from gas.placement.greedy import Picks
from gas.placement.inventory import Inventory, Usage
from gas.placement.need import PodNeed
from gas.placement.reason import reason
from gas.placement.refusal import Refusal, SearchLimitHit
from gas.placement.requests import plan_of
from gas.placement.solve import Unsolved, solve
from gas.placement.tiles import choose_tiles

DEFAULT_STEP_LIMIT = 5_000
"""Keeps the worst pod on the worst node below about 0.1 s (a step takes some 10 µs); ordinary ones need a few steps."""


def place(
    need: PodNeed,
    inventory: Inventory,
    usage: Usage,
    *,
    balanced: str | None = None,
    step_limit: int = DEFAULT_STEP_LIMIT,
) -> Choice | Refusal:
    """Choose cards and tiles for every container of the pod (contract E6.5 to E6.9).

    usage         what is booked on the node; only read
    balanced    a resource by whose use the cards are ordered, least first; a preferred card has no say then
    step_limit  how much the complete search may try; when that was not enough the answer is SearchLimitHit

    A pod that wants no card fits everywhere. A pod is refused otherwise only if no choice at all fits.
    """
    if not need.wants_cards:
        return Choice(tuple(ContainerChoice() for _ in need.containers))
    picks = solve(need, inventory, usage, balanced, step_limit)
    if picks is Unsolved.NOT_KNOWN:
        return SearchLimitHit(step_limit)
    if picks is Unsolved.NOTHING_FITS:
        return reason(need, inventory, usage, step_limit)
    return _choice(need, inventory, usage, picks, inventory.preferred_card if balanced is None else None)


def _choice(need: PodNeed, inventory: Inventory, usage: Usage, picks: Picks, preferred: Card | None) -> Choice:
    cards: list[tuple[Card, ...]] = [()] * len(need.containers)
    linked_tiles: list[tuple[tuple[int, ...], ...]] = [()] * len(need.containers)
    for request in plan_of(need).requests:
        given = picks[request.index]
        for position in request.positions:
            cards[position] = tuple(card for pick in given for card in pick.cards)
            linked_tiles[position] = tuple((tile,) for pick in given for tile in pick.tiles)
    tiles = linked_tiles if need.linked else choose_tiles(need, inventory, usage, cards)
    return Choice(
        containers=tuple(ContainerChoice(*what) for what in zip(cards, tiles, strict=True)),
        preferred=preferred is not None and any(preferred in given for given in cards),
    )
