"""The patch that brings a node's labels, annotations and resources in line with its cards.

A vocabulary recognises what it writes by its exact name, so labels of other programs under the same prefix stay. An
annotation of such a name is removed even if another program wrote it: an outdated one would be wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from gas.amounts import MalformedQuantity, parse_quantity
from gas.objects import Node, NodeStatus, Quantity
from gas.vocabulary import NodeDescription, Vocabularies

MergePatch = Mapping[str, Mapping[str, Mapping[str, str | None]]]
"""``{"metadata": {"labels": …, "annotations": …}, "status": {"capacity": …, "allocatable": …}}``; None removes."""


def node_patch(node: Node, wanted: NodeDescription, vocabularies: Vocabularies) -> MergePatch | None:
    """Return the changes that make the node match ``wanted``, outdated names removed; None when it matches.

    The patch is for the node's subresource ``status``. There kube-apiserver accepts labels and annotations too, so
    cards and their amounts change in one write. Kubelet keeps resources that no device plugin has, and derives
    ``allocatable`` from ``capacity``; both are written, so that the amounts need not wait for kubelet's next update.
    """
    metadata = {
        "labels": _changes(node.labels, wanted.labels, vocabularies.owns_label),
        "annotations": _changes(node.annotations, wanted.annotations, vocabularies.owns_annotation),
    }
    amounts = {name: str(amount) for name, amount in wanted.resources.items()}
    found = node.status or NodeStatus()
    status = {
        "capacity": _changes(_plain(found.capacity), amounts, vocabularies.owns_resource),
        "allocatable": _changes(_plain(found.allocatable), amounts, vocabularies.owns_resource),
    }
    patch = {
        part: changed
        for part, fields in (("metadata", metadata), ("status", status))
        if (changed := {name: changes for name, changes in fields.items() if changes})
    }
    return patch or None


def _changes(found: Mapping[str, str], wanted: Mapping[str, str], owns: Callable[[str], bool]) -> dict[str, str | None]:
    changes: dict[str, str | None] = {name: value for name, value in wanted.items() if found.get(name) != value}
    changes.update((name, None) for name in found if owns(name) and name not in wanted)
    return changes


def _plain(resources: Mapping[str, Quantity] | None) -> dict[str, str]:
    """Return the amounts as plain numbers. Unparsable amounts compare unequal, so they are rewritten."""
    return {name: _number(quantity) for name, quantity in (resources or {}).items()}


def _number(quantity: Quantity) -> str:
    try:
        return str(parse_quantity(quantity))
    except MalformedQuantity:
        return ""
