"""The replay of a history on a real control plane: its laws and its acts, here without a control plane."""

from __future__ import annotations

from inspect import signature
from typing import Any, cast

import pytest

from sandbox.api.client import ApiClient
from sandbox.api.server import ApiServer
from simulation import objects
from simulation.acts import Acts
from simulation.observed import LawBroken
from simulation.plan import Plan
from simulation.plans import make_plan
from tests.e2e.cluster import Cluster
from tests.e2e.replay import FAULTS, KubeletClient, Replay

WHOLE = {"i915": 1, "millicores": 1000}


@pytest.fixture
def replay() -> Replay:
    replay = Replay(cast(Cluster, None), Plan(1, ((0,),), webhooks=False, steps=()))
    replay.node_becomes(objects.node("n0", (0,)))
    return replay


def bound(name: str, **annotations: str) -> dict[str, Any]:
    metadata = {"uid": name, "namespace": "default", "annotations": annotations}
    pod = objects.pod(name, [WHOLE], [], metadata)
    return {**pod, "spec": pod["spec"] | {"nodeName": "n0"}, "status": {"phase": "Pending"}}


def decided(name: str) -> dict[str, Any]:
    return bound(name, **{objects.CARDS: "card0", "gas-ts": "1"})


def test_a_card_that_two_pods_have_is_found(replay: Replay) -> None:
    replay.seen(None, decided("p0"))
    with pytest.raises(LawBroken, match="capacity: card0 of node n0: 2000 of millicores given"):
        replay.seen(None, decided("p1"))


def test_the_cards_of_a_deleted_pod_are_free(replay: Replay) -> None:
    replay.seen(None, decided("p0"))
    replay.seen(decided("p0"), None)
    replay.seen(None, decided("p1"))


def test_a_pod_without_cards_is_found_unless_another_client_bound_it(replay: Replay) -> None:
    replay.by_hand.add("p0")
    replay.seen(None, bound("p0"))
    with pytest.raises(LawBroken, match="cards written: pod p1 was bound by the extender without cards"):
        replay.seen(None, bound("p1"))


def test_cards_that_another_client_wrote_are_not_a_decision(replay: Replay) -> None:
    replay.by_hand.add("p0")
    replay.seen(None, bound("p0", **{objects.CARDS: "card0"}))
    replay.seen(None, decided("p1"))


@pytest.mark.parametrize("act", sorted(FAULTS | {"create_pod", "delete_pod", "edit_pod", "bind_by_hand"}))
def test_an_act_of_a_replay_is_one_of_the_world_with_the_same_arguments(act: str) -> None:
    plans = (plan for plan in map(make_plan, range(300)) if not plan.features)  # as in the replays
    args = next(step for plan in plans for step in plan.steps if step.act == act).args
    signature(getattr(Acts, act)).bind(None, *args)
    signature(getattr(Replay, act)).bind(None, *args)


def test_a_pod_that_runs_again_after_its_end_is_found(replay: Replay) -> None:
    ended = {**decided("p0"), "status": {"phase": "Succeeded"}}
    replay.seen(decided("p0"), ended)
    with pytest.raises(LawBroken, match="ends: pod p0 had ended, and runs again"):
        replay.seen(ended, decided("p0"))


async def test_a_late_write_of_a_killed_kubelet_lets_no_ended_pod_run_again() -> None:
    path = "/api/v1/namespaces/default/pods/p"

    class Late(KubeletClient):
        """One of its writes is carried out after another kubelet has written the end of the pod."""

        async def exchange(self, method: str, *request: Any) -> tuple[int, bytes]:
            if method == "PATCH":
                await api.patch(f"{path}/status", {"status": {"phase": "Succeeded"}})
            return await super().exchange(method, *request)

    async with ApiServer() as server, ApiClient(server.url) as api, Late(server.url) as late:
        await api.post("/api/v1/namespaces/default/pods", objects.pod("p", [WHOLE], [], {}))
        uid = (await api.get(path))["metadata"]["uid"]
        await late.patch(f"{path}/status", {"metadata": {"uid": uid}, "status": {"phase": "Running"}})
        assert (await api.get(path))["status"]["phase"] == "Succeeded"
