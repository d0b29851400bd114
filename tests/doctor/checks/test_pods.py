"""The checks of pods with GPUs, and of a pod that does not exist."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from gas.doctor.snapshot import Reply
from gas.inspection.objects import Owner
from tests.doctor.snapshots import (
    CASE,
    assert_case,
    call,
    case,
    extender_pod,
    faults,
    findings,
    fine,
    gpu_pod,
    program_pod,
    seen_node,
    seen_pod,
    shared_node,
    worst,
)

UNREADABLE = {"gas-container-cards": "card0;card1"}
DAMAGED_RECEIPT = {"gas-allocated-cards": "nonsense"}


REFUSED = Reply(failed={"gpu-1": "no card has 1 i915 free"})


@pytest.mark.parametrize(
    CASE,
    [
        case("bound-without-cards", "problem", "bound without cards written on it", pods=(gpu_pod(),)),
        case("unreadable", "problem", "its cards are not booked", pods=(gpu_pod(annotations=UNREADABLE),)),
        case("damaged-receipt", "warning", "receipt", pods=(gpu_pod(cards="card0", annotations=DAMAGED_RECEIPT),)),
        case(
            "a-time-that-is-none",
            "warning",
            "annotation gas-ts: expected nanoseconds since the epoch, found 'soon'",
            pods=(gpu_pod(cards="card0", annotations={"gas-ts": "soon"}),),
        ),
        case("a-card-that-the-node-does-not-have", "warning", "'card9'", pods=(gpu_pod(cards="card9"),)),
        case("a-need-that-makes-no-sense", "problem", "its requests cannot be read", pods=(gpu_pod(i915="-1"),)),
        case(
            "two-on-one-card",
            "problem",
            "hold more than the card has",
            pods=(gpu_pod("a", cards="card0", millicores=600), gpu_pod("b", cards="card0", millicores=600)),
        ),
        case(
            "an-exclusion-that-is-broken",
            "warning",
            "the exclusion or anti-affinity of the pods default/a and default/b forbids that they share it",
            pods=(gpu_pod("a", cards="card0", annotations={"gas-card-exclusion": "x"}), gpu_pod("b", cards="card0")),
        ),
        case(
            "an-anti-affinity-that-is-broken",
            "warning",
            "the exclusion or anti-affinity of the pods default/a and default/b forbids that they share it",
            pods=tuple(gpu_pod(name, cards="card0", annotations={"gas-card-anti-affinity": "x"}) for name in "ab"),
        ),
        case(
            "waits-for-the-extender",
            "problem",
            "could not decide",
            pods=(gpu_pod(node=None, message='Post "https://127.0.0.1:9001/scheduler/filter": EOF'),),
        ),
        case("never-fits", "warning", "no node can ever run it", pods=(gpu_pod(node=None, i915="-1"),)),
        case(
            "got-no-card",
            "warning",
            "asks for 'gpu.intel.com/millicores' but for no card; add gpu.intel.com/i915",
            pods=(gpu_pod(i915="0", millicores="100"),),
        ),
        case(
            "gets-no-card",
            "warning",
            "asks for 'gpu.intel.com/millicores' but for no card; add gpu.intel.com/i915",
            pods=(gpu_pod(node=None, i915=0, millicores=5),),
        ),
        case(
            "unknown-annotation",
            "warning",
            "annotation 'gas-same-gpus' is not known and has no effect; did you mean gas-same-gpu?",
            pods=(gpu_pod(node=None, annotations={"gas-same-gpus": "a"}),),
        ),
        case(
            "nodes-are-not-scored",
            "warning",
            "annotation gas-node-score has no effect, because the extender runs without --node-score",
            pods=(
                gpu_pod(node=None, annotations={"gas-node-score": "best-fit"}),
                program_pod("gas-0", "gas:1", "gas-extender", "--cert=/tls.crt"),
            ),
        ),
        case(
            "a-list-that-the-extender-does-not-obey",
            "warning",
            "annotation gas-allow has no effect, because the extender runs without --enableAllowlist",
            pods=(extender_pod(), gpu_pod(node=None, annotations={"gas-allow": "card0"})),
        ),
        case(
            "a-list-that-no-node-obeys",
            "warning",
            "no node of the cluster could run the pod now, even without other pods: no card in the allow list",
            pods=(extender_pod("--enableAllowlist"), gpu_pod(node=None, annotations={"gas-allow": "card9"})),
        ),
        case(
            "no-node-could-hold-it",
            "warning",
            "no node of the cluster could run the pod now, even without other pods: container 'main' asks for 9 cards",
            pods=(gpu_pod(node=None, i915=9),),
        ),
        case(
            "wrong-scheduler",
            "problem",
            "default-scheduler",
            pods=(gpu_pod(node=None, spec={"schedulerName": "other"}),),
        ),
        fine("written-and-believed", pods=(gpu_pod(cards="card1"),)),
        fine("ended", pods=(gpu_pod(phase="Failed"),)),
        fine(
            "refused-for-what-is-not-looked-at",
            "waits: fits on 1 of 1 nodes; the last attempt of kube-scheduler failed: 0/1 nodes: no claim",
            pods=(gpu_pod(node=None, message="0/1 nodes: no claim"),),
        ),
        fine(
            "waits-for-room-in-the-words-of-why",
            "waits: no card has 600 millicores free; nearest: gpu-1 card0 with 400 millicores",
            pods=(
                *(gpu_pod(f"on-{card}", cards=card, millicores=600) for card in ("card0", "card1")),
                gpu_pod("waits", node=None, millicores=600, message="0/1 nodes are available: 1 no card has"),
            ),
        ),
        fine("no-gpu", pods=(seen_pod({"name": "no-gpu"}),)),
        fine("of-other-nodes", nodes=(seen_node(), seen_node("gpu-2")), pods=(gpu_pod(),), only_node="gpu-2"),
    ],
)
def test_pods(changes: dict[str, Any], level: str, words: str) -> None:
    assert_case("pods", changes, level, words)


@pytest.mark.parametrize("of", [{"node": "gpu-1"}, {"node": None, "i915": 9}])
def test_each_of_many_pods_is_reported(of: dict[str, Any]) -> None:
    pods = tuple(gpu_pod(f"a-{number}", **of) for number in range(50))
    assert len(faults("pods", pods=pods)) == 50


@pytest.mark.parametrize(
    CASE,
    [
        case("not-asked", "unknown", "would fit on 1 of 1 nodes", calls=()),
        case("refused-though-there-is-room", "problem", "1 have room", calls=(call(reply=REFUSED),)),
        case(
            "all-cards-are-taken",
            "warning",
            "no node has room",
            calls=(call(reply=REFUSED),),
            nodes=(seen_node(resources={"i915": "2"}),),
            pods=(gpu_pod(cards="card0", millicores=0), gpu_pod("b", cards="card1", millicores=0)),
        ),
        fine("placed"),
        fine("not-wanted", dry_pod=False, calls=()),
        fine("no-cards-to-ask-about", nodes=(seen_node(resources={}),), calls=()),
    ],
)
def test_the_dry_pod(changes: dict[str, Any], level: str, words: str) -> None:
    assert_case("dry-pod", changes, level, words)


def test_pods_of_the_other_vocabulary_are_booked() -> None:
    asked = {"name": "main", "resources": {"requests": {"aliyun.com/gpu-mem": "900"}}}
    pods = [
        seen_pod(asked, name=name, node="gpu-1", annotations={"ALIYUN_COM_GPU_MEM_IDX": card})
        for name, card in (("a", "0"), ("b", "0"), ("on-card1", "1"))
    ]
    found = findings("pods", pods=(extender_pod("--vocabularies=intel,aliyun"), *pods), nodes=(shared_node(),))
    (fault,) = worst(found)
    assert (fault.where, fault.message) == ("card0 of node gpu-1", "pods hold more than the card has")
    assert [step.split("#")[0].split()[-1] for step in fault.fix] == ["a", "b"]
    assert worst(findings("pods", pods=(extender_pod(), *pods), nodes=(shared_node(),))) == []


@pytest.mark.parametrize(
    ("kind", "note"), [("Job", "Job/train creates a new one"), ("", "and create it again: it has no owner")]
)
def test_who_creates_a_deleted_pod_again_is_named(kind: str, note: str) -> None:
    pod = gpu_pod()
    owners = [Owner(kind=kind, name="train", controller=True)] if kind else None
    (fault,) = worst(findings("pods", pods=(replace(pod, metadata=replace(pod.metadata, owner_references=owners)),)))
    assert fault.fix == (f"kubectl --namespace=default delete pod a   # {note}",)


@pytest.mark.parametrize("flags", [["--vocabularies=klingon"], ["--vocabularies=aliyun", "--aliyun-unit=GB"]])
def test_flags_that_the_extender_refuses_count_as_the_default(flags: list[str]) -> None:
    assert worst(findings("pods", pods=(extender_pod(*flags), gpu_pod(cards="card0")))) == []
