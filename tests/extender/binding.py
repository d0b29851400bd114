"""Helpers for tests of binding: a small cluster, and Bindings that take their time."""

from __future__ import annotations

import asyncio
from typing import Any, TypeVar

from tests.builders import container, node, pod_json
from tests.extender.cluster import Cluster
from tests.extender.decider import DrivenDecider

D = TypeVar("D", bound=DrivenDecider)
IN_PROGRESS = "an earlier bind of pod default/pod is still in progress"
IN_DOUBT = "it is not known yet whether an earlier bind of pod default/pod succeeded"


def gpu_pod(**fields: Any) -> dict[str, Any]:
    """Return a pod that needs one of the two cards of a node for itself."""
    return pod_json(container(i915=1, millicores=600), **{"uid": "u1", **fields})


def following(*pods: dict[str, Any], **options: Any) -> DrivenDecider:
    """Return a decider that knows nodes n1 and n2, of two cards each, and these pods."""
    return filled(DrivenDecider(**options), *pods)


def filled(decider: D, *pods: dict[str, Any]) -> D:
    """Show a decider nodes n1 and n2, of two cards each, and these pods."""
    for each in pods:
        decider.cluster.add(each)
    decider.follow([node("n1"), node("n2")])
    return decider


class HeldBindings:
    """Keep every Binding waiting until `let_go`."""

    def __init__(self, cluster: Cluster) -> None:
        self._go = asyncio.Event()
        cluster.before = self._go.wait

    def let_go(self) -> None:
        self._go.set()
