"""The check of pods with GPUs."""

from __future__ import annotations

from typing import Any

import pytest

from tests.doctor.snapshots import faults, gpu_pod, program_pod, seen_node, seen_pod

UNREADABLE = {"gas-container-cards": "card0;card1"}
DAMAGED_RECEIPT = {"gas-allocated-cards": "nonsense"}


@pytest.mark.parametrize(
    ("pods", "level", "words"),
    [
        pytest.param((gpu_pod(),), "problem", "without an annotation that names its cards", id="bound-without-cards"),
        pytest.param((gpu_pod(annotations=UNREADABLE),), "problem", "cannot be read", id="unreadable"),
        pytest.param(
            (gpu_pod(cards="card0", annotations=DAMAGED_RECEIPT),), "warning", "receipt", id="damaged-receipt"
        ),
        pytest.param((gpu_pod(cards="card9"),), "warning", "'card9'", id="a-card-that-the-node-does-not-have"),
        pytest.param((gpu_pod(i915="-1"),), "problem", "is invalid", id="a-need-that-makes-no-sense"),
        pytest.param(
            (gpu_pod("a", cards="card0", millicores=600), gpu_pod("b", cards="card0", millicores=600)),
            "problem",
            "hold more than the card has",
            id="two-on-one-card",
        ),
        pytest.param(
            (gpu_pod("a", cards="card0", annotations={"gas-card-exclusion": "x"}), gpu_pod("b", cards="card0")),
            "warning",
            "the exclusion or anti-affinity of the pods default/a and default/b forbids that they share it",
            id="an-exclusion-that-is-broken",
        ),
        pytest.param(
            tuple(gpu_pod(name, cards="card0", annotations={"gas-card-anti-affinity": "x"}) for name in "ab"),
            "warning",
            "the exclusion or anti-affinity of the pods default/a and default/b forbids that they share it",
            id="an-anti-affinity-that-is-broken",
        ),
        pytest.param(
            (gpu_pod(node=None, message='Post "https://127.0.0.1:9001/scheduler/filter": EOF'),),
            "problem",
            "could not decide",
            id="waits-for-the-extender",
        ),
        pytest.param((gpu_pod(node=None, i915="-1"),), "warning", "no node can ever run it", id="never-fits"),
        pytest.param(
            (gpu_pod(node=None, i915=0, millicores=5),),
            "warning",
            "asks for 'gpu.intel.com/millicores' but for no card; add gpu.intel.com/i915",
            id="gets-no-card",
        ),
        pytest.param(
            (gpu_pod(node=None, annotations={"gas-same-gpus": "a"}),),
            "warning",
            "annotation 'gas-same-gpus' is not known and has no effect; did you mean gas-same-gpu?",
            id="unknown-annotation",
        ),
        pytest.param(
            (
                gpu_pod(node=None, annotations={"gas-node-score": "best-fit"}),
                program_pod("gas-0", "gas:1", "gas-extender", "--cert=/tls.crt"),
            ),
            "warning",
            "annotation gas-node-score has no effect, because the extender runs without --node-score",
            id="nodes-are-not-scored",
        ),
        pytest.param(
            (gpu_pod(node=None, i915=9),),
            "warning",
            "no node of the cluster could run the pod now, even without other pods: container 'main' asks for 9 cards",
            id="no-node-could-hold-it",
        ),
        pytest.param(
            (gpu_pod(node=None, spec={"schedulerName": "other"}),), "problem", "default-scheduler", id="wrong-scheduler"
        ),
    ],
)
def test_a_pod_with_a_fault_is_reported(pods: tuple[Any, ...], level: str, words: str) -> None:
    ((found, text),) = faults("pods", pods=pods)
    assert found == level
    assert words in text


@pytest.mark.parametrize(
    "pod",
    [
        pytest.param(gpu_pod(cards="card1"), id="written-and-believed"),
        pytest.param(gpu_pod(phase="Failed"), id="ended"),
        pytest.param(gpu_pod(node=None, message="0/1 nodes: no card has 5.0 GB free"), id="waits-for-room"),
        pytest.param(seen_pod({"name": "no-gpu"}), id="no-gpu"),
    ],
)
def test_a_pod_without_a_fault_is_ok(pod: Any) -> None:
    assert faults("pods", pods=(pod,)) == []


def test_of_very_many_pods_only_some_are_reported_one_by_one() -> None:
    pods = tuple(gpu_pod(f"a-{number}") for number in range(50))
    found = faults("pods", pods=pods)
    assert len(found) == 21
    assert "30 more pods have invalid annotations" in found[-1][1]


def test_pods_of_other_nodes_are_skipped_with_one_node() -> None:
    assert faults("pods", nodes=(seen_node(), seen_node("gpu-2")), pods=(gpu_pod(),), only_node="gpu-2") == []
