"""The scheduler's own arithmetic."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from sandbox.scheduler.scheduler import add_requests, enough_nodes, reasons_against, requests_of
from tests.sandbox.objects import I915, node, pod


@pytest.mark.parametrize(
    ("wanted", "on_node", "reasons"),
    [
        pytest.param(pod("p", cards=1), node("n", 3), [], id="fits"),
        pytest.param(pod("p", cards=2), node("n", 3), [f"Insufficient {I915}"], id="what-is-used-counts"),
        pytest.param(pod("p", cards=0), node("n", 2), [], id="a-pod-that-asks-for-nothing"),
        pytest.param(pod("p"), node("n", 0), [f"Insufficient {I915}"], id="a-node-without-cards"),
        pytest.param(
            pod("p"),
            node("n", 3) | {"spec": {"unschedulable": True}},
            ["node(s) were unschedulable"],
            id="a-cordoned-node",
        ),
        pytest.param(
            pod("p", nodeSelector={"disk": "ssd"}),
            node("n", 3, disk="hdd"),
            ["node(s) didn't match Pod's node affinity/selector"],
            id="another-label",
        ),
        pytest.param(pod("p", nodeSelector={"disk": "ssd"}), node("n", 3, disk="ssd"), [], id="the-label"),
        pytest.param(
            pod("p"),
            node("n", 3) | {"spec": {"taints": [{"key": "gpu", "effect": "NoSchedule"}]}},
            ["node(s) had untolerated taint(s)"],
            id="a-taint",
        ),
    ],
)
def test_reasons_against_a_node(wanted: dict[str, Any], on_node: dict[str, Any], reasons: list[str]) -> None:
    free = {I915: int(on_node["status"]["allocatable"][I915]) - 2}
    assert reasons_against(wanted, requests_of(wanted), on_node, free) == reasons


def test_requests_of_all_pods_of_a_node_that_have_not_ended_are_added_up() -> None:
    sums = Counter[str]()
    for each in (pod("a", cards=1), pod("b", cards=2), pod("ended", cards=4) | {"status": {"phase": "Succeeded"}}):
        add_requests(sums, each)
    add_requests(sums, pod("a", cards=1), -1)
    assert sums == {I915: 2}


@pytest.mark.parametrize(("nodes", "enough"), [(99, 99), (100, 100), (1000, 420), (5000, 500), (15000, 750)])
def test_kube_scheduler_looks_at_enough_nodes_of_a_large_cluster(nodes: int, enough: int) -> None:
    assert enough_nodes(nodes) == enough
