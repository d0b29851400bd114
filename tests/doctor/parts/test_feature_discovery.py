"""The check of Node Feature Discovery, where a plugin uses it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.doctor.snapshots import CASE, NOT_SEEN, assert_case, case, fine, plugin_pod, program_pod

MASTER = program_pod("nfd-master", "registry/nfd/node-feature-discovery:v0.17.0", "nfd-master", node="cp")


@pytest.mark.parametrize(
    CASE,
    [
        case("needed-and-missing", "problem", "no pod of that runs", pods=(plugin_pod("--write-node=nfd"),)),
        case(
            "no-features",
            "problem",
            "have not reported any node",
            pods=(plugin_pod("--write-node=nfd"), MASTER),
            feature_objects=0,
        ),
        case("not-seen", "unknown", "may not", pods=(plugin_pod("--write-node=nfd"), MASTER), feature_objects=NOT_SEEN),
        fine("needed-and-there", pods=(plugin_pod("--write-node=nfd"), MASTER), feature_objects=3),
        fine("not-needed", pods=(plugin_pod(),)),
    ],
)
def test_node_feature_discovery(changes: dict[str, Any], level: str, words: str) -> None:
    assert_case("feature-discovery", changes, level, words)
