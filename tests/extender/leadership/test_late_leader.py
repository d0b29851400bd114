"""A Binding that a former leader has sent, and that the API server stores, if it does, while another replica leads."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from gas.extender.assembly import Extender
from gas.extender.readiness import NotReady
from gas.ledger.ledger import State
from sandbox.api.failure import ApiFailure
from sandbox.api.kinds import PODS
from sandbox.api.routes import Access
from sandbox.api.server import ApiServer
from tests.background import eventually
from tests.extender.assembled import add_node, add_pod, bind, extender, pod_now, state

ELECTED = ("--leader-elect", "--lease-namespace=default")


class Held:
    """Keep requests of one kind, as a webhook would, until `stored` is set."""

    def __init__(self, *, verb: str, subresource: str = "") -> None:
        self.wanted = (verb, subresource)
        self.arrived = asyncio.Event()
        self.stored = asyncio.Event()

    async def __call__(self, access: Access) -> ApiFailure | None:
        if access.kind is PODS and (access.verb, access.subresource or "") == self.wanted:
            self.arrived.set()
            await self.stored.wait()
        return None


@asynccontextmanager
async def deposed(
    server: ApiServer, directory: Path, pod: dict[str, Any]
) -> AsyncIterator[tuple[Extender, asyncio.Task[str], Held]]:
    """Let a leader send the Binding of a pod and lose its Lease; return it, the bind and its Binding."""
    nothing = server.settings.intercept
    binding = server.settings.intercept = Held(verb="create", subresource="binding")
    async with extender(server, directory, *ELECTED) as former:
        sender = asyncio.create_task(bind(former, pod))
        await binding.arrived.wait()
        server.settings.intercept = nothing
        await former.leader.release()
        yield former, sender, binding


async def test_it_is_refused_once_the_new_leader_decides(server: ApiServer, tmp_path: Path) -> None:
    add_node(server)
    late, other = add_pod(server, "late", cards=2), add_pod(server, "other", cards=2)
    async with (
        deposed(server, tmp_path, late) as (former, sender, binding),
        extender(server, tmp_path, *ELECTED) as leader,
    ):
        assert await bind(leader, other) == ""
        binding.stored.set()
        with pytest.raises(NotReady):
            await sender
        assert "nodeName" not in pod_now(server, "late")["spec"]
        for each in (former, leader):
            await eventually(lambda each=each: state(each, other) is State.HELD)  # type: ignore[misc]
            assert state(each, late) is None


async def test_if_it_is_stored_before_that_the_new_leader_knows_its_cards(server: ApiServer, tmp_path: Path) -> None:
    add_node(server)
    late, other = add_pod(server, "late", cards=2), add_pod(server, "other", cards=2)
    async with deposed(server, tmp_path, late) as (_, sender, binding):
        change = server.settings.intercept = Held(verb="patch")
        async with extender(server, tmp_path, *ELECTED, ready=False) as leader:
            await change.arrived.wait()
            binding.stored.set()
            assert await sender == ""
            assert leader.readiness.why_not()
            change.stored.set()
            await eventually(leader.readiness.may_act)
            assert "no longer has room" in await bind(leader, other)
