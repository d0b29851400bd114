"""The fragmentation benchmark: the replayed scheduler, and the goals that its figures are compared with."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest

from benchmarks.fragmentation import (
    FGD,
    GAS,
    GAS_GPU_PODS,
    POLICIES,
    Cluster,
    Others,
    results_of,
    through_extender,
)
from benchmarks.replay import Curve, Fgd, replay
from benchmarks.results import Figure
from benchmarks.scheduler_replay import Outcomes, scaled
from benchmarks.traces import Run, Trace, TraceNode, TracePod, generated_trace, run_of
from gas.objects.stored import Condition, HostPod, HostPodSpec, HostPodStatus, ObjectMeta

NODES = [
    TraceNode("n0", 100_000, 100_000, 8, "large"),
    TraceNode("n1", 50_000, 50_000, 2, "small"),
    TraceNode("n2", 50_000, 50_000, 2, "small"),
]
RANKS = {"n-00000": "n2", "n-00001": "n0", "n-00002": "n1"}
CPU_ONLY = TracePod(10_000, 10_000, 0, 0)


def cluster() -> Cluster:
    return Cluster(Run(Trace("t", NODES, [CPU_ONLY]), 1, [CPU_ONLY], [1, 2, 0]))


def test_nodes_are_named_by_their_rank() -> None:
    assert {name: node.name for name, node in cluster().nodes.items()} == RANKS


@pytest.mark.parametrize(
    ("pod", "expected"),
    [
        pytest.param(CPU_ONLY, ["n-00000", "n-00001", "n-00002"], id="all"),
        pytest.param(TracePod(60_000, 1, 0, 0), ["n-00001"], id="cpu"),
        pytest.param(TracePod(1, 60_000, 0, 0), ["n-00001"], id="memory"),
        pytest.param(TracePod(1, 1, 2, 1000), ["n-00001", "n-00002"], id="cards"),
        pytest.param(TracePod(1, 1, 0, 0, frozenset({"small"})), ["n-00000", "n-00002"], id="model"),
    ],
)
def test_the_scheduler_asks_about_nodes_with_enough_in_sum(pod: TracePod, expected: list[str]) -> None:
    there = cluster()
    there.take(TracePod(1, 1, 1, 500), "n-00000")
    assert there.with_room(pod) == expected


@pytest.mark.parametrize(
    ("others", "expected"),
    [
        pytest.param(Others.LEAST_ALLOCATED, {"n-00001"}, id="largest-part-left"),
        pytest.param(Others.MOST_ALLOCATED, {"n-00000", "n-00002"}, id="smallest-part-left"),
        pytest.param(Others.RANDOM, set(RANKS), id="any"),
    ],
)
def test_pods_without_gpus_are_placed_as_is_asked_for(others: Others, expected: set[str]) -> None:
    there = cluster()
    assert {there.choose(CPU_ONLY, list(RANKS), others) for _ in range(50)} == expected


def curve(percent: float) -> Curve:
    """Return a curve of 100 pods of a hundredth of the GPUs, of which so many are placed."""
    found = Curve(100_000)
    for number in range(100):
        found.arrived(TracePod(1, 1, 1, 1000), placed=number < percent)
    return found


@pytest.mark.parametrize(
    ("trace", "others", "goals"),
    [
        pytest.param("default", Others.RANDOM, {GAS: "≥ 95.9 % met", GAS_GPU_PODS: "≥ 95.5 % MISSED"}, id="published"),
        pytest.param("default", Others.MOST_ALLOCATED, {GAS: "≥ 95.9 % met"}, id="not-at-random"),
        pytest.param("mine", Others.RANDOM, {GAS: "≥ 1 met"}, id="any-other"),
    ],
)
def test_every_trace_has_its_goals(trace: str, others: Others, goals: Mapping[str, str]) -> None:
    curves = {policy: curve(95) for policy in POLICIES} | {GAS: curve(97)}
    results = results_of(Trace(trace, NODES, [CPU_ONLY]), [curves, curves], others)
    shown = {each.what: each for each in results.figures}
    assert {what: figure.cells()[-1] for what, figure in shown.items() if figure.goal} == goals
    assert set(shown) == set(POLICIES)


def test_figures_are_means_with_the_lowest_and_the_highest_order() -> None:
    runs = [{policy: curve(value) for policy in POLICIES} for value in (90, 96)]
    results = results_of(Trace("mine", NODES, [CPU_ONLY]), runs, Others.RANDOM)
    first: Figure = results.figures[0]
    assert (first.what, first.ours, first.spread) == (GAS, 93, (90, 96))
    (fgd, *_) = [figure for figure in results.figures if figure.what.startswith(FGD)]
    assert fgd.other is None
    assert list(results.plots) == ["fragmentation-mine"]


def test_more_cards_are_given_out_than_by_fgd() -> None:
    run = run_of(generated_trace(), 42)
    ours = through_extender(run, others=None)
    assert ours.at(100) > replay(run, Fgd(run.trace)).at(100) + 0.5
    assert ours.at(130) > replay(run, Fgd(run.trace)).at(130) + 0.5


@pytest.mark.parametrize("others", [None, *Others])
def test_pods_that_fit_on_no_card_are_dropped(others: Others | None) -> None:
    """Both halves of the first node's sum are free, but on no single card."""
    node = [TraceNode("n0", 100_000, 100_000, 2, "x")]
    pods = [TracePod(1000, 1, 1, 700), TracePod(1000, 1, 1, 700), CPU_ONLY, TracePod(1000, 1, 1, 600)]
    found = through_extender(Run(Trace("t", node, pods), 1, pods, [0]), others=others)
    assert found.at(130) == pytest.approx(70)


def test_a_trace_is_cut_down_to_the_same_mix() -> None:
    trace = generated_trace()
    small = scaled(trace, 70)
    assert len(small.nodes) == 70
    assert set(small.nodes) < set(trace.nodes)
    assert list(small.nodes) == sorted(small.nodes)
    asked = [sum(pod.gpu for pod in each.pods) / each.capacity for each in (trace, small)]
    assert asked[0] == pytest.approx(asked[1], abs=0.1)
    assert scaled(trace, 140) is trace


def host_pod(name: str, *, node: str | None = None, reason: str | None = None) -> HostPod:
    conditions = [Condition(type="PodScheduled", status="False", reason=reason)] if reason else []
    return HostPod(ObjectMeta(name=name), HostPodSpec(node_name=node), HostPodStatus(conditions=conditions))


async def test_a_pod_is_placed_or_has_no_room_once_kube_scheduler_says_so() -> None:
    outcomes = Outcomes()
    outcomes.listed([host_pod("placed"), host_pod("no-room")])
    outcomes.changed(host_pod("placed", reason="SchedulerError"))
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(outcomes.of("placed"), 0.01)
    waiting = asyncio.create_task(outcomes.of("placed"))
    await asyncio.sleep(0)
    outcomes.changed(host_pod("no-room", reason="Unschedulable"))
    outcomes.changed(host_pod("placed", node="n1"))
    assert await waiting
    assert not await outcomes.of("no-room")
