"""``ZE_AFFINITY_MASK``: how the user-space driver is told which tiles of its cards a container may use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gas.cards import Card
from gas.placement.choice import ContainerChoice

AFFINITY_MASK = "ZE_AFFINITY_MASK"
_COMPOSITE = "COMPOSITE"


def mask_of(given: ContainerChoice | None, tiles_of: Mapping[Card, int], hierarchy: str | None) -> str | None:
    """The mask of a container that has got these cards; None with other cards than decided, whose tiles nobody decided.

    given     what was decided for it
    tiles_of  for each card that it has got, how many tiles that has
    """
    if given is None or tiles_of.keys() != set(given.cards):
        return None
    return affinity_mask(given.tiles, [tiles_of[card] for card in given.cards], hierarchy)


def affinity_mask(tiles: Sequence[Sequence[int]], tiles_of_cards: Sequence[int], hierarchy: str | None) -> str | None:
    """The value of the variable, or None when it is not to be set (contract P4.1 to P4.4).

    tiles           for each card of the container, in the order of its annotation, the tiles decided
    tiles_of_cards  for each of the same cards, how many tiles it has
    hierarchy       the container's ``ZE_FLAT_DEVICE_HIERARCHY``, None when it has none

    With COMPOSITE a device is a card and ``1.0`` is tile 0 of the second; else, FLAT (the driver's default) and
    COMBINED, a device is a tile and they are counted through all cards. No mask without tiles in the decision,
    where no card has more than one tile, or where the cards do not have the tiles decided, since a mask that names
    other tiles would be worse than none.
    """
    if not any(tiles) or max(tiles_of_cards, default=0) <= 1 or len(tiles) != len(tiles_of_cards):
        return None
    if any(tile >= count for chosen, count in zip(tiles, tiles_of_cards, strict=True) for tile in chosen):
        return None
    if hierarchy == _COMPOSITE:
        return ",".join(f"{position}.{tile}" for position, chosen in enumerate(tiles) for tile in chosen)
    first = 0
    items: list[str] = []
    for chosen, count in zip(tiles, tiles_of_cards, strict=True):
        items += [str(first + tile) for tile in chosen]
        first += count
    return ",".join(items)
