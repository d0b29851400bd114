"""Deleting with grace: how long a pod stays visible after somebody asked for its end."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from gas.sandbox.kinds import PODS, Kind
from gas.sandbox.metadata import read_timestamp, timestamp
from gas.sandbox.storage import Value


@dataclass(frozen=True, slots=True)
class Marked:
    """A pod that is being deleted. ``final``: nothing is to be waited for, it goes in this request."""

    value: dict[str, Any]
    final: bool


def marked_for_deletion(kind: Kind, value: Value, grace: int | None, now: datetime) -> Marked | None:
    """The object as it looks while it goes. None: it is on its way already, no later than this request wants.

    grace  seconds, as the request says; without it the pod's own. A pod that no node runs, or that is over, needs none.
    """
    if kind is not PODS:
        return Marked(dict(value), final=True)
    metadata, spec = value["metadata"], value["spec"]
    seconds = spec.get("terminationGracePeriodSeconds", 30) if grace is None else max(grace, 0)
    if not spec.get("nodeName") or value["status"].get("phase") in ("Succeeded", "Failed"):
        seconds = 0
    asked = now
    if "deletionTimestamp" in metadata:
        running = metadata["deletionGracePeriodSeconds"]
        if seconds >= running > 0:
            return None
        asked = read_timestamp(metadata["deletionTimestamp"]) - timedelta(seconds=running)
    marks = {
        "deletionTimestamp": timestamp(asked + timedelta(seconds=seconds)),
        "deletionGracePeriodSeconds": seconds,
    }
    if "deletionTimestamp" not in metadata:
        marks["generation"] = metadata.get("generation", 1) + 1
    return Marked({**value, "metadata": {**metadata, **marks}}, final=seconds == 0)


def is_finished(value: Value) -> bool:
    """Whether an object that is being deleted has nothing left to wait for: no grace period, no finalizer."""
    metadata = value["metadata"]
    return (
        "deletionTimestamp" in metadata
        and metadata.get("deletionGracePeriodSeconds", 0) == 0
        and not metadata.get("finalizers")
    )
