"""Plugins that limit memory: whether they have the rights, and their node the kernel, for it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from gas.objects.stored import DetailedNode, DetailedPod
from tests.deploy.manifests import COMPONENTS, read
from tests.doctor.snapshots import CASE, assert_case, case, findings, fine, levels, own_plugin, seen_node_json

CHECK = "usage-and-limits"
MOUNT = {"name": "cgroup", "mountPath": "/sys/fs/cgroup"}
VOLUME = {"name": "cgroup", "hostPath": {"path": "/sys/fs/cgroup"}}


def node(kernel: str = "6.14.0-amd64", *drivers: str) -> DetailedNode:
    records = [{"card": card, "driver": driver} for card, driver in enumerate(drivers)]
    seen = seen_node_json(annotations={"gas-cards": json.dumps(records)} if drivers else {})
    seen["status"]["nodeInfo"] = {"kernelVersion": kernel}
    return msgspec.convert(seen, DetailedNode)


def limiting(*, volume: dict[str, Any] = VOLUME, flags: tuple[str, ...] = (), **mount: Any) -> DetailedPod:
    """Return a plugin with limits; ``mount`` changes its mount of the cgroups."""
    return own_plugin("--memory-limits=pod", *flags, spec={"volumes": [volume]}, volumeMounts=[MOUNT | mount])


NOT_THE_NODES = {"name": "cgroup", "emptyDir": {}}
BELOW_A_PREFIX = limiting(flags=("--prefix=/host",), mountPath="/host/sys")
MAY_LIMIT = "limits what pods use of shared cards"
CANNOT_WRITE = "pods of this node run without limits: it cannot write in the node's /sys/fs/cgroup"


def at(seen: DetailedNode, pod: DetailedPod | None = None) -> dict[str, Any]:
    """Return a cluster of one node, whose plugin limits memory unless it is another."""
    return {"nodes": (seen,), "pods": (pod or limiting(),)}


@pytest.mark.parametrize(
    CASE,
    [
        fine("no-limits", pods=(own_plugin("--memory-limits=none"),)),
        case("no-mount", "problem", CANNOT_WRITE, **at(node(), own_plugin("--memory-limits=pod"))),
        case("read-only", "problem", CANNOT_WRITE, **at(node(), limiting(readOnly=True))),
        case(
            "not-the-nodes", "problem", CANNOT_WRITE, **at(node(), limiting(volume={"name": "cgroup", "emptyDir": {}}))
        ),
        case("elsewhere", "problem", CANNOT_WRITE, **at(node(), limiting(mountPath="/cgroup"))),
        case("not-below-the-prefix", "problem", CANNOT_WRITE, **at(node(), limiting(flags=("--prefix=/host",)))),
        case("6.12", "warning", "its kernel has no cgroup controller dmem", **at(node("6.12.48+deb13-amd64", "xe"))),
        case("6.8", "warning", "Linux 6.8.0-51-generic", **at(node("6.8.0-51-generic"))),
        case("i915", "warning", "with the driver xe only", **at(node("6.14.0", "i915", "i915"))),
        fine("6.14", MAY_LIMIT, **at(node("6.14.0-amd64", "xe"))),
        fine("some-xe", MAY_LIMIT, **at(node("7.0.1", "i915", "xe"))),
        fine("drivers-not-known", MAY_LIMIT, **at(node("6.18.44-fc-v669"))),
        fine("kernel-not-known", MAY_LIMIT, **at(node("", "xe"))),
        fine("a-kernel-of-another-name", MAY_LIMIT, **at(node("custom"))),
        fine("below-a-prefix", MAY_LIMIT, **at(node("6.14.0-amd64", "xe"), BELOW_A_PREFIX)),
    ],
)
def test_memory_limits(changes: dict[str, Any], level: str, words: str) -> None:
    assert_case(CHECK, changes, level, words)


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
