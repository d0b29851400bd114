"""Histories of the whole system, a short run of `make simulate`."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from sandbox.scheduler.scheduler import Scheduler
from simulation import objects
from simulation.acts import Acts
from simulation.laws import Laws
from simulation.plan import Plan, Step
from simulation.plans import make_large_plan, make_plan
from simulation.run import run_plan, run_seed, shorten

ROOT = Path(__file__).parents[2]
SEEDS = range(1, 9)
WITH_SHAREPODS = 8


# contract E9.1, E9.8
@pytest.mark.parametrize("seed", SEEDS)
def test_every_law_holds(seed: int) -> None:
    outcome = run_seed(seed)
    assert outcome.law == "", f"{outcome.sentence}; python -m simulation --seed {seed}"
    assert outcome.figures["bindings with cards"] > 0


def test_every_law_holds_in_a_large_cluster_where_pods_run_already() -> None:
    outcome = run_plan(make_large_plan(1, nodes=120))
    assert outcome.law == "", outcome.sentence
    assert outcome.figures["bindings with cards"] > 4 * 120 + 50


@pytest.mark.parametrize(("hash_seed", "seed"), [("1", 5), ("2", 5), ("1", WITH_SHAREPODS)])
def test_a_seed_gives_the_same_history_in_every_process(hash_seed: str, seed: int) -> None:
    digest = run_seed(seed).digest
    command = [sys.executable, "-m", "simulation", "--seed", str(seed)]
    again = subprocess.run(
        command, cwd=ROOT, env=os.environ | {"PYTHONHASHSEED": hash_seed}, capture_output=True, text=True, check=True
    )
    assert again.stdout == f"seed {seed}: history {digest}\n"


def test_different_seeds_give_different_histories() -> None:
    assert len({run_plan(replace(make_plan(5), seed=seed)).digest for seed in (5, 6)}) == 2


# kube-scheduler asked about the second pod before the extender's watch showed it, and it was forgotten.
@pytest.mark.parametrize("seed", [110, 318])
def test_a_pod_that_replaces_another_one_gets_its_card(seed: int) -> None:
    assert make_plan(seed).scenario == "replaced"
    outcome = run_seed(seed)
    assert outcome.law == "", outcome.sentence


def test_a_sharepod_gets_another_pod_if_no_watch_has_shown_that_the_first_one_came_and_went() -> None:
    steps = (
        Step(2.0, "condition", ({"clients": "extender", "path": "labelSelector", "silent": 1.0}, 4.0)),
        Step(2.1, "break_watches"),
        Step(10.0, "create_sharepod", ("s", 500, 0, {}, None, "Always")),
        Step(12.0, "delete_pod", ("s", True)),
        Step(15.0, "compact"),
    )
    plan = Plan(1, ((0,),), webhooks=False, steps=steps, active=20.0, mixed=True, features=frozenset({"SharePods"}))
    assert run_plan(plan).law == ""


def test_plans_have_every_act_of_the_world() -> None:
    acts = {step.act for seed in range(300) for step in make_plan(seed).steps}
    assert all(callable(getattr(Acts, act)) for act in acts)
    users = {"create_pod", "delete_pod", "touch_pod", "edit_pod", "bind_by_hand", "create_for_others"}
    users |= {"act_at_binding", "swap_at_receipt", "create_share", "create_in_words", "create_copy", "label_node"}
    users |= {"create_sharepod", "delete_sharepod", "evict_pod", "spoil_node", "create_pod_group"}
    extender = {"kill_extender", "kill_now", "stop_extender", "pause_extender", "jump_clock", "delay_watches"}
    extender |= {"repeat_events", "omit_bookmarks"}
    server = {
        "api_outage",
        "forbid",
        "throttle",
        "slow_lists",
        "compact",
        "lose_history",
        "condition",
        "late_writes",
        "late_bindings",
        "slow_reviews",
        "refuse_reviewed",
        "stale_endpoints",
        "isolate",
        "break_watches",
    }
    others = {"restart_kubelet", "restart_plugin", "restart_scheduler", "change_cards", "remove_node", "relabel_node"}
    assert acts == users | extender | server | others


def test_pods_of_every_vocabulary_get_cards() -> None:
    words = [
        {objects.ALIYUN + "gpu-mem": 1000},
        {objects.KOORDINATOR + "gpu.shared": 1, objects.KOORDINATOR + "gpu-memory-ratio": 50},
        {objects.VENDOR: 1},
    ]
    steps = [Step(0.0, "create_in_words", (f"w{index}", [asks], None)) for index, asks in enumerate(words)]
    steps += [
        Step(0.0, "create_pod", ("p0", [{"i915": 1, "tiles": 1}], [], None)),
        Step(0.0, "create_share", ("s0", 500, 0, {}, None)),
    ]
    plan = Plan(seed=1, nodes=((0, 1, 2),), webhooks=False, steps=tuple(steps), active=1.0, mixed=True)
    outcome = run_plan(plan)
    assert outcome.law == ""
    assert outcome.figures["bindings with cards"] == len(steps)


def test_faults_happen() -> None:
    plan = Plan(
        seed=1,
        nodes=((0, 1),),
        webhooks=False,
        steps=(
            Step(1.0, "kill_extender", ("extender-a", 0, True, 1.0)),
            Step(1.0, "pause_extender", ("extender-b", 30.0)),
            Step(40.0, "condition", ({"clients": "extender", "lost": 1.0}, 5.0)),
        ),
    )
    figures = run_plan(plan).figures
    assert figures["kills"] == 1
    assert figures["pauses"] == 1
    assert figures["leader changes"] >= 2
    assert figures["lost responses"] > 0


def test_a_scheduler_that_ends_with_an_exception_ends_the_history(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(_scheduler: Scheduler) -> None:
        raise OverflowError("too large")

    monkeypatch.setattr(Scheduler, "run", fail)
    outcome = run_plan(Plan(seed=1, nodes=((0,),), webhooks=False, steps=()))
    assert outcome.law == "no exception at the top"
    assert outcome.sentence == "scheduler ended: OverflowError('too large')"


def test_a_law_that_ends_with_an_exception_ends_the_history(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_laws: Laws, _binds_now: str) -> None:
        raise KeyError("p0")

    monkeypatch.setattr(Laws, "check_writes", fail)
    outcome = run_plan(Plan(seed=1, nodes=((0,),), webhooks=False, steps=()))
    assert (outcome.law, outcome.sentence) == ("no exception at the top", "a law ended: KeyError('p0')")


def test_a_failing_plan_is_shortened_to_the_steps_that_matter() -> None:
    plan = replace(make_plan(1), steps=tuple(Step(float(at), "relabel_node", ("n0",)) for at in range(30)))

    def fails(tried: Plan) -> bool:
        return {3.0, 17.0} <= {step.at for step in tried.steps}

    assert [step.at for step in shorten(plan, fails).steps] == [3.0, 17.0]
