"""Decide about one pod on one node: its cards and tiles, or the reason why it does not fit."""

from collections.abc import Sequence

from gas.placement.candidates import preferred_card
from gas.placement.choice import Choice, ContainerChoice
from gas.placement.free_capacity import Picks
from gas.placement.inventory import Inventory, Usage, free_tiles
from gas.placement.need import PodNeed, Role
from gas.placement.plan import plan_of
from gas.placement.reason import reason
from gas.placement.refusal import Refusal, SearchLimitHit
from gas.placement.solve import Unsolved, solve
from gas.values.amounts import TILES, is_whole
from gas.values.cards import Card
from gas.values.errors import InvalidValue

Tiles = tuple[tuple[int, ...], ...]


def choose_tiles(
    need: PodNeed, inventory: Inventory, usage: Usage, cards: Sequence[tuple[Card, ...]]
) -> tuple[Tiles, ...]:
    """Return, for every container, the tiles of each of its cards.

    ``cards`` has the cards of every container, chosen so that there are enough tiles. No two app containers or sidecars
    get the same tile. An init container avoids only the tiles of sidecars that run at the same time. All take tiles in
    the order of `free_tiles`, so an init container gets those that the pod has on that card anyway, as far as it can.
    """
    chosen: list[Tiles] = [()] * len(need.containers)
    staying: dict[Card, dict[int, int]] = {}  # card -> tile -> the position that holds it to the end
    for role in (Role.APP, Role.SIDECAR, Role.INIT):
        for position, container in enumerate(need.containers):
            if container.role is not role or not container.tiles:
                continue
            given: list[tuple[int, ...]] = []
            for card in cards[position]:
                held = staying.setdefault(card, {})
                beside = {
                    tile
                    for tile, holder in held.items()
                    if role is not Role.INIT or _is_sidecar_before(need, holder, position)
                }
                free = [tile for tile in free_tiles(inventory, usage, card) if tile not in beside]
                tiles = tuple(free[: container.tiles])
                if role is not Role.INIT:
                    held.update(dict.fromkeys(tiles, position))
                given.append(tiles)
            chosen[position] = tuple(given)
    return tuple(chosen)


def _is_sidecar_before(need: PodNeed, holder: int, position: int) -> bool:
    return holder < position and need.containers[holder].role is Role.SIDECAR


DEFAULT_STEP_LIMIT = 5_000
"""Keeps the hardest pod on the worst node below about 0.1 s: a step takes some 10 µs. Ordinary pods need few steps."""


def place(
    need: PodNeed, inventory: Inventory, usage: Usage, *, step_limit: int = DEFAULT_STEP_LIMIT
) -> Choice | Refusal:
    """Choose cards and tiles for every container of the pod (contract E6.5 to E6.9). Deterministic.

    A pod that wants no card fits everywhere. Any other pod is refused only if no choice fits, or if the search was cut
    short.

    usage       what is booked on the node; only read
    step_limit  the steps that the complete search may take, 0 for first fit alone; if they are not enough, the result
                is SearchLimitHit
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
        left = [card for pick in picked for card in pick.cards]
        for position in request.positions:
            own = need.containers[position].count
            cards[position] = tuple(left[:own])
            left = left[own:] if request.apart else left
            linked_tiles[position] = tuple((tile,) for pick in picked for tile in pick.tiles)
    preferred = preferred_card(need, inventory)
    wants_any_tiles = TILES in plan.names and not need.linked
    tiles = choose_tiles(need, inventory, usage, cards) if wants_any_tiles else linked_tiles
    return Choice(
        containers=tuple(ContainerChoice(*what) for what in zip(cards, tiles, strict=True)),
        preferred=preferred is not None and any(preferred in chosen for chosen in cards),
    )
