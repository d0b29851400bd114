"""Readiness: a complete ledger and, among several replicas, leadership."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any, cast

from gas.cluster.watch import Watch
from gas.extender.readiness import Readiness
from tests.background import eventually, in_background, turns


@dataclass
class Kind:
    synced: asyncio.Event = field(default_factory=asyncio.Event)
    refused: str | None = None
    trouble: str = ""


@dataclass
class Standing:
    reason: str | None = None
    leads: bool = True

    async def run(self) -> None: ...

    async def release(self) -> None: ...

    def why_not(self) -> str | None:
        return self.reason


async def caught_up() -> None: ...


async def ready_with(*kinds: Kind, leadership: Standing | None = None) -> Readiness:
    watches = {name: cast(Watch[Any], kind) for name, kind in zip(("nodes", "pods"), kinds, strict=False)}
    readiness = Readiness(watches, leadership or Standing(), caught_up)
    readiness.chosen(True)
    await turns()
    return readiness


async def test_a_replica_is_ready_once_both_lists_are_read() -> None:
    nodes, pods = Kind(), Kind()
    readiness = await ready_with(nodes, pods)
    assert readiness.why_not() == "the ledger is not complete yet: the first list of nodes is still being read"
    nodes.synced.set()
    assert readiness.why_not() == "the ledger is not complete yet: the first list of pods is still being read"
    assert not readiness.may_act()
    pods.synced.set()
    assert readiness.why_not() is None
    assert readiness.may_act()


async def test_a_replica_that_is_not_chosen_yet_or_no_more_decides_nothing() -> None:
    readiness = Readiness({}, Standing(), caught_up)
    assert "has just become the leader" in (readiness.why_not() or "")
    readiness.chosen(True)
    await turns()
    assert readiness.may_act()
    readiness.chosen(False)
    assert not readiness.may_act()


async def test_a_replica_has_begun_to_decide_once_that_was_reported() -> None:
    nodes, pods = Kind(), Kind()
    leadership = Standing(None)
    readiness = await ready_with(nodes, pods, leadership=leadership)
    begun: list[bool] = []
    async with in_background(readiness.report(lambda: begun.append(readiness.has_begun()))):
        await turns()
        nodes.synced.set()
        pods.synced.set()
        assert readiness.may_act()
        assert not readiness.has_begun()
        await eventually(readiness.has_begun)
        leadership.reason = "another replica leads"
        assert not readiness.has_begun()
    assert begun == [True]


async def test_a_forbidden_list_is_named_with_the_missing_permission() -> None:
    readiness = await ready_with(Kind(refused='give its role the verb "list" on resource "nodes"'), Kind())
    assert readiness.why_not() == (
        'the ledger is not complete, nodes cannot be listed: give its role the verb "list" on resource "nodes"'
    )


async def test_a_watch_that_breaks_later_does_not_end_readiness() -> None:
    pods = Kind()
    readiness = await ready_with(pods)
    pods.synced.set()
    pods.trouble = "the API server is away"
    assert readiness.why_not() is None


async def test_a_watch_that_is_forbidden_later_ends_readiness() -> None:
    pods = Kind()
    readiness = await ready_with(pods, pods)
    pods.synced.set()
    pods.refused = 'give its role the verb "watch" on resource "pods"'
    assert readiness.why_not() == (
        'the ledger is not complete, nodes can no longer be watched: give its role the verb "watch" on resource "pods"'
    )


async def test_the_reason_why_the_first_list_fails_is_named() -> None:
    readiness = await ready_with(Kind(trouble="401 Unauthorized"))
    assert (readiness.why_not() or "").endswith("is still being read; the last try failed: 401 Unauthorized")


async def test_of_several_replicas_only_the_one_that_leads_is_ready() -> None:
    standing, pods = Standing("this replica does not lead"), Kind()
    readiness = await ready_with(pods, leadership=standing)
    assert "still being read" in (readiness.why_not() or "")
    pods.synced.set()
    assert readiness.why_not() == "this replica does not lead"
    standing.reason = None
    assert readiness.may_act()


async def test_what_a_replica_catches_up_with_ends_with_its_lead() -> None:
    """Each lead catches up again, and the work of an earlier lead neither counts nor goes on."""
    ends: list[asyncio.Event] = []
    ended: list[int] = []

    async def catch_up() -> None:
        number = len(ends)
        ends.append(asyncio.Event())
        await ends[number].wait()
        ended.append(number)

    readiness = Readiness({}, Standing(), catch_up)
    for leads in (True, False, True):
        readiness.chosen(leads)
        await turns()
    ends[0].set()
    await turns()
    assert not ended
    assert not readiness.may_act()
    ends[1].set()
    await turns()
    assert readiness.may_act()
    readiness.chosen(True)
    await turns()
    ends[2].set()
    await asyncio.sleep(0)  # it has caught up, and that is about to be noted
    readiness.chosen(False)
    readiness.chosen(True)
    await turns()
    assert not readiness.may_act()


async def test_while_stopping_requests_in_progress_are_decided_and_no_new_ones_should_come() -> None:
    readiness = await ready_with()
    readiness.stop()
    assert readiness.why_not() is None
    assert readiness.may_act()
    assert readiness.why_not_serving() == "this replica of the extender is stopping"
