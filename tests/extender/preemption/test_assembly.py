"""Preemption in the whole extender, on an API server."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from gas.extender.debug import books_json
from gas.extender.readiness import NotReady
from sandbox.api.failure import ApiFailure
from sandbox.api.kinds import DISRUPTION_BUDGETS, NODES, PODS
from sandbox.api.routes import Access, forbidden
from sandbox.api.server import ApiServer
from tests.background import eventually
from tests.builders import node_json
from tests.extender.assembled import add_pod, bind, extender, passing


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
        await eventually(lambda: running.decider.hosts.pods.requested(low["metadata"]["uid"]))
        await eventually(running.watches["poddisruptionbudgets"].synced.is_set)
        assert await passing(running, high, "n1") == []
        proposal = {"n1": {"Pods": [{"UID": low["metadata"]["uid"]}], "NumPDBViolations": 0}}
        body = json.dumps({"Pod": high, "NodeNameToMetaVictims": proposal}).encode()
        assert json.loads(await running.verbs["preempt"].call(body)) == {"NodeNameToMetaVictims": proposal}
        nominate(server, "high", "n1")
        server.api.delete(PODS, "default", "low", {"gracePeriodSeconds": 0})
        await eventually(lambda: not running.decider.ledger.on_node("n1"))
        await eventually(lambda: json.loads(books_json(running.decider))["promised"])
        assert await passing(running, equal, "n1") == []
        assert await passing(running, high, "n1") == ["n1"]
        assert await bind(running, high) == ""


@pytest.mark.parametrize("refused", [True, False])
async def test_without_disruption_budgets_no_pod_is_evicted_but_pods_are_placed(
    server: ApiServer, tmp_path: Path, *, refused: bool
) -> None:
    async def refuse(access: Access) -> ApiFailure | None:
        if access.kind is DISRUPTION_BUDGETS and not refused:
            await asyncio.Event().wait()
        return forbidden(access) if access.kind is DISRUPTION_BUDGETS else None

    server.settings.intercept = refuse
    server.api.create(NODES, None, node_json("n1", cards=1))
    async with extender(server, tmp_path, "--preemption") as running:
        await eventually(lambda: running.watches["poddisruptionbudgets"].refused is not None or not refused)
        with pytest.raises(NotReady, match="PodDisruptionBudgets"):
            await running.verbs["preempt"].call(b"{}")
        assert json.loads(running.verbs["preempt"].undecided or b"") == {"NodeNameToMetaVictims": {}}
        pod = add_pod(server, "a")
        assert await passing(running, pod, "n1") == ["n1"]
