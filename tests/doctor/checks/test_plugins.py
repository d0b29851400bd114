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
from gas.objects.stored import DetailedPod
from tests.doctor.snapshots import (
    CASE,
    NOT_SEEN,
    assert_case,
    case,
    extender_pod,
    faults,
    findings,
    fine,
    intel_pod,
    levels,
    plugin_pod,
    seen_node,
    shared_node,
    worst,
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


def test_two_plugins_for_one_resource_on_a_node_are_reported() -> None:
    pods = (plugin_pod(), intel_pod("0.32.1", "-resource-manager"))
    ((level, text),) = faults("device-plugins", pods=pods)
    assert level == "problem"
    assert "2 device plugins serve the same cards" in text
    assert "default/gas-plugin-abcde, default/intel-gpu-plugin-abcde" in text


def test_the_default_vocabulary_needs_no_finding() -> None:
    assert findings("vocabularies") == []


def test_the_same_flags_everywhere_are_ok() -> None:
    pods = (extender_pod(ALIYUN), plugin_pod("--vocabularies", "aliyun,intel"))
    (found,) = findings("vocabularies", pods=pods, nodes=(shared_node(),))
    assert (found.level.value, found.message) == ("ok", "all speak intel, aliyun")


@pytest.mark.parametrize(
    ("extender", "plugin", "expected", "found"),
    [
        ([ALIYUN], [], "intel,aliyun", "intel"),
        ([], [ALIYUN], "intel", "intel,aliyun"),
        ([ALIYUN], [ALIYUN, "--aliyun-unit=GiB"], "MiB", "GiB"),
    ],
)
def test_a_plugin_with_other_flags_is_a_problem(
    extender: list[str], plugin: list[str], expected: str, found: str
) -> None:
    pods = (extender_pod(*extender), plugin_pod(*plugin), plugin_pod(*plugin, node="gpu-2", name="another"))
    (fault,) = worst(findings("vocabularies", pods=pods))
    assert (fault.level.value, fault.expected, fault.found) == ("problem", expected, found)


TWO_SOCKETS = seen_node(labels={"gpu-numbers": "0.1", "numa-gpu-map": "0-0_1-1"})
HINTING = plugin_pod("--topology-hints")
BY_INTEL = intel_pod("v0.32.1", "-resource-manager")


@pytest.mark.parametrize(
    ("pod", "policy", "level", "words"),
    [
        pytest.param(HINTING, "best-effort", "problem", "NUMA hints, and the policy best-effort", id="best-effort"),
        pytest.param(HINTING, "restricted", "problem", "other cards than are booked", id="restricted"),
        pytest.param(HINTING, "single-numa-node", "problem", "or are rejected", id="single-numa-node"),
        pytest.param(HINTING, NOT_SEEN, "unknown", "may not be seen", id="policy-not-seen"),
        pytest.param(BY_INTEL, "restricted", "problem", "Intel's GPU device plugin sends NUMA hints", id="intels"),
    ],
)
def test_numa_hints_with_which_kubelet_replaces_cards_are_reported(
    pod: DetailedPod, policy: str | Unseen, level: str, words: str
) -> None:
    seen = {"nodes": (TWO_SOCKETS,), "pods": (pod,), "topology_policies": {"gpu-1": policy}}
    ((found, text),) = faults("topology-manager", **seen)
    assert found == level
    assert words in text


@pytest.mark.parametrize(
    ("pods", "policy", "words"),
    [
        pytest.param((plugin_pod(),), "restricted", "under any policy; the policy is restricted", id="no-hints"),
        pytest.param((plugin_pod(),), NOT_SEEN, "the policy could not be read: ", id="no-hints-policy-not-seen"),
        pytest.param((), "restricted", "unless it has --topology-hints", id="plugin-outside-of-a-pod"),
        pytest.param((HINTING,), "none", "policy none ignores them", id="hints-that-are-not-used"),
    ],
)
def test_kubelet_does_not_replace_cards_without_hints_or_without_a_policy(
    pods: tuple[DetailedPod, ...], policy: str | Unseen, words: str
) -> None:
    found = findings("topology-manager", nodes=(TWO_SOCKETS,), pods=pods, topology_policies={"gpu-1": policy})
    assert levels(found) == ["ok"]
    assert words in found[0].message


def test_numa_hints_do_not_matter_if_all_cards_are_on_one_numa_node() -> None:
    node = seen_node(labels={"gpu-numbers": "0.1", "numa-gpu-map": "1-0.1"})
    found = findings("topology-manager", nodes=(node,), pods=(HINTING,), topology_policies={"gpu-1": "restricted"})
    assert levels(found) == ["ok"]


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
