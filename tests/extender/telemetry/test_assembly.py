"""The deschedule label in the whole extender, on an API server."""

from __future__ import annotations

from pathlib import Path

from sandbox.api.server import ApiServer
from tests.background import eventually
from tests.extender.assembled import add_node, add_pod, extender, pod_now


async def test_pods_of_a_descheduled_card_are_labelled(server: ApiServer, tmp_path: Path) -> None:
    add_node(server, labels={"telemetry.aware.scheduling.p/gas-deschedule-pods-card0": "x"})
    add_pod(server, "a", node="n1", annotations={"gas-container-cards": "card0"})
    async with extender(server, tmp_path):
        await eventually(lambda: pod_now(server, "a")["metadata"].get("labels"))
        assert pod_now(server, "a")["metadata"]["labels"] == {"gpu.aware.scheduling/deschedule-pod": "gpu"}
