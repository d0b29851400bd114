"""The fake cards that a node must have for its plugin to write on it what a file says about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from gas.amounts import Amounts, parse_quantity
from gas.cards import Card
from gas.intel import names
from gas.intel.inventory import read_node
from gas.objects import Node
from gas.plugin.node.node_description import NOTHING_OF_OURS, node_patch
from gas.sandbox.fake_sysfs import FLEX_170, MAX_1550_XE, FakeGpu, Model, fake_gpus
from gas.sandbox.manifest_objects import NodeManifest
from gas.sandbox.manifests import BadManifest
from gas.sandbox.merge_patch import merge_patched

Object = dict[str, Any]

_COUNTS = tuple(names.PREFIX + name for name in names.COUNT_RESOURCES)


@dataclass(frozen=True, slots=True)
class Hardware:
    """What is in a node, and how its plugin is to share it.

    shared_dev_num   how many containers may share one card
    memory_override  bytes of a card for which sysfs does not say it; None: no such card
    """

    gpus: tuple[FakeGpu, ...]
    shared_dev_num: int = 1
    memory_override: int | None = None


def hardware_of(node: NodeManifest) -> Hardware:
    """The cards that the node's labels, annotation and resources tell of. Raises BadManifest."""
    inventory = read_node(msgspec.convert(node.as_object(), Node)).inventory
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


def bare_node(node: NodeManifest) -> Object:
    """The node as an object, without everything that its plugin and its kubelet are going to write on it."""
    told = node.as_object()
    bare: Object = merge_patched(told, node_patch(msgspec.convert(told, Node), NOTHING_OF_OURS) or {})
    for amounts in bare.get("status", {}).values():
        for count in _COUNTS:
            amounts.pop(count, None)
    return bare


def not_yet_said(node: NodeManifest, found: Mapping[str, Any]) -> list[str]:
    """The labels and resources, by name, of which the node in the API does not say what the file does."""
    metadata, status = found["metadata"], found.get("status", {})
    labels = {name: value for name, value in (node.metadata.labels or {}).items() if name != names.CARDS}
    amounts = (node.status.allocatable if node.status else None) or {}
    missing = [name for name, value in labels.items() if (metadata.get("labels") or {}).get(name) != value]
    allocatable = status.get("allocatable") or {}
    return missing + [
        name
        for name, amount in amounts.items()
        if name.startswith(names.PREFIX) and parse_quantity(amount) != parse_quantity(allocatable.get(name, "0"))
    ]


def _model(node: NodeManifest, card: Card, amounts: Amounts) -> Model:
    """As sysfs shows it: only i915 says how much memory there is, for each tile."""
    drivers = [driver for driver in names.COUNT_RESOURCES if driver in amounts]
    if len(drivers) != 1:
        found = "both" if drivers else "neither"
        raise BadManifest(f"node {node.name}: expected the resource i915 or xe for {card}, found {found}")
    tiles = amounts.get(names.TILES, 1)
    if drivers == ["xe"]:
        return replace(MAX_1550_XE, tiles=tiles, memory=None)
    memory = amounts.get("memory.max")
    return replace(FLEX_170, tiles=tiles, memory=memory // tiles if memory else None)
