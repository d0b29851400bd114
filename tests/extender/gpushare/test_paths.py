"""The paths of Aliyun's extender."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry

from gas.daemon.plain_port import plain_app
from gas.extender.metrics import Metrics
from gas.extender.server import extender_app
from gas.values.card_records import ANNOTATION, CardRecord, format_card_records
from gas.values.cards import Card, instance
from sandbox.api.kinds import NODES, PODS
from sandbox.api.server import ApiServer
from tests.builders import pod_json
from tests.extender.assembled import bind, extender
from tests.extender.running import running
from tests.other_words import MIB, aliyun_node, asking, stating

JSON = {"content-type": "application/json"}


# contract A1.26
async def test_filter_bind_and_inspect_are_served_where_aliyuns_extender_has_them(tmp_path: Path) -> None:
    async with ApiServer() as server:
        server.api.create(NODES, None, aliyun_node(units=1000))
        server.api.create(NODES, None, divided_node())
        sent = pod_json(asking(gpu_mem=300) | {"image": "none"}, name="a")
        del sent["metadata"]["uid"]
        pod = dict(server.api.create(PODS, "default", sent).value)
        async with extender(server, tmp_path, "--gpushare-paths", "--vocabularies=intel,aliyun") as ours:
            app = extender_app(ours.verbs, Metrics("2"), max_body=2**20, body_timeout=5.0)
            with running(app) as served:
                for verb in ("filter", "bind"):
                    found = await asyncio.to_thread(served.ask, "POST", f"/gpushare-scheduler/{verb}", b"{}", JSON)
                    assert (found[0], "Error" in found[1]) == (200, True)
            assert await bind(ours, pod) == ""
            plain = plain_app(why_not_ready=lambda: None, registry=CollectorRegistry(), documents=ours.documents)
            with running(plain) as served:
                inspected, one, none = [
                    (await asyncio.to_thread(served.ask, "GET", f"/gpushare-scheduler/inspect{of}"))[1]
                    for of in ("", "/n2", "/other")
                ]
    assert one == {"nodes": inspected["nodes"][1:]}
    assert none == {"nodes": [], "error": "node 'other' has no card with gpu-mem"}
    assert inspected == {
        "nodes": [
            {
                "name": "n1",
                "totalGPU": 2000,
                "usedGPU": 300,
                "devs": [
                    {
                        "id": 0,
                        "totalGPU": 1000,
                        "usedGPU": 300,
                        "pods": [{"name": "a", "namespace": "default", "usedGPU": 300}],
                    },
                    {"id": 1, "totalGPU": 1000, "usedGPU": 0, "pods": []},
                ],
            },
            {
                "name": "n2",
                "totalGPU": 2000,
                "usedGPU": 0,
                "devs": [{"id": at, "totalGPU": 1000, "usedGPU": 0, "pods": []} for at in (1, 2)],
            },
        ]
    }


def divided_node() -> dict[str, Any]:
    """Return a node with card1, and card0 divided into one instance."""
    records = [CardRecord(card=card, memory=1000 * MIB) for card in (Card(1), instance(Card(0), 10))]
    node = stating("n2", gpu_mem=2000, gpu_count=2)
    return node | {"metadata": node["metadata"] | {"annotations": {ANNOTATION: format_card_records(records)}}}
