"""A leader that stood still right before it sent a Binding sends it while another one leads: nothing fences that."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gas.extender.assembly import Extender
from gas.ledger.ledger import State
from sandbox.api.failure import ApiFailure
from sandbox.api.routes import Access
from sandbox.api.server import ApiServer
from tests.extender.assembled import add_node, add_pod, bind, extender, passing, pod_now, remove_pod
from tests.extender.eventually import eventually


@dataclass
class TwoLeaders:
    """A former leader whose Binding of a pod is still on its way, and a leader that knows nothing of it."""

    server: ApiServer
    former: Extender
    leader: Extender
    pod: dict[str, Any]
    late: asyncio.Task[str]
    arrives: asyncio.Event

    def cards(self, name: str) -> str:
        cards: str = pod_now(self.server, name)["metadata"]["annotations"]["gas-container-cards"]
        return cards

    def both_hold(self, *pods: dict[str, Any]) -> bool:
        uids = {pod["metadata"]["uid"] for pod in pods}
        ledgers = [dict(each.decider.ledger.bookings()) for each in (self.former, self.leader)]
        return all(
            ledger.keys() == uids and {booking.state for booking in ledger.values()} <= {State.HELD}
            for ledger in ledgers
        )


@asynccontextmanager
async def two_leaders(directory: Path) -> AsyncIterator[TwoLeaders]:
    arrives = asyncio.Event()
    on_its_way = asyncio.Event()

    async def hold_the_first(access: Access) -> ApiFailure | None:
        if access.subresource == "binding" and not on_its_way.is_set():
            on_its_way.set()
            await arrives.wait()
        return None

    for name in ("former", "leader"):
        (directory / name).mkdir()
    async with ApiServer(intercept=hold_the_first) as server:
        add_node(server)
        pod = add_pod(server, "late")
        async with extender(server, directory / "former") as former, extender(server, directory / "leader") as leader:
            late = asyncio.create_task(bind(former, pod))
            await on_its_way.wait()
            yield TwoLeaders(server, former, leader, pod, late, arrives)
            arrives.set()
            await late


async def test_it_is_refused_if_the_leader_has_bound_the_pod(tmp_path: Path) -> None:
    async with two_leaders(tmp_path) as them:
        other = add_pod(them.server, "other")
        assert await bind(them.leader, other) == ""
        assert await bind(them.leader, them.pod) == ""
        assert (them.cards("other"), them.cards("late")) == ("card0", "card1")
        them.arrives.set()
        assert "already assigned" in await them.late
        assert them.cards("late") == "card1"
        await eventually(lambda: them.both_hold(other, them.pod))


async def test_it_is_refused_if_another_pod_has_the_name(tmp_path: Path) -> None:
    async with two_leaders(tmp_path) as them:
        remove_pod(them.server, "late")
        again = add_pod(them.server, "late")
        them.arrives.set()
        assert "UID" in await them.late
        assert "nodeName" not in pod_now(them.server, "late")["spec"]
        await eventually(them.both_hold)
        assert await passing(them.leader, again, "n1") == ["n1"]


async def test_it_may_give_a_card_away_twice_and_no_further_pod_gets_that_card(tmp_path: Path) -> None:
    async with two_leaders(tmp_path) as them:
        other = add_pod(them.server, "other")
        assert await bind(them.leader, other) == ""
        them.arrives.set()
        assert await them.late == ""
        assert (them.cards("other"), them.cards("late")) == ("card0", "card0")
        await eventually(lambda: them.both_hold(other, them.pod))
        third, fourth = add_pod(them.server, "third"), add_pod(them.server, "fourth")
        await eventually(lambda: third["metadata"]["uid"] in them.leader.decider.pods.waiting)
        assert await bind(them.leader, third) == ""
        assert them.cards("third") == "card1"
        assert "no card has" in await bind(them.leader, fourth)
        remove_pod(them.server, "late")
        await eventually(lambda: them.both_hold(other, third))
        assert "no card has" in await bind(them.leader, fourth)
        remove_pod(them.server, "other")
        await eventually(lambda: them.both_hold(third))
        assert await bind(them.leader, fourth) == ""
