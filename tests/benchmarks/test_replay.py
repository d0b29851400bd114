"""Traces and the policies that are replayed to compare with: arrivals, fragments, choices."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.replay import BestFit, Curve, Fgd, NodeState, fragments, replay, replay_at_random, target_workload
from benchmarks.traces import DEMAND, Trace, TraceNode, TracePod, generated_trace, read_traces, run_of
from gas.values.errors import GasError

SMALL = Trace(
    "small",
    [TraceNode("a", 16_000, 65_536, 2, "x"), TraceNode("b", 32_000, 65_536, 1, "y")],
    [
        TracePod(4000, 1024, 1, 500),
        TracePod(4000, 1024, 1, 500),
        TracePod(8000, 1024, 1, 1000),
        TracePod(8000, 1024, 0, 0),
    ],
)


def state(*cards: int, cpu: int = 64_000, model: str = "x", rank: int = 0) -> NodeState:
    node = NodeState(cpu=cpu, memory=10**6, cards=len(cards), model=model, rank=rank)
    node.cards = list(cards)
    return node


def test_a_folder_of_traces_is_read(tmp_path: Path) -> None:
    (tmp_path / "my_node_list_gpu_node.csv").write_text(
        "sn,cpu_milli,memory_mib,gpu,model\nn2,96000,1,8,G2\nn1,8000,2,1,T4\n"
    )
    (tmp_path / "my_pod_list_default.csv").write_text(
        "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\np2,1,2,1,460,G2|T4|G2\np1,3,4,0,0,\n"
    )
    (tmp_path / "my_pod_list_multi.csv").write_text("name,cpu_milli,memory_mib,num_gpu,gpu_milli\np1,1,2,8,1000\n")
    default, multi = read_traces(tmp_path)
    assert (default.name, multi.name) == ("default", "multi")
    assert default.nodes == [TraceNode("n1", 8000, 2, 1, "T4"), TraceNode("n2", 96_000, 1, 8, "G2")]
    assert default.pods == [TracePod(3, 4, 0, 0), TracePod(1, 2, 1, 460, frozenset({"G2", "T4"}))]
    assert multi.pods == [TracePod(1, 2, 8, 1000)]
    assert default.capacity == 9000


def test_a_folder_without_nodes_is_refused(tmp_path: Path) -> None:
    with pytest.raises(GasError, match=r"expected one file \*node_list_gpu_node\.csv, found 0"):
        read_traces(tmp_path)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_run_asks_for_a_third_more_than_there_is(seed: int) -> None:
    trace = generated_trace()
    run = run_of(trace, seed)
    asked = sum(pod.gpu for pod in run.pods)
    assert DEMAND * trace.capacity - 8000 < asked <= DEMAND * trace.capacity + 8000
    assert sorted(run.ranks) == list(range(len(trace.nodes)))
    assert sorted(run.pods[: len(trace.pods)]) == sorted(trace.pods), "each pod once before any comes again"
    assert run == run_of(trace, seed)
    assert run.pods != run_of(trace, seed + 10).pods


def test_too_many_pods_are_cut_down() -> None:
    crowded = Trace("crowded", SMALL.nodes, [TracePod(1, 1, 1, 1000)] * 20)
    assert len(run_of(crowded, 1).pods) == 3


def test_fragments_are_what_typical_pods_cannot_use() -> None:
    target = [(0.5, TracePod(4000, 0, 1, 500)), (0.25, TracePod(8000, 0, 2, 1000)), (0.25, TracePod(1000, 0, 0, 0))]
    assert fragments(64_000, "x", [1000, 1000], target) == 0.25 * 2000
    assert fragments(64_000, "x", [1000, 400], target) == 0.5 * 400 + 0.25 * 1400 + 0.25 * 1400
    assert fragments(3000, "x", [1000, 1000], target) == 2000, "no CPU for any of them"
    only = [(1.0, TracePod(1, 0, 1, 500, frozenset({"y"})))]
    assert (fragments(9, "x", [1000], only), fragments(9, "y", [1000], only)) == (1000, 0)


def test_the_target_covers_most_pods() -> None:
    pods = [TracePod(1, 7, 1, 500)] * 96 + [TracePod(2, 7, 1, 100)] * 4
    assert target_workload(Trace("t", [], pods)) == [(1.0, TracePod(1, 0, 1, 500))]


def test_best_fit_takes_the_fullest_node_and_card() -> None:
    pod = TracePod(1000, 1, 1, 300)
    idle, _ = BestFit().rate(pod, state(1000, 1000))
    full, cards = BestFit().rate(pod, state(1000, 300, 400))
    assert full < idle or list(cards) == [1]
    assert list(cards) == [1]
    assert BestFit().rate(pod, state(1000, cpu=500))[0] == float("-inf")


def test_fgd_completes_a_card_rather_than_breaking_another() -> None:
    trace = Trace("t", [], [TracePod(1000, 1, 1, 500), TracePod(1000, 1, 1, 1000)])
    _, cards = Fgd(trace).rate(trace.pods[0], state(1000, 500))
    assert list(cards) == [1]


@pytest.mark.parametrize("policy", ["fgd", "best-fit", "random"])
def test_no_policy_places_what_does_not_fit(policy: str) -> None:
    run = run_of(SMALL, 5)
    chosen = {"fgd": Fgd(SMALL), "best-fit": BestFit()}
    curve = replay_at_random(run) if policy == "random" else replay(run, chosen[policy])
    assert 0 < curve.at(130) <= 100


def test_the_curve_counts_dropped_pods_as_arrived() -> None:
    curve = Curve(1000)
    curve.arrived(TracePod(1, 1, 1, 500), placed=True)
    curve.arrived(TracePod(1, 1, 1, 500), placed=False)
    assert (curve.at(50), curve.at(100), curve.at(130)) == (50, 50, 50)


def test_fgd_beats_best_fit_and_random_on_the_generated_trace() -> None:
    run = run_of(generated_trace(), 42)
    fgd, best, chance = replay(run, Fgd(run.trace)), replay(run, BestFit()), replay_at_random(run)
    assert fgd.at(100) > best.at(100) > chance.at(100) > 80
