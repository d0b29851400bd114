"""The check of clocks: those of the API server, the nodes and this machine."""

from __future__ import annotations

from typing import Any

import pytest

from gas.doctor.checks.clocks import Clock
from tests.doctor.snapshots import NOT_SEEN, NOW, faults, lease


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        pytest.param({}, [], id="all-agree"),
        pytest.param({"clock": NOT_SEEN}, ["may not"], id="api-server-without-a-date"),
        pytest.param(
            {"clock": Clock(before=NOW, server=NOW + 60, after=NOW), "node_leases": {}},
            ["60 s ahead"],
            id="server-ahead",
        ),
        pytest.param({"clock": Clock(before=NOW, server=NOW - 3, after=NOW)}, [], id="within-the-tolerance"),
        pytest.param(
            {"clock": Clock(before=NOW, server=NOW - 31, after=NOW), "node_leases": {}},
            ["30 s behind"],
            id="server-behind",
        ),
        pytest.param({"node_leases": NOT_SEEN}, ["may not"], id="heartbeats-not-seen"),
        pytest.param({"node_leases": {"gpu-1": lease(renewed="2027-01-15T08:01:00Z")}}, ["future"], id="node-ahead"),
        pytest.param(
            {"node_leases": {"gpu-1": lease(renewed="2027-01-15T07:50:00Z")}}, ["600 s ago"], id="node-behind"
        ),
        pytest.param({"node_leases": {"gpu-1": lease(renewed="nonsense")}}, [], id="no-time-at-all"),
        pytest.param({"node_leases": {}}, [], id="no-heartbeat"),
    ],
)
def test_clocks_that_disagree_are_reported(changes: dict[str, Any], expected: list[str]) -> None:
    found = faults("clocks", **changes)
    assert len(found) == len(expected), found
    assert all(words in text for words, (_, text) in zip(expected, found, strict=True))
