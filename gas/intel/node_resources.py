"""The sums of the node's cards, and the amounts of single cards where they are not all alike.

The count resources ``i915`` and ``xe`` are kubelet's: it has them from the plugin's device lists alone.
Source: contract P5.5.
"""

from __future__ import annotations

from collections.abc import Sequence

from gas.card_facts import CardFacts
from gas.intel import names
from gas.intel.card_capacity import format_card_capacity

MILLICORES = "millicores"
MEMORY_MAX = "memory.max"
SUMMED_RESOURCES = tuple(names.PREFIX + name for name in (MILLICORES, MEMORY_MAX, names.TILES))
"""Full names of the node's resources that are written here, and all that are."""

MILLICORES_OF_A_CARD = 1000


def node_resources(cards: Sequence[CardFacts]) -> dict[str, int]:
    """Return the node's sums by full resource name: ``millicores``, ``memory.max`` (bytes), ``tiles``. Never 0.

    Cards that cannot be given out now are not in the sums.
    """
    sums = dict.fromkeys(SUMMED_RESOURCES, 0)
    for gpu in cards:
        for name, amount in card_amounts(gpu, shared_dev_num=0).items():
            sums[names.PREFIX + name] += amount
    return {name: amount for name, amount in sums.items() if amount}


def card_capacity(cards: Sequence[CardFacts], *, shared_dev_num: int) -> str | None:
    """Return the text of the annotation ``gas-card-capacity``, None if all cards are alike.

    shared_dev_num  how many containers may share one card

    Without it an even share of each sum is what a card has. It lists every card with every resource of which cards
    have different amounts, 0 where a card has none: one of the other driver, one that is unhealthy.
    """
    amounts = {gpu.card: card_amounts(gpu, shared_dev_num=shared_dev_num) for gpu in cards}
    resources = sorted({name for of_card in amounts.values() for name in of_card})
    unlike = [name for name in resources if len({of_card.get(name, 0) for of_card in amounts.values()}) > 1]
    if not unlike:
        return None
    return format_card_capacity(
        {card: {name: of_card.get(name, 0) for name in unlike} for card, of_card in amounts.items()}
    )


def card_amounts(gpu: CardFacts, *, shared_dev_num: int) -> dict[str, int]:
    """Return what one card has, by resource name without prefix; nothing while it is unhealthy."""
    if not gpu.healthy:
        return {}
    amounts = {
        gpu.driver: shared_dev_num,
        MILLICORES: MILLICORES_OF_A_CARD,
        MEMORY_MAX: gpu.memory or 0,
        names.TILES: gpu.tiles,
    }
    return {name: amount for name, amount in amounts.items() if amount}
