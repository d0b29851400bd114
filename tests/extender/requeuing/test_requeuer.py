"""Refused pods are requeued when cards become free: one patch for many releases, and none is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from itertools import count
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from gas.cluster.errors import ApiRefused, ApiUnavailable, Forbidden
from gas.extender.decider import Decider
from gas.extender.decisions import PodRefusal
from gas.extender.hooks import Change
from gas.extender.requeuing.part import WAKES
from gas.extender.requeuing.requeuer import Requeuer
from gas.extender.wire import FilterArgs
from gas.values.errors import GasError
from gas.values.timing import Timing
from tests.background import eventually, in_background, turns
from tests.builders import container, node, pod
from tests.extender.decider import OPTIONS

NEVER = 3600.0


class Requeuing:
    """A requeuer, a pod that was refused, and node patches whose outcome a test chooses.

    patched   the nodes of the patches, in order
    outcomes  of a node's patch, True if not named
    acts      whether this replica decides
    """

    def __init__(self, *, pause: float = 0.0, retry_pause: float = 0.0, now: float = 0.0) -> None:
        self.patched: list[str] = []
        self.annotations: list[Mapping[str, str]] = []
        self.outcomes: dict[str, bool | GasError] = {}
        self.acts = True
        self.go = asyncio.Event()
        self.go.set()
        self.registry = CollectorRegistry()
        ticks = count(step=0.011)  # so long takes each node of a filter, which gives others their turn in between
        self.decider = Decider(OPTIONS, clock=lambda: next(ticks))
        self.refuse_a_pod()
        self.requeuer = Requeuer(
            self.decider,
            WAKES.counter(self.registry),
            patch_node=self._patch,
            acts=lambda: self.acts,
            pause=pause,
            retry_pause=retry_pause,
            timing=Timing(nanoseconds=lambda: int(now * 1e9)),
        )

    def refuse_a_pod(self, *, is_final: bool = False) -> None:
        self.decider.pods.changed(pod(container(i915=1), uid="u1"))
        self.decider.refusals["u1"] = PodRefusal("default/pod", 0.0, "no-room", {}, {}, is_final=is_final)

    async def _patch(self, node: str, annotations: Mapping[str, str]) -> bool:
        self.patched.append(node)
        self.annotations.append(annotations)
        await self.go.wait()
        outcome = self.outcomes.get(node, True)
        if isinstance(outcome, GasError):
            raise outcome
        return outcome

    def patches(self) -> float | None:
        return self.registry.get_sample_value("gas_extender_wakes_total")


async def test_a_release_patches_its_node() -> None:
    requeuing = Requeuing()
    async with in_background(requeuing.requeuer.run()):
        requeuing.requeuer.node_changed("n1", Change.FREED)
        await eventually(lambda: requeuing.patches() == 1)
        await turns()
    assert requeuing.patched == ["n1"]
    (annotations,) = requeuing.annotations
    assert annotations["gas-released"].isdigit()


def unseen(requeuing: Requeuing, **fields: Any) -> None:
    """Let the watch not have shown the refused pod as one that waits."""
    requeuing.decider.pods.waiting.clear()
    if fields:
        requeuing.decider.pods.changed(pod(container(i915=1), uid="u1", **fields))


@pytest.mark.parametrize(
    ("now", "prepare", "patched"),
    [
        pytest.param(0.0, lambda requeuing: None, ["n1"], id="a-pod-that-waits"),
        pytest.param(1.0, unseen, ["n1"], id="one-that-the-watch-has-not-shown"),
        pytest.param(299.0, unseen, ["n1"], id="the-same-before-kube-scheduler-tries-again-by-itself"),
        pytest.param(301.0, unseen, [], id="the-same-after-that"),
        pytest.param(0.0, lambda requeuing: unseen(requeuing, node="n1"), [], id="one-that-is-first-seen-bound"),
        pytest.param(
            0.0, lambda requeuing: requeuing.refuse_a_pod(is_final=True), [], id="one-that-no-change-can-help"
        ),
    ],
)
async def test_the_refused_pods_that_are_requeued(
    now: float, prepare: Callable[[Requeuing], None], patched: list[str]
) -> None:
    requeuing = Requeuing(now=now)
    prepare(requeuing)
    async with in_background(requeuing.requeuer.run()):
        await turns()
        assert not requeuing.patched, "nothing was freed yet"
        requeuing.requeuer.node_changed("n1", Change.FREED)
        await turns()
    assert requeuing.patched == patched


async def test_when_no_refused_pod_waits_nothing_is_patched() -> None:
    requeuing = Requeuing()
    requeuing.decider.refusals.pop("u1")
    async with in_background(requeuing.requeuer.run()):
        requeuing.requeuer.node_changed("n1", Change.FREED)
        await turns()
        requeuing.refuse_a_pod()
        requeuing.requeuer.node_changed("n2", Change.FREED)
        await eventually(lambda: requeuing.patched)
    assert requeuing.patched == ["n2"]


async def test_cards_that_become_free_during_a_filter_requeue_its_pod() -> None:
    requeuing = Requeuing()
    requeuing.decider.refusals.pop("u1")
    names = [f"n{count}" for count in range(1, 4)]
    for cards, name in enumerate(names, 1):  # all different, so that each is looked at
        requeuing.decider.nodes.changed(node(name, cards=cards, i915=cards))
    args = FilterArgs(pod=pod(container(i915=9), uid="u1"), node_names=names, nodes=None)
    asked = requeuing.decider.filter(args, now=0.0)
    async with in_background(requeuing.requeuer.run()):
        next(asked)
        requeuing.requeuer.node_changed("n1", Change.FREED)
        await eventually(lambda: requeuing.patched)
        for _ in asked:
            pass
        requeuing.decider.refusals.pop("u1")
        requeuing.requeuer.node_changed("n2", Change.FREED)
        await turns()
    assert requeuing.patched == ["n1"]


async def test_a_replica_that_does_not_decide_patches_nothing_and_requeues_all_pods_once_it_does() -> None:
    """Pods that wait at that moment may have been refused by the replica that led before."""
    requeuing = Requeuing(pause=NEVER)
    requeuing.decider.refusals.pop("u1")
    requeuing.decider.nodes.changed(node("n1"))
    requeuing.acts = False
    async with in_background(requeuing.requeuer.run()):
        requeuing.requeuer.node_changed("n1", Change.FREED)
        await turns()
        assert not requeuing.patched
        requeuing.acts = True
        requeuing.requeuer.requeue_all()
        await eventually(lambda: requeuing.patched == ["n1"])


async def test_many_releases_are_one_patch() -> None:
    requeuing = Requeuing(pause=NEVER)
    async with in_background(requeuing.requeuer.run()):
        for number in range(100):
            requeuing.requeuer._freed.add(f"n{number}")
        await eventually(lambda: requeuing.patches() == 1)
        requeuing.requeuer.node_changed("n1", Change.FREED)
        await turns()
    assert requeuing.patched == ["n99"]


async def test_a_release_during_a_patch_is_not_lost() -> None:
    requeuing = Requeuing()
    requeuing.go.clear()
    async with in_background(requeuing.requeuer.run()):
        requeuing.requeuer.node_changed("n1", Change.FREED)
        await eventually(lambda: requeuing.patched == ["n1"])
        requeuing.requeuer.node_changed("n1", Change.FREED)
        requeuing.go.set()
        await eventually(lambda: requeuing.patches() == 2)
    assert requeuing.patched == ["n1", "n1"]


@pytest.mark.parametrize(
    "outcome",
    [
        pytest.param(False, id="gone"),
        pytest.param(ApiRefused(422, "Invalid", "no"), id="refused"),
        pytest.param(Forbidden("Forbidden", "no"), id="forbidden"),
    ],
)
async def test_when_one_node_cannot_be_patched_the_next_one_is(outcome: bool | GasError) -> None:
    requeuing = Requeuing()
    requeuing.outcomes = {"n2": outcome}
    async with in_background(requeuing.requeuer.run()):
        requeuing.requeuer.node_changed("n1", Change.FREED)
        requeuing.requeuer.node_changed("n2", Change.FREED)
        await eventually(lambda: requeuing.patches() == 1)
    assert requeuing.patched == ["n2", "n1"]


async def test_when_all_nodes_are_gone_the_patch_is_given_up() -> None:
    requeuing = Requeuing()
    requeuing.outcomes = {"n1": False}
    async with in_background(requeuing.requeuer.run()):
        requeuing.requeuer.node_changed("n1", Change.FREED)
        await eventually(lambda: requeuing.patched)
        await turns()
        assert requeuing.patched == ["n1"]
        requeuing.requeuer.node_changed("n2", Change.FREED)
        await eventually(lambda: requeuing.patches() == 1)


async def test_while_the_api_server_is_away_the_patch_is_tried_again() -> None:
    requeuing = Requeuing(pause=NEVER)
    requeuing.outcomes = {"n1": ApiUnavailable("away"), "n2": ApiUnavailable("away")}
    async with in_background(requeuing.requeuer.run()):
        requeuing.requeuer.node_changed("n1", Change.FREED)
        requeuing.requeuer.node_changed("n2", Change.FREED)
        await eventually(lambda: len(requeuing.patched) > 3)
        assert set(requeuing.patched) == {"n2"}, "one try is enough to know"
        requeuing.outcomes.clear()
        await eventually(lambda: requeuing.patches() == 1)


async def test_while_the_api_server_is_away_there_is_a_pause_between_tries() -> None:
    requeuing = Requeuing(retry_pause=NEVER)
    requeuing.outcomes = {"n1": ApiUnavailable("away")}
    async with in_background(requeuing.requeuer.run()):
        requeuing.requeuer.node_changed("n1", Change.FREED)
        await eventually(lambda: requeuing.patched)
        requeuing.requeuer.node_changed("n1", Change.FREED)
        await turns()
    assert requeuing.patched == ["n1"]
