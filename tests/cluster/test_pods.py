from __future__ import annotations

from pathlib import Path

import pytest

from gas.cluster.errors import ApiRefused, ApiUnavailable
from gas.cluster.nodes import patch_node_annotations
from gas.cluster.pods import get_pod, patch_pod_annotations, patch_pod_labels
from tests.cluster.scripted_server import ScriptedServer, Step, answer, connected, refuse

IMMUTABLE = 'Pod "web-0" is invalid: metadata.uid: Invalid value: "u1": field is immutable'


async def test_get_pod_reads_the_pod(tmp_path: Path) -> None:
    pod = {
        "metadata": {"name": "web-0", "namespace": "shop", "uid": "u1"},
        "spec": {"nodeName": "n1", "containers": []},
    }
    async with ScriptedServer(answer(200, pod)) as server, connected(server, tmp_path) as api:
        found = await get_pod(api, "shop", "web-0")
    assert found is not None
    assert (found.uid, found.node_name) == ("u1", "n1")
    assert server.seen[0].path == "/api/v1/namespaces/shop/pods/web-0"


async def test_get_pod_answers_none_when_there_is_none(tmp_path: Path) -> None:
    async with ScriptedServer(refuse(404, "NotFound")) as server, connected(server, tmp_path) as api:
        assert await get_pod(api, "shop", "web-0") is None


async def test_get_pod_says_so_when_the_answer_is_no_pod(tmp_path: Path) -> None:
    async with ScriptedServer(answer(200, b"<html>")) as server, connected(server, tmp_path) as api:
        with pytest.raises(ApiUnavailable, match="expected a pod from GET /api/v1/namespaces/shop/pods/web-0"):
            await get_pod(api, "shop", "web-0")


async def test_labels_are_set_and_taken_away_on_this_very_pod(tmp_path: Path) -> None:
    async with ScriptedServer(answer()) as server, connected(server, tmp_path) as api:
        assert await patch_pod_labels(api, "shop", "web-0", "u1", {"a": "gpu", "b": None})
    seen = server.seen[0]
    assert (seen.method, seen.path) == ("PATCH", "/api/v1/namespaces/shop/pods/web-0")
    assert seen.headers["content-type"] == "application/merge-patch+json"
    assert seen.json == {"metadata": {"uid": "u1", "labels": {"a": "gpu", "b": None}}}


@pytest.mark.parametrize(
    "step",
    [
        pytest.param(refuse(404, "NotFound"), id="the-pod-is-gone"),
        pytest.param(refuse(422, "Invalid", IMMUTABLE), id="another-pod-has-its-name"),
    ],
)
async def test_labels_of_a_pod_that_is_not_there_are_no_fault(tmp_path: Path, step: Step) -> None:
    async with ScriptedServer(step) as server, connected(server, tmp_path) as api:
        assert not await patch_pod_labels(api, "shop", "web-0", "u1", {"a": "gpu"})


async def test_labels_that_are_refused_for_another_reason_are_a_fault(tmp_path: Path) -> None:
    step = refuse(422, "Invalid", 'metadata.labels: Invalid value: "\u00fc"')
    async with ScriptedServer(step) as server, connected(server, tmp_path) as api:
        with pytest.raises(ApiRefused, match=r"metadata\.labels"):
            await patch_pod_labels(api, "shop", "web-0", "u1", {"a": "\u00fc"})


async def test_annotations_are_set_and_taken_away_on_this_very_pod(tmp_path: Path) -> None:
    steps = (answer(), refuse(422, "Invalid", IMMUTABLE))
    async with ScriptedServer(*steps) as server, connected(server, tmp_path) as api:
        assert await patch_pod_annotations(api, "shop", "web-0", "u1", {"a": "card0", "b": None})
        assert not await patch_pod_annotations(api, "shop", "web-0", "u1", {"a": "card0"})
    assert server.seen[0].json == {"metadata": {"uid": "u1", "annotations": {"a": "card0", "b": None}}}


async def test_annotations_of_a_node_are_set_and_taken_away(tmp_path: Path) -> None:
    steps = (answer(), refuse(404, "NotFound"), refuse(409, "Conflict"))
    async with ScriptedServer(*steps) as server, connected(server, tmp_path) as api:
        assert await patch_node_annotations(api, "n1", {"a": "1", "b": None})
        assert not await patch_node_annotations(api, "n1", {"a": "1"})
        with pytest.raises(ApiRefused):
            await patch_node_annotations(api, "n1", {"a": "1"})
    assert server.seen[0].path == "/api/v1/nodes/n1"
    assert server.seen[0].json == {"metadata": {"annotations": {"a": "1", "b": None}}}
