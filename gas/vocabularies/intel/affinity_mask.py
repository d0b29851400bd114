"""``ZE_AFFINITY_MASK`` limits the user-space driver to the tiles that were decided for a container."""

from __future__ import annotations

from collections.abc import Sequence

from gas.decision.annotations import read_choice
from gas.decision.names import CONTAINER_TILES, INIT_CONTAINER_TILES
from gas.decision.text import MalformedAnnotation
from gas.objects.stored import NodeContainer, Pod
from gas.values.card_facts import CardFacts
from gas.vocabularies.intel.need import read_booked_need
from gas.vocabularies.pod_parts import need_facts
from gas.vocabularies.protocol import BadNeed

AFFINITY_MASK = "ZE_AFFINITY_MASK"
HIERARCHY = "ZE_FLAT_DEVICE_HIERARCHY"
_COMPOSITE = "COMPOSITE"


def container_mask(pod: Pod, container: str, cards: Sequence[CardFacts]) -> str | None:
    """Return the mask for a container that has these cards; None when it must not be set.

    With cards other than decided there is no mask: their tiles were not decided.
    """
    if not (pod.annotations.get(CONTAINER_TILES) or pod.annotations.get(INIT_CONTAINER_TILES)):
        return None  # the usual case, decided before the pod's need is read while kubelet waits
    started = [*(pod.spec.init_containers or ()), *(pod.spec.containers or ())]
    index = next((index for index, each in enumerate(started) if each.name == container), None)
    try:
        choice = read_choice(pod, read_booked_need(need_facts(pod)))
    except (BadNeed, MalformedAnnotation):
        return None
    if choice is None or index is None:
        return None
    decided = choice.containers[index]
    tiles_of = {each.card: each.tiles for each in cards}
    if tiles_of.keys() != set(decided.cards):
        return None
    return affinity_mask(decided.tiles, [tiles_of[card] for card in decided.cards], _hierarchy(started[index]))


def affinity_mask(tiles: Sequence[Sequence[int]], tiles_of_cards: Sequence[int], hierarchy: str | None) -> str | None:
    """Return the value of the variable, or None when it must not be set (contract P4.1 to P4.4).

    tiles           the tiles decided, for each card of the container in the order of its annotation
    tiles_of_cards  how many tiles each of the same cards has
    hierarchy       the container's ``ZE_FLAT_DEVICE_HIERARCHY``, None when it has none

    With COMPOSITE a device is a card, and ``1.0`` is tile 0 of the second card. Otherwise, with FLAT (the driver's
    default) and COMBINED, a device is a tile, and tiles are counted through all cards. There is no mask without decided
    tiles, where no card has more than one tile, or where a card does not have a decided tile: a mask that names other
    tiles would be worse than none.
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


def _hierarchy(container: object) -> str | None:
    """Return the variable's value; the last one counts, as for the process in the container."""
    env = container.env if isinstance(container, NodeContainer) else None
    return next((each.value for each in reversed(env or ()) if each.name == HIERARCHY), None)
