"""Plans that make room for a pod: valid at every step, with the fewest moves."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gas.inspection.cluster import Cluster
from gas.inspection.defrag import MovePlan, plan_moves
from gas.inspection.objects import InspectedPod
from tests.inspection.brute import Brute
from tests.inspection.conftest import Kubectl
from tests.inspection.example_cluster import (
    GB,
    cluster_of,
    decoded_pod,
    example_cluster,
    example_nodes,
    example_pods,
    gpu_node_json,
    record,
    running,
    waiting,
)
from tests.inspection.steps import follow_moves, passing

Objects = list[dict[str, Any]]


def follow(cluster: Cluster, plan: MovePlan, pod: InspectedPod) -> None:
    """Follow a plan, then place the pod for which it was made."""
    follow_moves(cluster, plan.moves)
    assert plan.node in passing(cluster, pod)
    assert cluster.book(pod, plan.node) == plan.cards


SIZE = st.integers(1, 6)


@st.composite
def clusters(draw: st.DrawFn, *, nodes: int = 3, cards: int = 2, pods: int = 5) -> tuple[Objects, Objects]:
    """Draw nodes, and pods that run on them and fit, some limited to a zone or with two cards."""
    built, placed = [], []
    count = draw(st.integers(1, nodes))
    for at in range(count):
        records = [record(card) for card in range(draw(st.integers(1, cards)))]
        memory, cpu = draw(st.integers(4, 9)) * GB, draw(st.sampled_from(["3", "8"]))
        built.append(gpu_node_json(f"n-{at}", *records, memory=memory, labels={"zone": "ab"[at % 2]}, cpu=cpu))
    cluster = cluster_of(built, [])
    for at in range(draw(st.integers(0, pods))):
        asked = draw(asked_pods(f"p-{at}"))
        pod = decoded_pod(asked)
        free = [name for name, rule in cluster.eligible(pod).items() if not rule]
        passing = cluster.filter(pod, free).passing
        if not passing:
            continue
        name = draw(st.sampled_from(sorted(passing)))
        annotations = {"gas-ts": "1", "gas-container-cards": ",".join(cluster.book(pod, name))}
        placed.append(
            {
                **asked,
                "metadata": {**asked["metadata"], "annotations": annotations},
                "spec": {**asked["spec"], "nodeName": name},
                "status": {"phase": "Running"},
            }
        )
    gone = draw(st.sets(st.integers(0, max(len(placed) - 1, 0)), max_size=2))
    return built, [pod for at, pod in enumerate(placed) if at not in gone]


@st.composite
def asked_pods(draw: st.DrawFn, name: str) -> dict[str, Any]:
    """Draw a pod that waits, of one card or two, some limited to a zone."""
    count = draw(st.sampled_from([1, 1, 1, 2]))
    millicores = draw(st.sampled_from([100, 100, 500, 900]))
    memory, cpu = draw(SIZE) * GB * count, draw(st.sampled_from(["100m", "100m", "2"]))
    pod = waiting(name, i915=count, millicores=millicores * count, memory_max=memory, cpu=cpu)
    if draw(st.integers(0, 4)) == 0:
        pod["spec"]["nodeSelector"] = {"zone": draw(st.sampled_from("ab"))}
    return pod


@settings(max_examples=60)
@given(st.data())
def test_a_plan_has_the_fewest_moves_and_is_valid_at_every_step(data: st.DataObject) -> None:
    nodes, pods = data.draw(clusters())
    asked = data.draw(asked_pods("asked"))
    requests = asked["spec"]["containers"][0]["resources"]["requests"]
    requests["gpu.intel.com/memory.max"] = data.draw(st.integers(3, 9)) * GB * requests["gpu.intel.com/i915"]
    cluster, pod = cluster_of(nodes, [*pods, asked]), decoded_pod(asked)
    fewest = Brute(cluster, pod).fewest(3)
    plan = plan_moves(cluster, pod, most_moves=3)
    if fewest is None:
        assert plan.node == ""
    else:
        assert (plan.node != "", len(plan.moves)) == (True, fewest)
        follow(cluster, plan, pod)


def shape(**requests: Any) -> InspectedPod:
    return decoded_pod(waiting("asked", **requests))


def plan_of(nodes: Objects, pods: Objects, pod: InspectedPod) -> MovePlan:
    cluster = cluster_of(nodes, pods)
    plan = plan_moves(cluster, pod)
    if plan.node:
        follow(cluster, plan, pod)
    return plan


def steps(plan: MovePlan) -> list[tuple[str, str, str]]:
    return [(move.pod, move.node, move.target) for move in plan.moves]


def test_a_pod_that_fits_needs_no_move() -> None:
    plan = plan_of(example_nodes(), example_pods(), shape(i915=1, memory_max=GB))
    assert (plan.moves, plan.node, plan.is_complete) == ((), "gpu-1", True)


def test_the_one_pod_in_the_way_moves() -> None:
    plan = plan_of(example_nodes(), example_pods(), shape(i915=1, memory_max=14 * GB))
    assert steps(plan) == [("default/train-1", "gpu-1", "gpu-2")]
    assert (plan.node, plan.cards, plan.is_complete) == ("gpu-1", ("card1",), True)


def test_other_pods_make_room_first_where_a_pod_in_the_way_has_no_place() -> None:
    nodes = [gpu_node_json(name, record(0), memory=memory * GB) for name, memory in (("a", 16), ("b", 8), ("c", 4))]
    pods = [
        running("in-the-way", "a", "card0", i915=1, memory_max=8 * GB),
        running("small", "b", "card0", i915=1, memory_max=4 * GB),
    ]
    plan = plan_of(nodes, pods, shape(i915=1, memory_max=16 * GB))
    assert steps(plan) == [("default/small", "b", "c"), ("default/in-the-way", "a", "b")]


def test_a_pod_may_move_to_another_card_of_its_node() -> None:
    nodes = [gpu_node_json("n", record(0), record(1), record(2))]
    pods = [
        running("a", "n", "card1", i915=1, memory_max=8 * GB),
        running("b", "n", "card2", i915=1, memory_max=8 * GB),
    ]
    plan = plan_of(nodes, pods, shape(i915=2, memory_max=32 * GB))
    assert steps(plan) == [("default/a", "n", "n"), ("default/b", "n", "n")][: len(plan.moves)]
    assert plan.node == "n"


def owned_by(kind: str, *, controller: bool = True) -> dict[str, Any]:
    return {"ownerReferences": [{"kind": kind, "controller": controller}]}


@pytest.mark.parametrize(
    ("metadata", "moves"),
    [
        pytest.param(owned_by("ReplicaSet"), [True], id="replica-set"),
        pytest.param(owned_by("DaemonSet"), [], id="daemon-set"),
        pytest.param(owned_by("Node"), [], id="static-pod"),
        pytest.param(owned_by("DaemonSet", controller=False), [False], id="not-its-controller"),
        pytest.param({"deletionTimestamp": "2026-01-01T00:00:00Z"}, [], id="it-ends-already"),
    ],
)
def test_pods_that_would_start_on_the_same_node_again_or_end_stay(metadata: dict[str, Any], moves: list[bool]) -> None:
    nodes = [gpu_node_json("a", record(0)), gpu_node_json("b", record(0), memory=8 * GB)]
    pod = running("p", "a", "card0", i915=1, memory_max=8 * GB)
    pod["metadata"] |= metadata
    plan = plan_of(nodes, [pod], shape(i915=1, memory_max=16 * GB))
    assert [move.is_recreated for move in plan.moves] == moves


def test_a_place_must_have_free_cpu_as_well() -> None:
    sizes = (("a", 16, "8"), ("b", 8, "1"), ("c", 8, "4"))
    nodes = [gpu_node_json(name, record(0), memory=memory * GB, cpu=cpu) for name, memory, cpu in sizes]
    pod = running("p", "a", "card0", i915=1, memory_max=8 * GB, cpu="2")
    assert steps(plan_of(nodes, [pod], shape(i915=1, memory_max=16 * GB))) == [("default/p", "a", "c")]


def test_the_search_ends_when_time_is_up_and_says_so() -> None:
    plan = plan_moves(example_cluster(), shape(i915=1, memory_max=14 * GB), lambda: True)
    assert (plan.node, plan.is_complete) == ("", False)


def test_a_pod_that_no_node_can_hold_gets_no_plan() -> None:
    plan = plan_of(example_nodes(), example_pods(), shape(i915=1, memory_max=17 * GB))
    assert (plan.node, plan.is_complete) == ("", True)


async def test_the_command_shows_the_moves_in_their_order(kubectl: Kubectl) -> None:
    result = await kubectl("defrag", "pod/big", "-o", "json")
    assert result.code == 0
    move, place = json.loads(result.out)
    assert (move["pod"], move["from"], move["to"], move["new-cards"]) == (
        "default/train-1",
        "gpu-1",
        "gpu-2",
        ["card0"],
    )
    assert (place["action"], place["pod"], place["to"]) == ("place", "default/big", "gpu-1")
    assert "nothing was evicted" in result.err
    assert "pod default/train-1 has no controller" in result.err


async def test_a_shape_is_a_manifest_a_waiting_pod_or_requests(kubectl: Kubectl, tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(json.dumps({"kind": "Pod", **waiting("big", i915=1, memory_max=14 * GB)}))
    requests = "gpu.intel.com/i915=1,gpu.intel.com/memory.max=14G"
    found = [
        (await kubectl("defrag", each, "-o", "csv")).out
        for each in (str(file), "pod/big", "pod/default/big", requests, requests.replace(",", ", "))
    ]
    assert {each.replace("default/shape", "default/big") for each in found} == {found[0]}
    assert found[0].count("\n") == 3


@pytest.mark.parametrize(
    ("asked", "code", "words"),
    [
        pytest.param(
            "gpu.intel.com/i915=1,gpu.intel.com/memory.max=17G",
            1,
            "no plan of up to 8 moves was found\n",
            id="too-large",
        ),
        pytest.param("pod/none", 1, "expected a pod that asks for GPUs", id="no-pod"),
        pytest.param("pod/train-1", 2, "expected a pod that waits, found one on node 'gpu-1'", id="running-pod"),
        pytest.param(
            "gpu.intel.com/i915=1,gpu.intel.com/memory.mx=14G",
            1,
            "kubectl gas: no node has gpu.intel.com/memory.mx; did you mean gpu.intel.com/memory.max?\n",
            id="misspelt-resource",
        ),
        pytest.param("i915=1", 1, "no node has i915; did you mean gpu.intel.com/i915?\n", id="without-its-prefix"),
        pytest.param("gpu.intel.com/xe=1,cpux=1", 1, "no node has cpux; nodes have", id="two-resources"),
        pytest.param(
            "gpu.intel.com/xe=1",
            1,
            "no node has gpu.intel.com/xe; nodes have 'gpu.intel.com/i915', 'gpu.intel.com/memory.max',"
            " 'gpu.intel.com/millicores'\n",
            id="another-resource",
        ),
        pytest.param("pod/", 2, "expected a pod as pod/NAME or pod/NAMESPACE/NAME, found 'pod/'", id="no-name"),
        pytest.param("pod/a/b/c", 2, "found 'pod/a/b/c'; see kubectl gas defrag --help\n", id="too-many-names"),
        pytest.param("nowhere.yaml", 2, "expected a file, pod/NAME or requests such as", id="no-file"),
        pytest.param("tests", 2, "cannot be read: Is a directory", id="directory"),
        pytest.param("x" * 300, 2, "expected a file, pod/NAME or requests such as", id="too-long-for-a-file"),
        pytest.param("i915=one", 2, "expected different resources with amounts such as", id="no-amount"),
        pytest.param("i915=1,i915=2", 2, "found 'i915=2'", id="twice"),
        pytest.param(
            "tests/inspection/shop.yaml",
            2,
            "expected one object that creates pods, found 'Deployment shop/search'",
            id="several",
        ),
    ],
)
async def test_a_shape_of_no_use_is_refused_in_a_sentence(
    kubectl: Kubectl, monkeypatch: pytest.MonkeyPatch, asked: str, code: int, words: str
) -> None:
    monkeypatch.chdir(Path(__file__).parents[2])
    result = await kubectl("defrag", asked)
    assert (result.code, result.out) == (code, "")
    assert words in result.err
    assert "no plan" not in result.err or "no plan" in words
