"""The nodes that are looked at: those that say anything about cards."""

from __future__ import annotations

from collections.abc import Iterator

from gas.amounts import MalformedQuantity, parse_quantity
from gas.doctor.looked import Unseen
from gas.doctor.objects import SeenNode
from gas.doctor.snapshot import Snapshot
from gas.intel import names
from gas.objects import Quantity


def gpu_nodes(snapshot: Snapshot) -> Iterator[SeenNode]:
    """Nodes with a label or a resource about cards. A plugin alone is none: it runs on nodes without cards, too."""
    if isinstance(snapshot.nodes, Unseen):
        return
    for seen in snapshot.nodes:
        if snapshot.only_node and seen.node.name != snapshot.only_node:
            continue
        if has_card_labels(seen) or amounts(seen, capacity=True):
            yield seen


def has_card_labels(seen: SeenNode) -> bool:
    return any(name.startswith(names.PREFIX) for name in seen.node.labels)


def amounts(seen: SeenNode, *, capacity: bool = False) -> dict[str, int]:
    """Resource without prefix -> how much of it is allocatable, or the capacity; what is no amount is left out."""
    status = seen.node.status
    resources = (status.capacity if capacity else status.allocatable) if status is not None else None
    return {
        name.removeprefix(names.PREFIX): amount
        for name, quantity in (resources or {}).items()
        if name.startswith(names.PREFIX) and (amount := _amount(quantity)) is not None
    }


def _amount(quantity: Quantity) -> int | None:
    try:
        return parse_quantity(quantity)
    except MalformedQuantity:
        return None
