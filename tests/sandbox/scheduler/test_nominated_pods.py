"""The scheduler's treatment of pods that are nominated for a node."""

from __future__ import annotations

from typing import Any

import pytest

from sandbox.scheduler.scheduler import frees_room, nominated_nodes


def pod(uid: str, priority: int, nominated: str = "", *, bound: str = "", phase: str = "Pending") -> dict[str, Any]:
    spec = {"priority": priority, "nodeName": bound or None}
    return {"metadata": {"uid": uid}, "spec": spec, "status": {"nominatedNodeName": nominated or None, "phase": phase}}


@pytest.mark.parametrize(("priority", "counted"), [(0, False), (1, True), (2, True)])
def test_the_requests_of_nominated_pods_of_its_priority_or_more_count(priority: int, counted: bool) -> None:
    others = {"other": pod("other", priority, "n0"), "waiting": pod("waiting", 2), "own": pod("own", 1, "n1")}
    assert nominated_nodes(pod("own", 1), others) == ({"other": "n0"} if counted else {})


NOMINATED = pod("p", 1, "n0")


@pytest.mark.parametrize(
    ("before", "after", "frees"),
    [
        (NOMINATED, NOMINATED, False),
        (NOMINATED, pod("p", 1, "n0", bound="n0"), False),
        (NOMINATED, pod("p", 1, "n0", bound="n1"), True),
        (NOMINATED, pod("p", 1, "n1"), True),
        (NOMINATED, pod("p", 1), True),
        (NOMINATED, None, True),
        (pod("p", 1), NOMINATED, False),
        (pod("p", 1, bound="n0"), pod("p", 1, bound="n0", phase="Failed"), True),
        (pod("p", 1, bound="n0", phase="Failed"), None, False),
    ],
)
def test_pods_that_end_or_are_no_longer_nominated_free_room(
    before: dict[str, Any], after: dict[str, Any] | None, frees: bool
) -> None:
    assert frees_room(before, after) is frees
