"""The check of Node Feature Discovery, where a plugin uses it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.doctor.snapshots import NOT_SEEN, faults, plugin_pod, program_pod

MASTER = program_pod("nfd-master", "registry/nfd/node-feature-discovery:v0.17.0", "nfd-master", node="cp")


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        pytest.param({"pods": (plugin_pod("--write-node=nfd"),)}, ["no pod of that runs"], id="needed-and-missing"),
        pytest.param(
            {"pods": (plugin_pod("--write-node=nfd"), MASTER), "feature_objects": 0},
            ["have not reported any node"],
            id="no-features",
        ),
        pytest.param(
            {"pods": (plugin_pod("--write-node=nfd"), MASTER), "feature_objects": NOT_SEEN}, ["may not"], id="not-seen"
        ),
        pytest.param(
            {"pods": (plugin_pod("--write-node=nfd"), MASTER), "feature_objects": 3}, [], id="needed-and-there"
        ),
        pytest.param({"pods": (plugin_pod(),)}, [], id="not-needed"),
    ],
)
def test_node_feature_discovery_is_checked_where_a_plugin_uses_it(changes: dict[str, Any], expected: list[str]) -> None:
    found = faults("feature-discovery", **changes)
    assert len(found) == len(expected)
    assert all(words in text for words, (_, text) in zip(expected, found, strict=True))
