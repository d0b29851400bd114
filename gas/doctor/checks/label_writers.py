"""Who wrote a node's labels: the API server remembers it for every field."""

from __future__ import annotations

from enum import StrEnum

from gas.doctor.objects import SeenNode
from gas.intel import names

NFD_LABELS = "nfd.node.kubernetes.io/feature-labels"
"""Annotation in which NFD lists the labels that it has written."""


class Writer(StrEnum):
    PLUGIN = "gas-plugin"
    NFD = "Node Feature Discovery"
    HAND = "kubectl"
    OTHER = "another program"


def label_writers(seen: SeenNode) -> dict[Writer, str]:
    """Who wrote the labels that say which cards there are, and the name under which the API server knows them."""
    found: dict[Writer, str] = {}
    for fields in seen.details.metadata.managed_fields or ():
        labels = _nested(fields.fields, "f:metadata", "f:labels")
        if any(f"f:{name}" in labels for name in (names.GPU_NUMBERS, names.CARDS)):
            found[_writer(fields.manager)] = fields.manager
    return found


def is_listed_by_nfd(seen: SeenNode) -> bool:
    """Whether NFD says that it wrote them, and will take them away again."""
    listed = seen.node.annotations.get(NFD_LABELS, "").split(",")
    return names.GPU_NUMBERS in listed or names.CARDS in listed


def _nested(fields: object, *path: str) -> dict[str, object]:
    for name in path:
        fields = fields.get(name) if isinstance(fields, dict) else None
    return fields if isinstance(fields, dict) else {}


def _writer(manager: str) -> Writer:
    if manager.startswith("gas-plugin"):
        return Writer.PLUGIN
    if "nfd" in manager:
        return Writer.NFD
    return Writer.HAND if manager.startswith("kubectl") else Writer.OTHER
