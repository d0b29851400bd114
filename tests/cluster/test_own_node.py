from __future__ import annotations

from pathlib import Path

import pytest

from gas.cluster.errors import ApiRefused, ApiUnavailable
from gas.cluster.own_node import get_node, patch_node_status
from tests.cluster.scripted_server import ScriptedServer, answer, connected, refuse

NODE = {"metadata": {"name": "n1", "labels": {"a": "1"}}, "status": {"capacity": {"cpu": "8"}}}


async def test_get_node_reads_the_node(tmp_path: Path) -> None:
    async with ScriptedServer(answer(200, NODE)) as server, connected(server, tmp_path) as api:
        found = await get_node(api, "n1")
    assert found is not None
    assert (found.name, found.labels) == ("n1", {"a": "1"})
    assert (server.seen[0].method, server.seen[0].path) == ("GET", "/api/v1/nodes/n1")


async def test_metadata_and_status_are_patched_in_one_write(tmp_path: Path) -> None:
    patch = {"metadata": {"labels": {"a": "1", "b": None}}, "status": {"capacity": {"gpu.intel.com/tiles": "2"}}}
    async with ScriptedServer(answer(200, NODE)) as server, connected(server, tmp_path) as api:
        after = await patch_node_status(api, "n1", patch)
    assert after is not None
    assert after.labels == {"a": "1"}
    (seen,) = server.seen
    assert (seen.method, seen.path) == ("PATCH", "/api/v1/nodes/n1/status")
    assert seen.headers["content-type"] == "application/merge-patch+json"
    assert seen.json == patch


async def test_a_node_that_is_not_there_is_none(tmp_path: Path) -> None:
    steps = (refuse(404, "NotFound"), refuse(404, "NotFound"), refuse(409, "Conflict"))
    async with ScriptedServer(*steps) as server, connected(server, tmp_path) as api:
        assert await get_node(api, "n1") is None
        assert await patch_node_status(api, "n1", {}) is None
        with pytest.raises(ApiRefused):
            await patch_node_status(api, "n1", {})


async def test_an_answer_that_is_no_node_says_so(tmp_path: Path) -> None:
    async with ScriptedServer(answer(200, b"<html>")) as server, connected(server, tmp_path) as api:
        with pytest.raises(ApiUnavailable, match="expected a node from GET /api/v1/nodes/n1"):
            await get_node(api, "n1")
