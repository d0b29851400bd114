"""The tiles that each container gets of its cards (contract E8.7 to E8.10)."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from gas.placement.inventory import Inventory, Usage, free_tiles
from gas.placement.need import PodNeed, Role
from gas.values.cards import Card

Tiles = tuple[tuple[int, ...], ...]


def choose_tiles(
    need: PodNeed, inventory: Inventory, usage: Usage, cards: Sequence[tuple[Card, ...]]
) -> tuple[Tiles, ...]:
    """Return, for every container, the tiles of each of its cards.

    ``cards`` has the cards of every container, chosen so that there are enough tiles. No two app containers or sidecars
    get the same tile; they take tiles in the order of `free_tiles`. An init container avoids only the tiles of sidecars
    that run at the same time. It prefers tiles that the pod has on that card anyway, so that it holds fewer in all.
    """
    chosen: list[Tiles] = [()] * len(need.containers)
    staying: dict[Card, dict[int, int]] = {}  # card -> tile -> the position that holds it to the end
    of_pod: dict[Card, set[int]] = {}
    for role in (Role.APP, Role.SIDECAR, Role.INIT):
        for position, container in enumerate(need.containers):
            if container.role is not role or not container.tiles:
                continue
            given: list[tuple[int, ...]] = []
            for card in cards[position]:
                held, had = staying.setdefault(card, {}), of_pod.setdefault(card, set())
                free = free_tiles(inventory, usage, card)
                if role is Role.INIT:
                    beside = {tile for tile, holder in held.items() if _is_sidecar_before(need, holder, position)}
                    tiles = _best(container.tiles, free, busy=beside, first=had)
                else:
                    tiles = _best(container.tiles, free, busy=held, first=())
                    held.update(dict.fromkeys(tiles, position))
                had.update(tiles)
                given.append(tiles)
            chosen[position] = tuple(given)
    return tuple(chosen)


def _best(count: int, free: Sequence[int], *, busy: Collection[int], first: Collection[int]) -> tuple[int, ...]:
    open_tiles = [tile for tile in free if tile not in busy]
    return tuple(sorted(open_tiles, key=lambda tile: tile not in first)[:count])


def _is_sidecar_before(need: PodNeed, holder: int, position: int) -> bool:
    return holder < position and need.containers[holder].role is Role.SIDECAR
