"""The check of kubelets' Topology Managers."""

from __future__ import annotations

import pytest

from gas.doctor.findings import Unseen
from gas.objects.stored import DetailedPod
from tests.doctor.snapshots import NOT_SEEN, faults, findings, intel_pod, levels, plugin_pod, seen_node

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
