"""Read GPU data of pods and nodes, and make the dry pod with which the extender is asked to place one card."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import msgspec

from configurator.scheduler_configuration import CARD_RESOURCES
from gas.doctor.snapshot import Snapshot
from gas.inspection.objects import InspectedNode, InspectedPod
from gas.objects.stored import DetailedNode, Quantity
from gas.values.amounts import MalformedQuantity, parse_quantity
from gas.vocabularies.intel import names
from gas.vocabularies.node_parts import allocatable_amount, allocatable_resources

DRY_POD = "gas-doctor-dry-pod"


def gpu_nodes(snapshot: Snapshot) -> Iterator[InspectedNode]:
    """Yield the nodes with a label or a resource about cards.

    A plugin alone does not count: it may run on nodes without GPUs.
    """
    for node in snapshot.checked_nodes:
        if any(name.startswith(names.PREFIX) for name in node.labels) or gpu_amounts(node, capacity=True):
            yield node


_SIGNS = {
    "nvidia": re.compile(r"(nvidia\.com/gpu|feature\.node\.kubernetes\.io/pci-(03\d\d_)?10de(_.*)?)\.present=true"),
    "plugin": re.compile(r"(intel\.feature\.node\S+/gpu|feature\.node\S+/pci-03\d\d_8086(_.*)?\.present)=true"),
}
"""By overlay, the labels with which operators and Node Feature Discovery mark nodes that have its cards."""


def overlay_for(nodes: Iterable[DetailedNode]) -> str:
    """Return the overlay with the plugin that most of these nodes need; empty if none shows cards."""
    found: Counter[str] = Counter()
    for node in nodes:
        labels = [f"{key}={value}" for key, value in node.labels.items()]
        signs = [overlay for overlay, sign in _SIGNS.items() if any(map(sign.fullmatch, labels))]
        found.update(signs or (("plugin",) if gpu_amounts(node, capacity=True) else ()))
    return max(found, key=lambda overlay: found[overlay], default="")


def is_served(node: DetailedNode) -> bool:
    """Return whether a device plugin, of whichever system, offers cards of the node."""
    offered = allocatable_resources(node)
    return any(allocatable_amount(offered, name, []) for name in (*CARD_RESOURCES, "nvidia.com/gpu"))


def gpu_amounts(node: DetailedNode, *, capacity: bool = False) -> dict[str, int]:
    """Return by resource, without its prefix, the allocatable amount or the capacity, skipping malformed amounts."""
    status = node.status
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


def label_writers(node: DetailedNode) -> set[str]:
    """Return the managers that the API server recorded for the labels that name the cards."""
    return {
        fields.manager
        for fields in node.metadata.managed_fields or ()
        if any(
            f"f:{name}" in _nested(fields.fields, "f:metadata", "f:labels") for name in (names.GPU_NUMBERS, names.CARDS)
        )
    }


def is_labelled_by_plugin(node: DetailedNode) -> bool:
    return any(manager.startswith("gas-plugin") for manager in label_writers(node))


def resource_writers(node: DetailedNode, is_meant: Callable[[str], bool]) -> dict[str, str]:
    """Return by manager one of the node's resources that the API server recorded as written by it."""
    found: dict[str, str] = {}
    for fields in node.metadata.managed_fields or ():
        for field in ("f:capacity", "f:allocatable"):
            for name in _nested(fields.fields, "f:status", field):
                if is_meant(name.removeprefix("f:")):
                    found.setdefault(fields.manager, name.removeprefix("f:"))
    return found


def _nested(fields: object, *path: str) -> dict[str, object]:
    for name in path:
        fields = fields.get(name) if isinstance(fields, dict) else None
    return fields if isinstance(fields, dict) else {}


@dataclass(frozen=True, slots=True)
class DryPod:
    """A pod that asks for one card and is never created, with the nodes to ask about, at least one."""

    resource: str
    nodes: tuple[str, ...]

    def question(self) -> bytes:
        """Return ExtenderArgs as JSON. The pod has no UID, so the extender does not wait for its bind."""
        return msgspec.json.encode({"Pod": self._written(), "Nodes": None, "NodeNames": self.nodes})

    def pod(self) -> InspectedPod:
        return msgspec.convert(self._written(), InspectedPod)

    def _written(self) -> dict[str, object]:
        asked = {"limits": {self.resource: "1"}, "requests": {self.resource: "1"}}
        return {
            "metadata": {"name": DRY_POD, "namespace": "default"},
            "spec": {"containers": [{"name": "main", "resources": asked}]},
        }


def dry_pod_for(nodes: Iterable[DetailedNode], only: str = "") -> DryPod | None:
    """Return a dry pod for the resource that most of these nodes, or the node ``only``, offer; None if none does."""
    by_resource: dict[str, list[str]] = {}
    for node in nodes:
        for resource in CARD_RESOURCES:
            if (not only or node.name == only) and allocatable_amount(allocatable_resources(node), resource, []):
                by_resource.setdefault(resource, []).append(node.name)
    if not by_resource:
        return None
    most = max(by_resource, key=lambda resource: len(by_resource[resource]))
    return DryPod(most, tuple(by_resource[most]))
