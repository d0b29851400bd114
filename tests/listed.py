"""Hand complete lists of objects to the handlers of watches, as a watch does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from gas.cluster.watch_events import KubernetesObject
from gas.objects.handler import Handler
from gas.objects.stored import ObjectId

T = TypeVar("T", bound=KubernetesObject)


def list_all(handler: Handler[T], objects: Sequence[T]) -> None:
    """Let a handler take a complete list of one part."""
    handler.listed(list(objects))
    handler.complete([ObjectId(each.metadata.name, each.metadata.uid or "") for each in objects])
