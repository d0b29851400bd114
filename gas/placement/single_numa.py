"""All cards of a pod from one NUMA group (contract E7.8)."""

from __future__ import annotations

from collections.abc import Sequence

from gas.cards import Card
from gas.placement.inventory import Inventory
from gas.placement.need import PodNeed


def card_groups(need: PodNeed, inventory: Inventory, usable: tuple[Card, ...]) -> Sequence[tuple[Card, ...]]:
    """The sets of cards of which one has to serve the whole pod, in the order of the node's groups.

    ``usable`` keeps its order inside each group. Without a wish for one group, or on a node that says nothing
    about its groups, all cards are one set.
    """
    if not need.single_numa or inventory.numa_groups is None:
        return (usable,)
    return [tuple(card for card in usable if card in group) for group in inventory.numa_groups]
