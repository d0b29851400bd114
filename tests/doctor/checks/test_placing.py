"""The check with a dry pod, which the extender is asked to place."""

from __future__ import annotations

from typing import Any

import pytest

from gas.doctor.snapshot import Reply
from tests.doctor.snapshots import call, faults, gpu_pod, seen_node

REFUSED = Reply(failed={"gpu-1": "no card has 1 i915 free"})


@pytest.mark.parametrize(
    ("changes", "level", "words"),
    [
        pytest.param({"calls": ()}, "unknown", "would fit on 1 of 1 nodes", id="not-asked"),
        pytest.param({"calls": (call(reply=REFUSED),)}, "problem", "1 have room", id="refused-though-there-is-room"),
        pytest.param(
            {
                "calls": (call(reply=REFUSED),),
                "nodes": (seen_node(resources={"i915": "2"}),),
                "pods": (gpu_pod(cards="card0", millicores=0), gpu_pod("b", cards="card1", millicores=0)),
            },
            "warning",
            "no node has room",
            id="all-cards-are-taken",
        ),
    ],
)
def test_a_dry_pod_that_is_not_placed_is_reported(changes: dict[str, Any], level: str, words: str) -> None:
    ((found, text),) = faults("dry-pod", **changes)
    assert found == level
    assert words in text


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({}, id="placed"),
        pytest.param({"dry_pod": False, "calls": ()}, id="not-wanted"),
        pytest.param({"nodes": (seen_node(resources={}),), "calls": ()}, id="no-cards-to-ask-about"),
    ],
)
def test_a_dry_pod_that_is_placed_or_not_wanted_is_ok(changes: dict[str, Any]) -> None:
    assert faults("dry-pod", **changes) == []
