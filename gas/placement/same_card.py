"""Containers that share one card (contract E7.3)."""

from __future__ import annotations

from collections.abc import Iterable

from gas.amounts import SortedAmounts, add, sorted_amounts
from gas.placement.need import ContainerNeed


def shared_need(containers: Iterable[ContainerNeed]) -> SortedAmounts:
    """What the one card must have: the sum of all, so the count resource once for each container."""
    total: dict[str, int] = {}
    for container in containers:
        add(total, container.per_card)
    return sorted_amounts(total)
