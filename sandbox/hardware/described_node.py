"""Derive fake cards from a node's manifest, with which the plugin writes on the node what the manifest says.

A node is a mapping in the form of the API: ``metadata`` with ``labels``, ``status`` with ``allocatable``.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from gas.objects.stored import Node
from gas.plugin.node_writer import node_patch
from gas.values.amounts import Amounts, parse_quantity
from gas.values.cards import Card
from gas.values.errors import GasError
from gas.vocabularies.combined import Vocabularies
from gas.vocabularies.intel import names
from gas.vocabularies.intel.inventory import read_node
from gas.vocabularies.known import KNOWN
from gas.vocabularies.protocol import NodeDescription
from sandbox.api.patches import merge_patched
from sandbox.hardware.fake_sysfs import FLEX_170, MAX_1550_XE, FakeGpu, Model, fake_gpus

Object = Mapping[str, Any]

_VOCABULARIES = Vocabularies(KNOWN)


class AmbiguousDriver(GasError):
    """A manifest does not say which driver a card has."""

    exit_code = 2


@dataclass(frozen=True, slots=True)
class Hardware:
    """The cards of a node and how its plugin shares them."""

    gpus: tuple[FakeGpu, ...]
    shared_dev_num: int = 1  # number of containers that may share one card
    memory_override: int | None = None  # bytes of a card whose memory sysfs does not show


def hardware_of(node: Object) -> Hardware:
    """Derive the cards from the node's labels, annotation and resources. Raises AmbiguousDriver."""
    inventory = read_node(msgspec.convert(node, Node)).inventory
    numa_nodes = {card: number for number, group in enumerate(inventory.numa_groups or ()) for card in group}
    gpus: list[FakeGpu] = []
    shared, override = 1, None
    for card, amounts in inventory.capacity.items():
        model = _model(node, card, amounts)
        (gpu,) = fake_gpus(model, 1, first=int(card))
        gpus.append(replace(gpu, numa_node=numa_nodes.get(card, -1)))
        shared = amounts[model.driver]
        if model.memory is None:
            override = amounts.get("memory.max", override)
    return Hardware(tuple(gpus), shared, override)


def bare_node(node: Object) -> dict[str, Any]:
    """Return the node without what its plugin and its kubelet will write on it."""
    bare: dict[str, Any] = merge_patched(
        node, node_patch(msgspec.convert(node, Node), NodeDescription(), _VOCABULARIES) or {}
    )
    status = {
        field: {name: amount for name, amount in amounts.items() if name not in _VOCABULARIES.resources}
        for field, amounts in bare.get("status", {}).items()
    }
    return bare | {"status": status}


def missing_fields(node: Object, found: Object) -> list[str]:
    """Return the labels and resources of ``node``, the manifest, that ``found``, the node in the API, lacks."""
    metadata, allocatable = found["metadata"], found.get("status", {}).get("allocatable") or {}
    labels = {name: value for name, value in (node["metadata"].get("labels") or {}).items() if name != names.CARDS}
    amounts = (node.get("status") or {}).get("allocatable") or {}
    missing = [name for name, value in labels.items() if (metadata.get("labels") or {}).get(name) != value]
    return missing + [
        name
        for name, amount in amounts.items()
        if is_gpu_resource(name) and parse_quantity(amount) != parse_quantity(allocatable.get(name, "0"))
    ]


def is_gpu_resource(name: str) -> bool:
    """Return whether a plugin, or kubelet for it, writes a resource of this name."""
    return name.startswith(names.PREFIX) or name in _VOCABULARIES.resources or _VOCABULARIES.owns_resource(name)


def _model(node: Object, card: Card, amounts: Amounts) -> Model:
    """Return the model as sysfs shows it: only i915 shows the amount of memory, per tile."""
    drivers = [driver for driver in names.COUNT_RESOURCES if driver in amounts]
    if len(drivers) != 1:
        name, found = node["metadata"].get("name", ""), "both" if drivers else "neither"
        raise AmbiguousDriver(f"node {name}: expected the resource i915 or xe for {card}, found {found}")
    tiles = amounts.get(names.TILES, 1)
    if drivers == ["xe"]:
        return replace(MAX_1550_XE, tiles=tiles, memory=None)
    memory = amounts.get("memory.max")
    return replace(FLEX_170, tiles=tiles, memory=memory // tiles if memory else None)
