"""Plugins that measure use: whether they have the rights for it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.doctor.snapshots import CASE, assert_case, case, fine, own_plugin, plugin_pod

PTRACE = {"capabilities": {"add": ["SYS_PTRACE"]}}
NO_USE = "so it shows no use of the cards |  | without "


def measuring(context: dict[str, Any], **spec: Any) -> dict[str, Any]:
    """Return a cluster whose plugin measures use with a security context."""
    return {"pods": (own_plugin("--usage", spec=spec, securityContext=context),)}


@pytest.mark.parametrize(
    CASE,
    [
        case("neither", "problem", f"{NO_USE}hostPID: true and the capability SYS_PTRACE", **measuring({})),
        case("no-capability", "problem", f"{NO_USE}the capability SYS_PTRACE", **measuring({}, hostPID=True)),
        case("no-process-ids", "problem", f"{NO_USE}hostPID: true |", **measuring(PTRACE)),
        case("none-added", "problem", f"{NO_USE}the capability", **measuring({"capabilities": {}}, hostPID=True)),
        fine("capability", "measures what pods use", **measuring(PTRACE, hostPID=True)),
        fine("privileged", "measures what pods use", **measuring({"privileged": True}, hostPID=True)),
        fine("not-measured", pods=(plugin_pod(),)),
        fine("switched-off", pods=(own_plugin("--usage=false"),)),
    ],
)
def test_measured_use(changes: dict[str, Any], level: str, words: str) -> None:
    assert_case("usage-and-limits", changes, level, words)
