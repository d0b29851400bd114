"""Plugins that limit memory: whether they have the rights, and their node the kernel, for it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from gas.objects.stored import DetailedNode, DetailedPod
from tests.deploy.manifests import COMPONENTS, read
from tests.doctor.snapshots import faults, findings, levels, own_plugin, seen_node

CHECK = "usage-and-limits"
MOUNT = {"name": "cgroup", "mountPath": "/sys/fs/cgroup"}
VOLUME = {"name": "cgroup", "hostPath": {"path": "/sys/fs/cgroup"}}


def node(kernel: str = "6.14.0-amd64", *drivers: str) -> DetailedNode:
    records = [{"card": card, "driver": driver} for card, driver in enumerate(drivers)]
    seen = json.loads(msgspec.json.encode(seen_node(annotations={"gas-cards": json.dumps(records)} if drivers else {})))
    seen["status"]["nodeInfo"] = {"kernelVersion": kernel}
    return msgspec.convert(seen, DetailedNode)


def limiting(*, volume: dict[str, Any] = VOLUME, flags: tuple[str, ...] = (), **mount: Any) -> DetailedPod:
    """Return a plugin with limits; ``mount`` changes its mount of the cgroups."""
    return own_plugin("--memory-limits=pod", *flags, spec={"volumes": [volume]}, volumeMounts=[MOUNT | mount])


def test_a_plugin_without_limits_is_not_reported() -> None:
    assert findings(CHECK, pods=(own_plugin("--memory-limits=none"),)) == []


@pytest.mark.parametrize(
    "pod",
    [
        pytest.param(own_plugin("--memory-limits=pod"), id="no-mount"),
        pytest.param(limiting(readOnly=True), id="read-only"),
        pytest.param(limiting(volume={"name": "cgroup", "emptyDir": {}}), id="not-the-nodes"),
        pytest.param(limiting(mountPath="/cgroup"), id="elsewhere"),
        pytest.param(limiting(flags=("--prefix=/host",)), id="not-below-the-prefix"),
    ],
)
def test_a_plugin_that_cannot_write_limits_is_a_problem(pod: DetailedPod) -> None:
    ((level, text),) = faults(CHECK, nodes=(node(),), pods=(pod,))
    assert level == "problem"
    assert "pods of this node run without limits: it cannot write in the node's /sys/fs/cgroup" in text


@pytest.mark.parametrize(
    ("kernel", "drivers", "words"),
    [
        pytest.param("6.12.48+deb13-amd64", ("xe",), "its kernel has no cgroup controller dmem", id="6.12"),
        pytest.param("6.8.0-51-generic", (), "Linux 6.8.0-51-generic", id="6.8"),
        pytest.param("6.14.0", ("i915", "i915"), "with the driver xe only", id="i915"),
    ],
)
def test_a_node_that_cannot_limit_memory_is_a_warning(kernel: str, drivers: tuple[str, ...], words: str) -> None:
    ((level, text),) = faults(CHECK, nodes=(node(kernel, *drivers),), pods=(limiting(),))
    assert level == "warning"
    assert words in text


@pytest.mark.parametrize(
    ("kernel", "drivers"),
    [("6.14.0-amd64", ("xe",)), ("7.0.1", ("i915", "xe")), ("6.18.44-fc-v669", ()), ("", ("xe",)), ("custom", ())],
)
def test_a_node_that_may_limit_memory_is_fine(kernel: str, drivers: tuple[str, ...]) -> None:
    below_a_prefix = limiting(flags=("--prefix=/host",), mountPath="/host/sys")
    for pod in (limiting(), below_a_prefix):
        assert levels(findings(CHECK, nodes=(node(kernel, *drivers),), pods=(pod,))) == ["ok"]


def objects_of(component: str) -> Iterator[dict[str, Any]]:
    """Yield the patches of a component that change the DaemonSet as a whole."""
    (kustomization,) = read(COMPONENTS / component / "kustomization.yaml")
    for patch in kustomization["patches"]:
        if "path" in patch:
            yield from read(COMPONENTS / component / patch["path"])


def test_the_component_memory_limits_mounts_what_is_looked_for() -> None:
    (daemonset,) = objects_of("memory-limits")
    spec = daemonset["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    pod = own_plugin("--memory-limits=pod", spec={"volumes": spec["volumes"]}, volumeMounts=container["volumeMounts"])
    assert levels(findings(CHECK, nodes=(node(),), pods=(pod,))) == ["ok"]
