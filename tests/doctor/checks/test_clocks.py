"""The check of clocks: those of the API server, the nodes and this machine."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gas.doctor.checks.clocks import Clock
from tests.doctor.snapshots import CASE, NOT_SEEN, NOW, assert_case, case, fine, lease


@pytest.mark.parametrize(
    CASE,
    [
        fine("all-agree"),
        case("api-server-without-a-date", "unknown", "may not", clock=NOT_SEEN),
        case(
            "server-ahead", "warning", "60 s ahead", clock=Clock(before=NOW, server=NOW + 60, after=NOW), node_leases={}
        ),
        fine("within-the-tolerance", clock=Clock(before=NOW, server=NOW - 3, after=NOW)),
        case(
            "server-behind",
            "warning",
            "30 s behind",
            clock=Clock(before=NOW, server=NOW - 31, after=NOW),
            node_leases={},
        ),
        case("heartbeats-not-seen", "unknown", "may not", node_leases=NOT_SEEN),
        case("node-ahead", "warning", "future", node_leases={"gpu-1": lease(renewed="2027-01-15T08:01:00Z")}),
        case("node-behind", "warning", "600 s ago", node_leases={"gpu-1": lease(renewed="2027-01-15T07:50:00Z")}),
        fine("no-time-at-all", node_leases={"gpu-1": lease(renewed=None)}),
        fine("no-heartbeat", node_leases={}),
    ],
)
def test_clocks(changes: dict[str, Any], level: str, words: str) -> None:
    assert_case("clocks", changes, level, words)


def test_a_heartbeat_without_a_zone_is_left_out() -> None:
    """A list leaves the Lease out. Python cannot compare the first year's first hours by the machine's zone."""
    with pytest.raises(msgspec.ValidationError):
        lease(renewed="0001-01-01T00:00:00")
