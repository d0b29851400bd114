"""Everything that the plugin writes on its node, and the one patch that makes the node say it.

What is ours is known by its exact name (and numbered continuations), so that labels of others under the same prefix,
such as links found by telemetry, stay. The annotation is ours even when somebody else wrote it: one that outlived the
difference between the cards would be wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from gas.amounts import MalformedQuantity, parse_quantity
from gas.card_facts import Scan
from gas.intel.vocabulary import INTEL
from gas.objects import Node, NodeStatus, Quantity
from gas.vocabulary import DeviceOptions, NodeDescription

MergePatch = Mapping[str, Mapping[str, Mapping[str, str | None]]]
"""``{"metadata": {"labels": …, "annotations": …}, "status": {"capacity": …, "allocatable": …}}``; None takes away."""


NOTHING_OF_OURS = NodeDescription()
"""A node from which everything of ours is taken."""

_WORDS = INTEL.devices


def describe_node(scan: Scan, options: DeviceOptions) -> NodeDescription:
    """Return what a node with these cards says; nothing when it has none."""
    return _WORDS.describe(scan.gpus, options)


def node_patch(node: Node, wanted: NodeDescription) -> MergePatch | None:
    """What must change on the node, with everything of ours that it should not have taken away; None: nothing.

    It is for the node's subresource ``status``, where kube-apiserver takes labels and annotations as well: cards and
    what they have change in one write. Kubelet leaves resources alone that no device plugin has, and makes
    ``allocatable`` of their ``capacity``; both are written, so that nobody waits for its next turn.
    """
    metadata = {
        "labels": _changes(node.labels, wanted.labels, _WORDS.owns_label),
        "annotations": _changes(node.annotations, wanted.annotations, _WORDS.owns_annotation),
    }
    amounts = {name: str(amount) for name, amount in wanted.resources.items()}
    found = node.status or NodeStatus()
    status = {
        "capacity": _changes(_plain(found.capacity), amounts, _WORDS.owns_resource),
        "allocatable": _changes(_plain(found.allocatable), amounts, _WORDS.owns_resource),
    }
    patch = {
        part: changed
        for part, fields in (("metadata", metadata), ("status", status))
        if (changed := {name: changes for name, changes in fields.items() if changes})
    }
    return patch or None


def _changes(
    found: Mapping[str, str], wanted: Mapping[str, str], is_ours: Callable[[str], bool]
) -> dict[str, str | None]:
    changes: dict[str, str | None] = {name: value for name, value in wanted.items() if found.get(name) != value}
    changes.update((name, None) for name in found if is_ours(name) and name not in wanted)
    return changes


def _plain(resources: Mapping[str, Quantity] | None) -> dict[str, str]:
    """The amounts as plain numbers, however they are written; what is none differs from every number."""
    return {name: _number(quantity) for name, quantity in (resources or {}).items()}


def _number(quantity: Quantity) -> str:
    try:
        return str(parse_quantity(quantity))
    except MalformedQuantity:
        return ""
