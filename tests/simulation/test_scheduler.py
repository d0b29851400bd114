"""The scheduler of the simulation counts what kube-scheduler counts."""

from __future__ import annotations

from typing import Any

import pytest

from simulation.scheduler import nominated_nodes


def pod(uid: str, priority: int, node: str = "") -> dict[str, Any]:
    return {"metadata": {"uid": uid}, "spec": {"priority": priority}, "status": {"nominatedNodeName": node or None}}


@pytest.mark.parametrize(("priority", "counted"), [(0, False), (1, True), (2, True)])
def test_the_requests_of_nominated_pods_of_its_priority_or_more_count(priority: int, counted: bool) -> None:
    others = {"other": pod("other", priority, "n0"), "waiting": pod("waiting", 2), "own": pod("own", 1, "n1")}
    assert nominated_nodes(pod("own", 1), others) == ({"other": "n0"} if counted else {})
