"""Requests about single objects."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gas.cluster.connection import ApiServer
from gas.cluster.errors import ApiRefused, ApiUnavailable, OutcomeUnknown
from gas.cluster.objects import (
    bind_pod,
    get_pod,
    patch_node_annotations,
    patch_node_status,
    patch_pod_metadata,
)
from gas.cluster.paths import MalformedName
from gas.objects.stored import ObjectMeta, Pod
from tests.cluster.scripted_server import ScriptedServer, Step, answer, connected, hang_up, refuse

IMMUTABLE = 'Pod "web-0" is invalid: metadata.uid: Invalid value: "u1": field is immutable'
NODE = {"metadata": {"name": "n1", "labels": {"a": "1"}}, "status": {"capacity": {"cpu": "8"}}}


async def test_get_pod_reads_the_pod(tmp_path: Path) -> None:
    pod = {
        "metadata": {"name": "web-0", "namespace": "shop", "uid": "u1"},
        "spec": {"nodeName": "n1", "containers": []},
    }
    async with ScriptedServer(answer(200, pod)) as server, connected(server.url, tmp_path) as api:
        found = await get_pod(api, "shop", "web-0")
    assert found is not None
    assert (found.uid, found.node_name) == ("u1", "n1")
    assert server.seen[0].path == "/api/v1/namespaces/shop/pods/web-0"


async def test_get_pod_returns_none_if_the_pod_does_not_exist(tmp_path: Path) -> None:
    async with ScriptedServer(refuse(404, "NotFound")) as server, connected(server.url, tmp_path) as api:
        assert await get_pod(api, "shop", "web-0") is None


async def test_get_pod_names_the_request_if_the_response_is_not_a_pod(tmp_path: Path) -> None:
    async with ScriptedServer(answer(200, b"<html>")) as server, connected(server.url, tmp_path) as api:
        with pytest.raises(ApiUnavailable, match="expected an object from GET /api/v1/namespaces/shop/pods/web-0"):
            await get_pod(api, "shop", "web-0")


async def test_labels_and_annotations_are_set_and_removed_on_the_pod_with_this_uid(tmp_path: Path) -> None:
    async with ScriptedServer(answer(), answer()) as server, connected(server.url, tmp_path) as api:
        assert await patch_pod_metadata(api, "shop", "web-0", "u1", {"c": "d"}, labels={"a": "gpu", "b": None})
        assert await patch_pod_metadata(api, "shop", "web-0", "u1", {"c": None})
    seen = server.seen[0]
    assert (seen.method, seen.path) == ("PATCH", "/api/v1/namespaces/shop/pods/web-0")
    assert seen.headers["content-type"] == "application/merge-patch+json"
    assert seen.json == {"metadata": {"uid": "u1", "labels": {"a": "gpu", "b": None}, "annotations": {"c": "d"}}}
    assert server.seen[1].json == {"metadata": {"uid": "u1", "annotations": {"c": None}}}


@pytest.mark.parametrize(
    "step",
    [
        pytest.param(refuse(404, "NotFound"), id="the-pod-is-gone"),
        pytest.param(refuse(422, "Invalid", IMMUTABLE), id="another-pod-has-its-name"),
    ],
)
async def test_patching_labels_of_a_missing_pod_returns_false(tmp_path: Path, step: Step) -> None:
    async with ScriptedServer(step) as server, connected(server.url, tmp_path) as api:
        assert not await patch_pod_metadata(api, "shop", "web-0", "u1", labels={"a": "gpu"}, annotations={})


async def test_patching_labels_raises_any_other_refusal(tmp_path: Path) -> None:
    step = refuse(422, "Invalid", 'metadata.labels: Invalid value: "\u00fc"')
    async with ScriptedServer(step) as server, connected(server.url, tmp_path) as api:
        with pytest.raises(ApiRefused, match=r"metadata\.labels"):
            await patch_pod_metadata(api, "shop", "web-0", "u1", labels={"a": "\u00fc"}, annotations={})


async def test_annotations_of_a_node_are_set_and_removed(tmp_path: Path) -> None:
    steps = (answer(), refuse(404, "NotFound"), refuse(409, "Conflict"))
    async with ScriptedServer(*steps) as server, connected(server.url, tmp_path) as api:
        assert await patch_node_annotations(api, "n1", {"a": "1", "b": None})
        assert not await patch_node_annotations(api, "n1", {"a": "1"})
        with pytest.raises(ApiRefused):
            await patch_node_annotations(api, "n1", {"a": "1"})
    assert server.seen[0].path == "/api/v1/nodes/n1"
    assert server.seen[0].json == {"metadata": {"annotations": {"a": "1", "b": None}}}


async def test_metadata_and_status_are_patched_in_one_write(tmp_path: Path) -> None:
    patch = {"metadata": {"labels": {"a": "1", "b": None}}, "status": {"capacity": {"gpu.intel.com/tiles": "2"}}}
    async with ScriptedServer(answer(200, NODE)) as server, connected(server.url, tmp_path) as api:
        after = await patch_node_status(api, "n1", patch)
    assert after is not None
    assert after.labels == {"a": "1"}
    (seen,) = server.seen
    assert (seen.method, seen.path) == ("PATCH", "/api/v1/nodes/n1/status")
    assert seen.headers["content-type"] == "application/merge-patch+json"
    assert seen.json == patch


async def test_a_missing_node_is_none(tmp_path: Path) -> None:
    steps = (refuse(404, "NotFound"), refuse(409, "Conflict"))
    async with ScriptedServer(*steps) as server, connected(server.url, tmp_path) as api:
        assert await patch_node_status(api, "n1", {}) is None
        with pytest.raises(ApiRefused):
            await patch_node_status(api, "n1", {})


async def bind(api: ApiServer, name: str = "web-0") -> None:
    pod = Pod(metadata=ObjectMeta(name=name, namespace="shop", uid="u1", resource_version="7"))
    await bind_pod(api, pod, "n1", {"gas-container-cards": "card0|card1"})


# contract H3.8
@pytest.mark.parametrize(("node", "labels"), [("n1", {"where": "n1"}), ("n" * 64, None)])
async def test_bind_sets_labels_that_are_short_enough(tmp_path: Path, node: str, labels: dict[str, str] | None) -> None:
    pod = Pod(metadata=ObjectMeta(name="web-0", namespace="shop", uid="u1"))
    async with ScriptedServer(answer(201)) as server, connected(server.url, tmp_path) as api:
        await bind_pod(api, pod, node, {"where": node}, labels=["where", "missing"])
    body: Any = server.seen[0].json
    assert body["metadata"].get("labels") == labels


# contract E11.2, E11.3
async def test_bind_sets_node_and_annotations_of_the_pod_in_this_version_in_one_write(tmp_path: Path) -> None:
    async with ScriptedServer(answer(201)) as server, connected(server.url, tmp_path) as api:
        await bind(api)
    assert len(server.seen) == 1
    seen = server.seen[0]
    assert (seen.method, seen.path) == ("POST", "/api/v1/namespaces/shop/pods/web-0/binding")
    assert seen.json == {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {
            "name": "web-0",
            "namespace": "shop",
            "uid": "u1",
            "resourceVersion": "7",
            "annotations": {"gas-container-cards": "card0|card1"},
        },
        "target": {"apiVersion": "v1", "kind": "Node", "name": "n1"},
    }


async def test_a_refused_bind_raises_the_api_servers_reason(tmp_path: Path) -> None:
    step = refuse(409, "Conflict", 'pod web-0 is already assigned to node "n2"')
    async with ScriptedServer(step) as server, connected(server.url, tmp_path) as api:
        with pytest.raises(ApiRefused, match='already assigned to node "n2"') as caught:
            await bind(api)
    assert caught.value.status == 409


async def test_a_bind_whose_connection_breaks_has_an_unknown_outcome_and_is_not_repeated(tmp_path: Path) -> None:
    async with ScriptedServer(hang_up, answer(201)) as server, connected(server.url, tmp_path) as api:
        with pytest.raises(OutcomeUnknown):
            await bind(api)
    assert len(server.seen) == 1


async def test_a_pod_name_that_would_lead_to_another_path_is_never_sent(tmp_path: Path) -> None:
    async with ScriptedServer(answer(201)) as server, connected(server.url, tmp_path) as api:
        with pytest.raises(MalformedName):
            await bind(api, name="..")
    assert not server.seen
