"""The scheduler's own arithmetic."""

from __future__ import annotations

from typing import Any

import pytest

from sandbox.scheduler.scheduler import reasons_against, requested_by_node
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
    assert reasons_against(wanted, on_node, {I915: 2}) == reasons


def test_requests_of_all_pods_of_a_node_that_have_not_ended_are_added_up() -> None:
    pods = {
        "a": pod("a", cards=1, nodeName="n"),
        "b": pod("b", cards=2, nodeName="n"),
        "none": pod("none", cards=0, nodeName="n"),
        "ended": pod("ended", cards=4, nodeName="n") | {"status": {"phase": "Succeeded"}},
        "elsewhere": pod("elsewhere", cards=8, nodeName="other"),
        "assumed": pod("assumed", cards=16),
        "waiting": pod("waiting", cards=32),
    }
    found = requested_by_node(["n", "empty"], pods, {"assumed": "n"})
    assert found == {"n": {I915: 19}, "empty": {}}
