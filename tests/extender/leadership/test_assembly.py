"""Changes of the leader in the whole extender, on an API server."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from gas.extender.readiness import REPORT_PERIOD, NotReady
from gas.ledger.ledger import State
from gas.values.cards import Card
from sandbox.api.failure import ApiFailure
from sandbox.api.kinds import LEASES, NODES, PODS
from sandbox.api.routes import Access
from sandbox.api.server import ApiServer
from tests.background import eventually, turns
from tests.extender.assembled import add_node, add_pod, bind, extender, state


class Ignoring:
    """Ignore every watch event."""

    def listed(self, _objects: list[Any]) -> None: ...

    def complete(self, _listed: list[Any]) -> None: ...

    def changed(self, _object: Any) -> None: ...

    def deleted(self, _object: Any) -> None: ...


def holder(server: ApiServer) -> str:
    return str(server.api.get(LEASES, "default", "gas-extender").value["spec"].get("holderIdentity") or "")


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
            running.readiness.chosen(False)
            running.readiness.chosen(True)
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

    async def test_no_receipt_is_believed_before_the_cards_of_its_node_are_known(
        self, server: ApiServer, tmp_path: Path
    ) -> None:
        add_node(server, cards=1)
        add_pod(server, "a", node="n1", annotations={"gas-container-cards": "card0", "gas-allocated-cards": "card1"})
        held = asyncio.Event()

        async def slow(access: Access) -> ApiFailure | None:
            if access.kind is NODES:
                await held.wait()
            return None

        server.settings.intercept = slow
        async with extender(server, tmp_path, "--leader-elect", ready=False) as running:
            await eventually(lambda: running.leader.leads)
            await asyncio.sleep(0.1)
            held.set()
            await eventually(running.readiness.may_act)
            assert list(running.decider.ledger.holders("n1")) == [Card(0)]

    async def test_to_have_caught_up_in_an_earlier_lead_is_not_enough(self, server: ApiServer, tmp_path: Path) -> None:
        add_node(server)
        async with extender(server, tmp_path, "--leader-elect") as running:
            caught_up = [asyncio.Event(), asyncio.Event()]
            begun = iter(caught_up)

            async def catch_up() -> None:
                await next(begun).wait()

            running.readiness._catch_up = catch_up
            for leads in (True, False, True):
                running.readiness.chosen(leads)
                await turns()
            caught_up[0].set()
            await turns()
            assert not running.readiness.may_act()
            caught_up[1].set()
            await eventually(running.readiness.may_act)

    async def test_a_leader_first_settles_the_binds_of_its_earlier_lead(
        self, server: ApiServer, tmp_path: Path
    ) -> None:
        """A copy of such a Binding would be allowed, although another leader may have given away its card since."""
        add_node(server, cards=1)
        pod = add_pod(server, "a")
        async with extender(server, tmp_path, "--leader-elect") as running:
            held = asyncio.Event()

            async def slow(access: Access) -> ApiFailure | None:
                if access.subresource == "binding":
                    await held.wait()
                return None

            server.settings.intercept = slow
            binding = asyncio.create_task(bind(running, pod))
            await eventually(lambda: running.binder._in_progress)
            running.readiness.chosen(False)
            running.readiness.chosen(True)
            await asyncio.sleep(0.1)
            assert not running.readiness.may_act()
            held.set()
            await eventually(running.readiness.may_act)
            with pytest.raises(NotReady):
                await binding
            assert state(running, pod) is None

    async def test_what_a_new_leader_learns_from_that_list_is_announced_once(
        self, server: ApiServer, tmp_path: Path, posted: list[tuple[str, str]]
    ) -> None:
        add_node(server, "n2", labels={"gpu.intel.com/gpu-numbers": "0.x"})
        async with extender(server, tmp_path, "--leader-elect") as running:
            await eventually(running.readiness.has_begun)
            running.pod_watch._handler = Ignoring()
            add_pod(server, "before", node="n2")
            running.readiness.chosen(False)
            await asyncio.sleep(2 * REPORT_PERIOD)
            posted.clear()
            running.readiness.chosen(True)
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
            running.readiness.chosen(True)
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
