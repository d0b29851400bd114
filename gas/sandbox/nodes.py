"""What the API server adds to a node and what it refuses in one."""

from __future__ import annotations

from typing import Any

from gas.sandbox.failure import Cause
from gas.sandbox.kinds import NODES
from gas.sandbox.quantities import amount_causes, read_quantities


def with_defaults(node: dict[str, Any]) -> dict[str, Any]:
    """The node with its amounts read; what can be allocated is the capacity unless told. Raises ApiFailure (400)."""
    status = dict(node.get("status") or {})
    for field in ("capacity", "allocatable"):
        if status.get(field):
            status[field] = read_quantities(NODES, status[field])
    if "capacity" in status:
        status.setdefault("allocatable", status["capacity"])
    return node | {"spec": node.get("spec") or {}, "status": status}


def causes(node: dict[str, Any]) -> list[Cause]:
    """What is wrong with the status; empty when nothing is."""
    return [
        cause
        for field in ("capacity", "allocatable")
        for name, amount in (node["status"].get(field) or {}).items()
        for cause in amount_causes(f"status.{field}.{name}", name, amount)
    ]
