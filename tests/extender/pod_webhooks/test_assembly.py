"""The webhooks of a whole extender on an API server."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
from cachetools import LRUCache

from gas.extender.admission.review import ALLOWED, ReviewResult
from gas.extender.assembly import Extender
from gas.extender.command_line import parse_flags
from gas.extender.pod_webhooks.part import PodWebhookFlags
from gas.objects.stored import Pod
from gas.vocabularies.protocol import NeedOptions
from sandbox.api.failure import ApiFailure
from sandbox.api.kinds import NODES
from sandbox.api.routes import Access
from sandbox.api.server import ApiServer
from tests.background import eventually
from tests.builders import container, pod_json
from tests.extender.admission.reviews import review
from tests.extender.assembled import add_node, extender

PORT = "--admission-port=1"
"""The assembly opens no port; the flag switches the webhooks on."""

LARGE = pod_json(container(i915=3))
NEVER = (
    "no node of the cluster could run the pod now, even without other pods: container 'main' asks for 3 cards, but the"
    " node has 2 (1 node)"
)


async def validated(running: Extender, pod: dict[str, Any]) -> ReviewResult:
    return await running.webhooks["validate"](review(pod))


async def test_warnings_follow_the_nodes(server: ApiServer, tmp_path: Path) -> None:
    add_node(server, cards=2)
    async with extender(server, tmp_path, PORT) as running:
        assert await validated(running, LARGE) == ReviewResult(warnings=(NEVER,))
        add_node(server, "n2", cards=3)
        await eventually(lambda: len(running.decider.nodes) == 2)
        assert await validated(running, LARGE) == ALLOWED


async def test_pods_are_checked_before_the_nodes_are_known(server: ApiServer, tmp_path: Path) -> None:
    held = asyncio.Event()

    async def slow(access: Access) -> ApiFailure | None:
        if access.kind is NODES and access.verb == "list":
            await held.wait()
        return None

    server.settings.intercept = slow
    async with extender(server, tmp_path, PORT, ready=False) as running:
        assert await validated(running, LARGE) == ALLOWED
        assert (await validated(running, pod_json(container(i915=1, xe=1)))).refusal
        held.set()


async def test_every_replica_checks_pods(server: ApiServer, tmp_path: Path) -> None:
    add_node(server, cards=2)
    (tmp_path / "second").mkdir()
    async with (
        extender(server, tmp_path, PORT, "--leader-elect") as first,
        extender(server, tmp_path / "second", PORT, "--leader-elect", ready=False) as second,
    ):
        await eventually(second.node_watch.synced.is_set)
        assert not second.readiness.may_act()
        for running in (first, second):
            assert await validated(running, LARGE) == ReviewResult(warnings=(NEVER,))


async def test_the_scheduler_name_of_the_flag_is_completed(server: ApiServer, tmp_path: Path) -> None:
    async with extender(server, tmp_path, PORT, "--admission-scheduler-name=other") as running:
        operation, _mark = (await running.webhooks["complete"](review(LARGE))).patch
    assert (operation.path, operation.value) == ("/spec/schedulerName", "other")


async def test_forged_reviews_book_nothing_and_displace_no_remembered_need(server: ApiServer, tmp_path: Path) -> None:
    add_node(server, cards=2)
    async with extender(server, tmp_path, PORT) as running:
        known = msgspec.convert(pod_json(container(i915=1)), Pod)
        vocabularies = running.decider._vocabularies
        vocabularies._needs = LRUCache(8)
        need = vocabularies.need(known, NeedOptions())
        for millicores in range(9):
            await validated(running, pod_json(container(i915=1, millicores=millicores), node="n1"))
        assert vocabularies.need(known, NeedOptions()) is need
        assert running.decider.ledger.on_node("n1") == {}


def test_the_name_of_the_scheduler_needs_the_port() -> None:
    assert parse_flags([]).of(PodWebhookFlags).scheduler_name is None
    flags = parse_flags(["--admission-scheduler-name=x"])
    assert flags.of(PodWebhookFlags).scheduler_name == "x"
    assert flags.warnings == ("ignored: --admission-scheduler-name; set --admission-port as well",)
