"""Kubelets that give devices by the product's plugin."""

from __future__ import annotations

from simulation.plan import Plan, Step
from simulation.run import Outcome, run_plan

ONE = {"i915": 1, "millicores": 100}


def play(*steps: Step) -> Outcome:
    return run_plan(Plan(1, ((0, 1),), webhooks=False, steps=steps, active=20.0, plugins=True), keep_trace=True)


def phases(outcome: Outcome, pod: str) -> list[str]:
    lines = (line.split() for line in outcome.trace if f" pods/default/{pod} " in line)
    return [words[5] for words in lines]


def test_every_container_gets_its_cards() -> None:
    containers = [ONE, {"i915": 2, "millicores": 200}]
    outcome = play(
        Step(1.0, "create_pod", ("p0", containers, [ONE], None)), Step(1.0, "create_pod", ("p1", [ONE], [], None))
    )
    assert outcome.law == ""
    assert phases(outcome, "p0")[-1] == phases(outcome, "p1")[-1] == "Running"
    # A preference and Allocate for each container, but no preference for the one that gets the init container's device.
    assert outcome.figures["calls of kubelets"] == 7


def test_kubelet_fails_pods_while_the_plugin_is_away() -> None:
    away = Step(1.0, "restart_plugin", ("n0", 8.0))
    outcome = play(
        away, Step(2.0, "create_pod", ("p0", [ONE], [], None)), Step(15.0, "create_pod", ("p1", [ONE], [], None))
    )
    assert (phases(outcome, "p0")[-1], phases(outcome, "p1")[-1]) == ("Failed", "Running")


def test_containers_keep_their_devices_when_kubelet_restarts() -> None:
    outcome = play(Step(1.0, "create_pod", ("p0", [ONE], [], None)), Step(8.0, "restart_kubelet", ("n0", 1.0)))
    assert phases(outcome, "p0")[-1] == "Running"
    assert outcome.figures["calls of kubelets"] == 2
