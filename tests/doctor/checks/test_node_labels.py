"""The check of nodes' labels, and who writes them."""

from __future__ import annotations

from typing import Any

import pytest

from gas.doctor.findings import Level
from tests.doctor.snapshots import NOT_SEEN, faults, findings, intel_pod, plugin_pod, seen_node

NFD = {"nfd.node.kubernetes.io/feature-labels": "gpu.intel.com/gpu-numbers,cpu-model.id"}


@pytest.mark.parametrize(
    ("changes", "level", "words"),
    [
        pytest.param({"nodes": NOT_SEEN}, "unknown", "may not be seen", id="nodes-not-seen"),
        pytest.param({"nodes": (), "pods": ()}, "problem", "no label and no resource is about GPUs", id="no-gpu-node"),
        pytest.param({"only_node": "other"}, "problem", "does not exist", id="no-such-node"),
        pytest.param({"nodes": (seen_node(labels={}),)}, "problem", "no label names its cards", id="no-labels"),
        pytest.param(
            {"nodes": (seen_node(labels={"gpu-numbers": "0.1", "numa-gpu-map": "0-0.7"}),)},
            "warning",
            "'card7'",
            id="a-label-about-a-card-that-is-not-there",
        ),
        pytest.param(
            {"nodes": (seen_node(writer="nfd-master"),), "pods": ()},
            "warning",
            "outdated labels",
            id="nfd-labels-without-a-source",
        ),
        pytest.param(
            {"nodes": (seen_node(writer="nfd-master"),), "pods": (intel_pod("0.34.1", "-resource-manager"),)},
            "warning",
            "outdated labels",
            id="labels-of-an-old-plugin-that-a-new-one-leaves",
        ),
        pytest.param({"nodes": (seen_node(annotations=NFD),)}, "warning", "both the plugin and", id="two-writers"),
    ],
)
def test_missing_invalid_or_outdated_labels_are_reported(changes: dict[str, Any], level: str, words: str) -> None:
    ((found, text),) = faults("node-labels", **changes)
    assert found == level
    assert words in text


@pytest.mark.parametrize(
    ("changes", "writer"),
    [
        pytest.param({}, "gas-plugin", id="by-the-plugin"),
        pytest.param(
            {"nodes": (seen_node(writer="kubectl-label"),), "pods": ()}, "kubectl-label; no program", id="by-hand"
        ),
        pytest.param(
            {"nodes": (seen_node(writer="nfd-master"),), "pods": (plugin_pod("--write-node=nfd"),)},
            "nfd-master",
            id="by-nfd-for-our-plugin",
        ),
        pytest.param(
            {"nodes": (seen_node(writer="nfd-master"),), "pods": (intel_pod("0.32.1", "-resource-manager"),)},
            "nfd-master",
            id="by-nfd-for-an-old-plugin",
        ),
        pytest.param({"nodes": (seen_node(writer="another"),)}, "another", id="by-another-program"),
    ],
)
def test_the_writer_of_the_labels_is_named(changes: dict[str, Any], writer: str) -> None:
    (well,) = findings("node-labels", **changes)
    assert well.level is Level.OK
    assert f"written by {writer}" in well.message
