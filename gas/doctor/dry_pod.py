"""A pod that is asked about and never made: one card, nothing else."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import msgspec

from gas.amounts import MalformedQuantity, parse_quantity
from gas.doctor.objects import SeenNode
from gas.intel import names
from gas.objects import Pod, Quantity

NAME = "gas-doctor-dry-pod"


@dataclass(frozen=True, slots=True)
class DryPod:
    """The question whether a pod with one card would be placed.

    resource  what it asks for, ``gpu.intel.com/i915`` or ``gpu.intel.com/xe``
    nodes     about which it is asked; at least one
    """

    resource: str
    nodes: tuple[str, ...]

    def question(self) -> bytes:
        """ExtenderArgs as JSON. The pod has no UID, so that the extender expects no bind after it."""
        return msgspec.json.encode({"Pod": self._written(), "Nodes": None, "NodeNames": self.nodes})

    def pod(self) -> Pod:
        """The pod as the extender reads it."""
        return msgspec.convert(self._written(), Pod)

    def _written(self) -> dict[str, object]:
        asked = {"limits": {self.resource: "1"}, "requests": {self.resource: "1"}}
        return {
            "metadata": {"name": NAME, "namespace": "default"},
            "spec": {"containers": [{"name": "main", "resources": asked}]},
        }


def dry_pod_for(nodes: Iterable[SeenNode], only: str = "") -> DryPod | None:
    """A pod for the driver of which most nodes have cards, about these nodes; None when no node has any.

    only  this node alone; empty: all
    """
    by_resource: dict[str, list[str]] = {}
    for seen in nodes:
        allocatable = (seen.node.status.allocatable if seen.node.status else None) or {}
        for resource in names.COUNT_RESOURCES:
            if (not only or seen.node.name == only) and _amount(allocatable.get(names.PREFIX + resource, 0)):
                by_resource.setdefault(names.PREFIX + resource, []).append(seen.node.name)
    if not by_resource:
        return None
    most = max(by_resource, key=lambda resource: len(by_resource[resource]))
    return DryPod(most, tuple(by_resource[most]))


def _amount(quantity: Quantity) -> int:
    try:
        return parse_quantity(quantity)
    except MalformedQuantity:
        return 0
