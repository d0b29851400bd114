"""Requeuing in the whole extender, on an API server."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

from gas.ledger.ledger import State
from sandbox.api.kinds import NODES
from sandbox.api.server import ApiServer
from tests.background import eventually
from tests.extender.assembled import add_node, add_pod, bind, extender, passing, remove_pod, state

WAKING = "gas-released"


def node_annotation(server: ApiServer, name: str) -> str:
    annotations = server.api.get(NODES, None, name).value["metadata"].get("annotations", {})
    return str(annotations.get(WAKING, ""))


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


async def test_pods_found_waiting_at_the_start_are_requeued_once(server: ApiServer, tmp_path: Path) -> None:
    """Their cards may have become free while no extender ran."""
    add_node(server)
    add_pod(server, "waiting")
    async with extender(server, tmp_path):
        await eventually(lambda: node_annotation(server, "n1"))
