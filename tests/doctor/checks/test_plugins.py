"""The check of device plugins: each obeys annotations, and a node has only one."""

from __future__ import annotations

from typing import Any

import pytest

from tests.doctor.snapshots import NOT_SEEN, faults, intel_pod, plugin_pod, seen_node

BY_NFD = seen_node(writer="nfd-master")


@pytest.mark.parametrize(
    ("changes", "level", "words"),
    [
        pytest.param({"pods": NOT_SEEN}, "unknown", "may not be seen", id="pods-not-seen"),
        pytest.param(
            {"pods": (intel_pod("0.34.1"),)}, "problem", "ignores annotations", id="v0.34-ignores-annotations"
        ),
        pytest.param({"pods": (intel_pod("v0.36.0-ubi"),)}, "problem", "v0.36", id="v0.36-too"),
        pytest.param({"pods": (intel_pod("0.32.1"),)}, "problem", "-resource-manager", id="without-resource-manager"),
        pytest.param({"pods": (intel_pod("latest"),)}, "unknown", "does not name the release", id="release-not-known"),
        pytest.param(
            {"pods": (plugin_pod("--resource-manager=false"),)},
            "problem",
            "does not obey",
            id="ours-switched-off",
        ),
        pytest.param({"pods": (plugin_pod(ready=False),)}, "problem", "not ready", id="ours-not-ready"),
        pytest.param({"nodes": (BY_NFD,), "pods": ()}, "unknown", "a device plugin offers", id="an-unknown-plugin"),
    ],
)
def test_a_device_plugin_that_ignores_annotations_is_reported(changes: dict[str, Any], level: str, words: str) -> None:
    ((found, text),) = faults("device-plugins", **changes)
    assert found == level
    assert words in text


def test_two_plugins_for_one_resource_on_a_node_are_reported() -> None:
    pods = (plugin_pod(), intel_pod("0.32.1", "-resource-manager"))
    ((level, text),) = faults("device-plugins", pods=pods)
    assert level == "problem"
    assert "2 device plugins serve the same cards" in text
    assert "default/gas-plugin-abcde, default/intel-gpu-plugin-abcde" in text


@pytest.mark.parametrize(
    "pods",
    [
        pytest.param((intel_pod("v0.32.1", "-resource-manager"),), id="an-old-plugin-that-obeys"),
        pytest.param((), id="ours-as-a-service-of-the-machine"),
        pytest.param((plugin_pod(), plugin_pod(node="gpu-2", name="gas-plugin-fghij")), id="one-on-each-node"),
    ],
)
def test_a_device_plugin_that_obeys_annotations_is_ok(pods: tuple[Any, ...]) -> None:
    assert faults("device-plugins", nodes=(seen_node(), seen_node("gpu-2")), pods=pods) == []
