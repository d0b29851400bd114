"""Plugins that measure use: whether they have the rights for it."""

from __future__ import annotations

from typing import Any

import pytest

from gas.doctor.findings import Level
from tests.doctor.snapshots import findings, levels, own_plugin, plugin_pod

CHECK = "usage-and-limits"
PTRACE = {"capabilities": {"add": ["SYS_PTRACE"]}}


def test_a_plugin_that_does_not_measure_is_not_reported() -> None:
    assert findings(CHECK, pods=(plugin_pod(),)) == []
    assert findings(CHECK, pods=(own_plugin("--usage=false"),)) == []


@pytest.mark.parametrize(
    ("spec", "context", "found"),
    [
        pytest.param({}, {}, "without hostPID: true and the capability SYS_PTRACE", id="neither"),
        pytest.param({"hostPID": True}, {}, "without the capability SYS_PTRACE", id="no-capability"),
        pytest.param({}, PTRACE, "without hostPID: true", id="no-process-ids"),
        pytest.param({"hostPID": True}, {"capabilities": {}}, "without the capability SYS_PTRACE", id="none-added"),
    ],
)
def test_a_plugin_that_cannot_read_processes_is_a_problem(
    spec: dict[str, Any], context: dict[str, Any], found: str
) -> None:
    (finding,) = findings(CHECK, pods=(own_plugin("--usage", spec=spec, securityContext=context),))
    assert (finding.level, finding.found) == (Level.PROBLEM, found)
    assert "so it shows no use of the cards" in finding.message


@pytest.mark.parametrize("context", [PTRACE, {"privileged": True}], ids=["capability", "privileged"])
def test_a_plugin_that_can_read_processes_is_fine(context: dict[str, Any]) -> None:
    pod = own_plugin("--usage", spec={"hostPID": True}, securityContext=context)
    assert levels(findings(CHECK, pods=(pod,))) == ["ok"]
