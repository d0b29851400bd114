"""The whole extender on an API server: from its start to bound pods, and changes of the leader."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from gas.cluster.events import Events, Involved
from gas.extender import assembly
from gas.extender.readiness import REPORT_PERIOD, NotReady
from gas.ledger.ledger import State
from gas.values.cards import Card
from sandbox.api.failure import ApiFailure
from sandbox.api.kinds import DISRUPTION_BUDGETS, EVENTS, LEASES, NODES, PODS
from sandbox.api.routes import Access, forbidden
from sandbox.api.server import ApiServer
from tests.builders import container, node_json, pod_json
from tests.extender.assembled import add_node, add_pod, bind, extender, passing, pod_now, remove_pod, state
from tests.extender.eventually import eventually

WAKING = "gas-released"


@pytest.fixture
async def server() -> AsyncIterator[ApiServer]:
    async with ApiServer() as server:
        yield server


@pytest.fixture
def posted(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """Return the (object, reason) of each event that is posted from now on, in order."""
    posted: list[tuple[str, str]] = []
    post = Events.post

    def recording(self: Events, involved: Involved, **fields: Any) -> None:
        posted.append((involved.name, fields["reason"]))
        post(self, involved, **fields)

    monkeypatch.setattr(Events, "post", recording)
    return posted


async def test_from_the_start_to_a_bound_pod_that_the_watch_confirms(server: ApiServer, tmp_path: Path) -> None:
    add_node(server)
    async with extender(server, tmp_path) as running:
        pod = add_pod(server, "a")
        assert await passing(running, pod, "n1", "n2") == ["n1"]
        assert await bind(running, pod) == ""
        assert pod_now(server, "a")["spec"]["nodeName"] == "n1"
        assert pod_now(server, "a")["metadata"]["annotations"]["gas-container-cards"] == "card0"
        await eventually(lambda: state(running, pod) is State.HELD)
        remove_pod(server, "a")
        await eventually(lambda: state(running, pod) is None)


# contract E9.7
async def test_the_ledger_is_complete_before_the_first_decision(server: ApiServer, tmp_path: Path) -> None:
    add_node(server)
    held = asyncio.Event()

    async def slow(access: Access) -> ApiFailure | None:
        if access.kind is PODS and access.verb == "list":
            await held.wait()
        return None

    server.settings.intercept = slow
    taken = [
        add_pod(server, name, node="n1", annotations={"gas-container-cards": cards})
        for name, cards in (("a", "card0"), ("b", "card1"))
    ]
    async with extender(server, tmp_path, ready=False) as running:
        body = json.dumps({"Pod": pod_json(container(i915=1)), "NodeNames": ["n1"]}).encode()
        await eventually(running.node_watch.synced.is_set)
        with pytest.raises(NotReady, match="the first list of pods is still being read"):
            await running.filter(body)
        held.set()
        await eventually(running.readiness.may_act)
        assert all(state(running, pod) is State.HELD for pod in taken)
        assert await passing(running, pod_json(container(i915=1)), "n1") == []


async def test_a_refused_pod_is_requeued_once_cards_are_free(server: ApiServer, tmp_path: Path) -> None:
    add_node(server, cards=1)
    async with extender(server, tmp_path) as running:
        first, second = add_pod(server, "first"), add_pod(server, "second")
        await eventually(lambda: len(running.decider.pods.waiting) == 2)
        assert await passing(running, first, "n1") == ["n1"]
        assert await bind(running, first) == ""
        await eventually(lambda: state(running, first) is State.HELD)
        assert await passing(running, second, "n1") == []
        released = node_annotation(server, "n1")
        remove_pod(server, "first")
        await eventually(lambda: node_annotation(server, "n1") != released)
        assert await passing(running, second, "n1") == ["n1"]


async def test_a_refused_pod_is_requeued_when_its_node_changes(
    server: ApiServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    label = "telemetry.aware.scheduling.p/gas-disable-card0"
    add_node(server, cards=1, labels={label: "x"})
    async with extender(server, tmp_path) as running:
        await eventually(lambda: "ready" in caplog.messages)
        waiting = add_pod(server, "waiting")
        await eventually(lambda: running.decider.pods.waiting)
        assert await passing(running, waiting, "n1") == []
        patch = json.dumps({"metadata": {"labels": {label: None}}}).encode()
        server.api.patch(NODES, None, "n1", ("application/merge-patch+json", patch))
        await eventually(lambda: node_annotation(server, "n1"))
        assert await passing(running, waiting, "n1") == ["n1"]


UNKNOWN_RESOURCE = (
    "order of cards least-used=milicores: no card of the cluster has the resource milicores, so cards are tried in"
    " natural order; expected one of i915, millicores"
)


@pytest.mark.parametrize(
    ("flag", "warnings"),
    [
        pytest.param("--card-order=least-used=milicores", [UNKNOWN_RESOURCE], id="misspelt"),
        pytest.param("--balancedResource=milicores", [UNKNOWN_RESOURCE], id="by-the-older-flag"),
        pytest.param("--card-order=best-fit=millicores", [], id="known"),
        pytest.param("--card-order=used-first", [], id="no-resource"),
    ],
)
async def test_an_order_by_a_resource_that_no_card_has_is_reported(
    server: ApiServer, tmp_path: Path, caplog: pytest.LogCaptureFixture, flag: str, warnings: list[str]
) -> None:
    add_node(server, cards=1, i915=1, millicores=1000)
    assert await warnings_of_order(server, tmp_path, caplog, flag) == warnings


async def test_an_order_is_not_reported_while_the_cluster_has_no_cards(
    server: ApiServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert await warnings_of_order(server, tmp_path, caplog, "--card-order=least-used=milicores") == []


async def warnings_of_order(
    server: ApiServer, tmp_path: Path, caplog: pytest.LogCaptureFixture, flag: str
) -> list[str]:
    caplog.set_level(logging.INFO)
    async with extender(server, tmp_path, flag):
        await eventually(lambda: "ready" in caplog.messages)
    return [message for message in caplog.messages if message.startswith("order of cards")]


async def test_pods_found_waiting_at_the_start_are_requeued_once(server: ApiServer, tmp_path: Path) -> None:
    """Their cards may have become free while no extender ran."""
    add_node(server)
    add_pod(server, "waiting")
    async with extender(server, tmp_path):
        await eventually(lambda: node_annotation(server, "n1"))


async def test_when_no_pod_waits_no_node_is_patched(server: ApiServer, tmp_path: Path) -> None:
    add_node(server)
    pod = add_pod(server, "a", node="n1", annotations={"gas-container-cards": "card0"})
    async with extender(server, tmp_path) as running:
        remove_pod(server, "a")
        await eventually(lambda: state(running, pod) is None)
        await asyncio.sleep(0.05)
        assert node_annotation(server, "n1") == ""


async def test_pods_of_a_descheduled_card_are_labelled(server: ApiServer, tmp_path: Path) -> None:
    add_node(server, labels={"telemetry.aware.scheduling.p/gas-deschedule-pods-card0": "x"})
    add_pod(server, "a", node="n1", annotations={"gas-container-cards": "card0"})
    async with extender(server, tmp_path):
        await eventually(lambda: pod_now(server, "a")["metadata"].get("labels"))
        assert pod_now(server, "a")["metadata"]["labels"] == {"gpu.aware.scheduling/deschedule-pod": "gpu"}


async def test_events_show_what_only_bookings_by_card_can_see(server: ApiServer, tmp_path: Path) -> None:
    add_node(server, "n1", cards=1)
    add_node(server, "n2", labels={"gpu.intel.com/gpu-numbers": "0.x"})
    async with extender(server, tmp_path) as running:
        greedy = add_pod(server, "greedy", cards=3)
        await eventually(lambda: len(running.decider.pods.waiting) == 1)
        for _ in range(3):
            assert await passing(running, greedy, "n1") == []
        add_pod(server, "unannotated", node="n1")
        await eventually(lambda: len(reasons(server)) == 3)
        assert sorted(reasons(server)) == ["GPUBookingMismatch", "InvalidGPULabels", "NoGPUCardFits"]


async def test_a_pod_bound_without_cards_while_no_extender_ran_is_reported(server: ApiServer, tmp_path: Path) -> None:
    add_node(server)
    add_pod(server, "before", node="n1")
    async with extender(server, tmp_path):
        await eventually(lambda: reasons(server) == ["GPUBookingMismatch"])


async def test_at_the_start_every_mismatch_and_invalid_node_is_announced_once(
    server: ApiServer, tmp_path: Path, posted: list[tuple[str, str]]
) -> None:
    add_node(server)
    add_node(server, "n2", labels={"gpu.intel.com/gpu-numbers": "0.x"})
    add_pod(server, "before", node="n1")
    async with extender(server, tmp_path) as running:
        await eventually(running.readiness.has_begun)
        await eventually(lambda: len(reasons(server)) == 2)
        assert posted == [("before", "GPUBookingMismatch"), ("n2", "InvalidGPULabels")]
        assert [stored.value["count"] for stored in server.api.storage.objects(EVENTS.plural)] == [1, 1]


async def test_a_receipt_that_the_ledger_follows_is_reported(server: ApiServer, tmp_path: Path) -> None:
    add_node(server)
    async with extender(server, tmp_path) as running:
        pod = add_pod(server, "a", node="n1", annotations={"gas-container-cards": "card0"})
        await eventually(lambda: state(running, pod) is State.HELD)
        patch = b'{"metadata":{"annotations":{"gas-allocated-cards":"card1"}}}'
        server.api.patch(PODS, "default", "a", ("application/merge-patch+json", patch))
        await eventually(lambda: reasons(server) == ["GPUAllocationCorrected"])
        assert running.decider.ledger.holders("n1") == {Card(1): 1}


async def test_a_forbidden_list_is_named(server: ApiServer, tmp_path: Path) -> None:
    server.settings.authorize = lambda access: access.kind is not NODES
    async with extender(server, tmp_path, ready=False) as running:
        await eventually(lambda: "nodes cannot be listed" in (running.readiness.why_not() or ""))
        assert 'the verb "list" on resource "nodes"' in (running.readiness.why_not() or "")


class TestLeaders:
    async def test_a_new_leader_lists_once_more_before_it_decides(self, server: ApiServer, tmp_path: Path) -> None:
        """The old leader's last bind may not have been seen by the watch yet."""
        add_node(server, cards=1)
        pod = add_pod(server, "a")
        async with extender(server, tmp_path, "--leader-elect") as running:
            lists = 0
            held = asyncio.Event()

            async def slow(access: Access) -> ApiFailure | None:
                nonlocal lists
                if access.kind is PODS and access.verb == "list":
                    lists += 1
                    await held.wait()
                return None

            server.settings.intercept = slow
            running.pod_watch._handler = Ignoring()  # what the old leader does is still on its way
            assert running.leadership is not None
            running.leadership.changed(leads=False)
            running.leadership.changed(leads=True)
            binding = {
                "metadata": {
                    "name": "a",
                    "uid": pod["metadata"]["uid"],
                    "annotations": {"gas-container-cards": "card0"},
                },
                "target": {"kind": "Node", "name": "n1"},
            }
            server.api.bind("default", "a", binding)
            await eventually(lambda: lists)
            with pytest.raises(NotReady, match="the pods that the previous leader bound"):
                await bind(running, pod)
            held.set()
            await eventually(running.readiness.may_act)
            assert state(running, pod) is State.HELD

    async def test_what_a_new_leader_learns_from_that_list_is_announced_once(
        self, server: ApiServer, tmp_path: Path, posted: list[tuple[str, str]]
    ) -> None:
        add_node(server, "n2", labels={"gpu.intel.com/gpu-numbers": "0.x"})
        async with extender(server, tmp_path, "--leader-elect") as running:
            await eventually(running.readiness.has_begun)
            running.pod_watch._handler = Ignoring()
            add_pod(server, "before", node="n2")
            assert running.leadership is not None
            running.leadership.changed(leads=False)
            await asyncio.sleep(2 * REPORT_PERIOD)
            posted.clear()
            running.leadership.changed(leads=True)
            await eventually(running.readiness.has_begun)
            assert posted == [("before", "GPUBookingMismatch"), ("n2", "InvalidGPULabels")]

    async def test_a_pod_deleted_during_that_list_stays_deleted(self, server: ApiServer, tmp_path: Path) -> None:
        add_node(server, cards=1)
        pod = add_pod(server, "a", node="n1", annotations={"gas-container-cards": "card0"})
        async with extender(server, tmp_path, "--leader-elect") as running:
            listed = running.decider.pods.learn

            def late(pods: list[Any]) -> None:
                assert [known.uid for known in pods] == [pod["metadata"]["uid"]]
                running.decider.pods.deleted(pods[0])
                listed(pods)

            running.decider.pods.learn = late  # type: ignore[method-assign]  # the news overtakes the list
            assert running.leadership is not None
            running.leadership.changed(leads=True)
            await eventually(running.readiness.may_act)
            assert state(running, pod) is None

    async def test_only_one_of_two_replicas_decides_and_the_other_takes_over(
        self, server: ApiServer, tmp_path: Path
    ) -> None:
        add_node(server)
        pod = add_pod(server, "a")
        async with (
            extender(server, tmp_path, "--leader-elect") as leader,
            extender(server, tmp_path, "--leader-elect", ready=False) as other,
        ):
            await eventually(other.pod_watch.synced.is_set)
            with pytest.raises(NotReady, match="is not the leader"):
                await bind(other, pod)
            assert await bind(leader, pod) == ""
            await leader.finish(1.0)
            with pytest.raises(NotReady, match="is not the leader"):
                await bind(leader, add_pod(server, "b"))
            await eventually(other.readiness.may_act)
            assert state(other, pod) is State.HELD

    async def test_while_a_bind_is_in_progress_the_lease_is_not_handed_over(
        self, server: ApiServer, tmp_path: Path
    ) -> None:
        add_node(server)
        pod = add_pod(server, "a")
        async with extender(server, tmp_path, "--leader-elect") as running:
            held = asyncio.Event()

            async def slow(access: Access) -> ApiFailure | None:
                if access.subresource == "binding":
                    await held.wait()
                return None

            server.settings.intercept = slow
            binding = asyncio.create_task(bind(running, pod))
            await eventually(lambda: state(running, pod) is State.RESERVED)
            await running.finish(0.01)
            assert holder(server)
            held.set()
            assert await binding == ""
            await running.finish(1.0)
            assert not holder(server)

    async def test_a_bind_that_takes_longer_than_the_lease_allows_is_given_up(
        self, server: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("gas.extender.assembly.LEADERS_WRITE_TIMEOUT", 0.05)
        add_node(server)
        pod = add_pod(server, "a")
        async with extender(server, tmp_path, "--leader-elect") as running:
            held = asyncio.Event()

            async def slow(access: Access) -> ApiFailure | None:
                if access.subresource == "binding":
                    await held.wait()
                return None

            server.settings.intercept = slow
            assert "did not respond in time" in await bind(running, pod)
            assert state(running, pod) is State.RESERVED
            held.set()


class Ignoring:
    """Ignore every watch event."""

    def listed(self, _objects: list[Any]) -> None: ...

    def complete(self, _listed: list[Any]) -> None: ...

    def changed(self, _object: Any) -> None: ...

    def deleted(self, _object: Any) -> None: ...


def node_annotation(server: ApiServer, name: str) -> str:
    annotations = server.api.get(NODES, None, name).value["metadata"].get("annotations", {})
    return str(annotations.get(WAKING, ""))


def reasons(server: ApiServer) -> list[str]:
    return [str(stored.value["reason"]) for stored in server.api.storage.objects(EVENTS.plural)]


def holder(server: ApiServer) -> str:
    return str(server.api.get(LEASES, "default", "gas-extender").value["spec"].get("holderIdentity") or "")


def nominate(server: ApiServer, name: str, node: str) -> None:
    patch = json.dumps({"status": {"nominatedNodeName": node}}).encode()
    server.api.patch(PODS, "default", name, ("application/merge-patch+json", patch), "status")


async def test_from_a_full_node_to_the_room_of_the_victim(server: ApiServer, tmp_path: Path) -> None:
    node = node_json("n1", cards=1)
    for amounts in node["status"].values():
        amounts.update(cpu="64", memory="256Gi", pods="110")
    server.api.create(NODES, None, node)
    async with extender(server, tmp_path, "--preemption") as running:
        low = add_pod(server, "low", priority=1)
        high = add_pod(server, "high", priority=9)
        equal = add_pod(server, "equal", priority=9)
        assert await passing(running, low, "n1") == ["n1"]
        assert await bind(running, low) == ""
        await eventually(lambda: running.decider.hosts.pods.knows(low["metadata"]["uid"]))  # type: ignore[union-attr]
        await eventually(lambda: running.preempt is not None and running._why_not_preempting() is None)
        assert await passing(running, high, "n1") == []
        proposal = {"n1": {"Pods": [{"UID": low["metadata"]["uid"]}], "NumPDBViolations": 0}}
        assert running.preempt is not None
        body = json.dumps({"Pod": high, "NodeNameToMetaVictims": proposal}).encode()
        assert json.loads(await running.preempt(body)) == {"NodeNameToMetaVictims": proposal}
        nominate(server, "high", "n1")
        server.api.delete(PODS, "default", "low", {"gracePeriodSeconds": 0})
        await eventually(lambda: not running.decider.ledger.on_node("n1"))
        await eventually(lambda: running.decider.preemption.nominations.on("n1"))  # type: ignore[union-attr]
        assert await passing(running, equal, "n1") == []
        assert await passing(running, high, "n1") == ["n1"]
        assert await bind(running, high) == ""


async def test_without_disruption_budgets_no_pod_is_evicted_but_pods_are_placed(
    server: ApiServer, tmp_path: Path
) -> None:
    async def refuse(access: Access) -> ApiFailure | None:
        return forbidden(access) if access.kind is DISRUPTION_BUDGETS else None

    server.settings.intercept = refuse
    server.api.create(NODES, None, node_json("n1", cards=1))
    async with extender(server, tmp_path, "--preemption") as running:
        assert running.preempt is not None
        await eventually(lambda: running.budget_watch is not None and running.budget_watch.refused is not None)
        with pytest.raises(NotReady, match="PodDisruptionBudgets cannot be watched"):
            await running.preempt(b"{}")
        pod = add_pod(server, "a")
        assert await passing(running, pod, "n1") == ["n1"]


async def test_a_pod_that_waits_for_a_memory_that_no_node_knows_says_so(
    server: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(assembly, "UNKNOWN_MEMORY_INTERVAL", 0.05)
    add_node(server, cards=1, annotations={"gas-cards": '[{"card":0,"memorySource":"unknown"}]'}, i915=1)
    sent = pod_json(container(i915=1, memory_max="5G") | {"image": "example/main:1"}, name="waits")
    server.api.create(PODS, "default", sent)

    def messages() -> list[str]:
        found = [stored.value for stored in server.api.storage.objects(EVENTS.plural)]
        return [each["message"] for each in found if each["reason"] == "GPUMemoryUnknown"]

    async with extender(server, tmp_path):
        await eventually(messages)
        (message,) = messages()
        assert "the memory of card0 of node n1 is unknown" in message
