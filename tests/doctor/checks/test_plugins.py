"""The checks of device plugins: annotations, the words of the extender, NUMA hints and kubelets' policies."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gas.cluster.connection import ApiServer
from gas.cluster.errors import Forbidden
from gas.doctor.checks import plugins
from gas.doctor.checks.plugins import read_topology_policies
from gas.doctor.findings import Unseen
from gas.objects.stored import DetailedNode, DetailedPod
from tests.doctor.snapshots import (
    CASE,
    NOT_SEEN,
    assert_case,
    case,
    extender_pod,
    fine,
    intel_pod,
    plugin_pod,
    seen_node,
)

ALIYUN = "--vocabularies=intel,aliyun"
BY_NFD = seen_node(writer="nfd-master")


@pytest.mark.parametrize(
    CASE,
    [
        case("pods-not-seen", "unknown", "may not be seen", pods=NOT_SEEN),
        case("v0.34-ignores-annotations", "problem", "ignores annotations", pods=(intel_pod("0.34.1"),)),
        case("v0.36-too", "problem", "v0.36", pods=(intel_pod("v0.36.0-ubi"),)),
        case("without-resource-manager", "problem", "-resource-manager", pods=(intel_pod("0.32.1"),)),
        case("release-not-known", "unknown", "does not name the release", pods=(intel_pod("latest"),)),
        case("ours-switched-off", "problem", "does not obey", pods=(plugin_pod("--resource-manager=false"),)),
        case("ours-not-ready", "problem", "not ready", pods=(plugin_pod(ready=False),)),
        case("an-unknown-plugin", "unknown", "a device plugin offers", nodes=(BY_NFD,), pods=()),
        case(
            "two-on-one-node",
            "problem",
            "one plugin for gpu.intel.com/i915 and gpu.intel.com/xe | default/gas-plugin-abcde, default/intel-gpu-plug",
            pods=(plugin_pod(), intel_pod("0.32.1", "-resource-manager")),
        ),
        fine("an-old-plugin-that-obeys", pods=(intel_pod("v0.32.1", "-resource-manager"),)),
        fine("ours-as-a-service-of-the-machine", pods=()),
        fine(
            "one-on-each-node",
            nodes=(seen_node(), seen_node("gpu-2")),
            pods=(plugin_pod(), plugin_pod(node="gpu-2", name="gas-plugin-fghij")),
        ),
    ],
)
def test_device_plugins(changes: dict[str, Any], level: str, words: str) -> None:
    assert_case("device-plugins", changes, level, words)


@pytest.mark.parametrize(
    CASE,
    [
        fine("the-default-one"),
        fine(
            "the-same-flags",
            "all speak intel, aliyun",
            pods=(extender_pod(ALIYUN), plugin_pod("--vocabularies", "aliyun,intel")),
        ),
        case("one-less", "problem", "intel,aliyun | intel |", pods=(extender_pod(ALIYUN), plugin_pod())),
        case(
            "one-more-on-two-nodes",
            "problem",
            "intel | intel,aliyun |",
            pods=(extender_pod(), plugin_pod(ALIYUN), plugin_pod(ALIYUN, node="gpu-2", name="another")),
        ),
        case(
            "another-unit",
            "problem",
            "MiB | GiB |",
            pods=(extender_pod(ALIYUN), plugin_pod(ALIYUN, "--aliyun-unit=GiB")),
        ),
    ],
)
def test_vocabularies(changes: dict[str, Any], level: str, words: str) -> None:
    assert_case("vocabularies", changes, level, words)


TWO_SOCKETS = seen_node(labels={"gpu-numbers": "0.1", "numa-gpu-map": "0-0_1-1"})
HINTING = plugin_pod("--topology-hints")
ONE_SOCKET = seen_node(labels={"gpu-numbers": "0.1", "numa-gpu-map": "1-0.1"})
BY_INTEL = intel_pod("v0.32.1", "-resource-manager")


def kubelet(pod: DetailedPod | None, policy: str | Unseen, node: DetailedNode = TWO_SOCKETS) -> dict[str, Any]:
    """Return the changes of a cluster with one device plugin, or none in a pod, and a policy of its kubelet."""
    return {"nodes": (node,), "pods": (pod,) if pod else (), "topology_policies": {"gpu-1": policy}}


@pytest.mark.parametrize(
    CASE,
    [
        case("best-effort", "problem", "NUMA hints, and the policy best-effort", **kubelet(HINTING, "best-effort")),
        case("restricted", "problem", "other cards than are booked", **kubelet(HINTING, "restricted")),
        case("single-numa-node", "problem", "or are rejected", **kubelet(HINTING, "single-numa-node")),
        case("policy-not-seen", "unknown", "may not be seen", **kubelet(HINTING, NOT_SEEN)),
        case("intels", "problem", "Intel's GPU device plugin sends NUMA hints", **kubelet(BY_INTEL, "restricted")),
        fine("no-hints", "under any policy; the policy is restricted", **kubelet(plugin_pod(), "restricted")),
        fine("no-hints-policy-not-seen", "the policy could not be read: ", **kubelet(plugin_pod(), NOT_SEEN)),
        fine("plugin-outside-of-a-pod", "unless it has --topology-hints", **kubelet(None, "restricted")),
        fine("hints-that-are-not-used", "policy none ignores them", **kubelet(HINTING, "none")),
        fine("hints-about-one-numa-node", "on the same NUMA node", **kubelet(HINTING, "restricted", ONE_SOCKET)),
    ],
)
def test_topology_managers(changes: dict[str, Any], level: str, words: str) -> None:
    assert_case("topology-manager", changes, level, words)


NODES = [f"gpu-{number}" for number in range(100)]


class Kubelets(ApiServer):
    """An API server whose kubelets need ``seconds`` for a response; it may refuse all of them."""

    def __init__(self, seconds: float = 0, *, refuses: bool = False) -> None:
        self.asked: list[str] = []
        self.most_at_once = 0
        self._at_once = 0
        self._seconds = seconds
        self._refuses = refuses

    async def request(self, method: str, path: str, *, timeout: float = 30, **_: object) -> bytes:
        self.asked.append(path)
        self._at_once += 1
        self.most_at_once = max(self.most_at_once, self._at_once)
        await asyncio.sleep(min(self._seconds, timeout))
        self._at_once -= 1
        if self._refuses:
            raise Forbidden("Forbidden", "no", request=f"{method} {path}")
        return b'{"kubeletconfig":{"topologyManagerPolicy":"restricted"},"other":1}'


async def test_all_kubelets_are_asked_through_the_proxy_of_their_nodes() -> None:
    api = Kubelets()
    assert await read_topology_policies(api, NODES, 1) == dict.fromkeys(NODES, "restricted")
    assert sorted(api.asked) == sorted(f"/api/v1/nodes/{node}/proxy/configz" for node in NODES)
    assert 1 < api.most_at_once <= 20


async def test_after_a_refusal_no_further_kubelet_is_asked() -> None:
    api = Kubelets(0.001, refuses=True)
    policies = await read_topology_policies(api, NODES, 1)
    assert len(api.asked) <= 20
    assert policies.keys() == set(NODES)
    assert all(isinstance(policy, Unseen) for policy in policies.values())


async def test_slow_kubelets_are_not_awaited_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugins, "IN_ALL", 0.05)
    async with asyncio.timeout(10):
        await read_topology_policies(Kubelets(60), NODES, 60)


async def test_a_name_that_no_node_can_have_is_only_unseen() -> None:
    policies = await read_topology_policies(Kubelets(), ["..", "gpu-1"], 1)
    assert isinstance(policies[".."], Unseen)
    assert policies["gpu-1"] == "restricted"
