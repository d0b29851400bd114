"""A node's status subresource as the device plugin uses it: labels, annotations and resources in one write."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.api_behaviour.client import KubeApi

TILES, MEMORY = "gpu.intel.com/tiles", "gpu.intel.com/memory.max"


@pytest.fixture
async def node(api: KubeApi) -> AsyncIterator[str]:
    """Return the path of a node that has tiles and a label."""
    name = f"node-of-{api.namespace}"
    resources = {"cpu": "8", TILES: "2"}
    made = {
        "metadata": {"name": name, "labels": {"a": "1"}},
        "status": {"capacity": resources, "allocatable": resources},
    }
    assert (await api.post("/api/v1/nodes", made)).code == 201
    yield f"/api/v1/nodes/{name}"
    await api.delete(f"/api/v1/nodes/{name}")


async def test_metadata_and_resources_change_in_one_write(api: KubeApi, node: str) -> None:
    amounts = {TILES: None, MEMORY: "8589934592"}
    change = {
        "metadata": {"labels": {"a": None, "b": "2"}, "annotations": {"c": "3"}},
        "status": {"capacity": amounts, "allocatable": amounts},
    }
    response = await api.patch(f"{node}/status", change)
    assert response.code == 200, response.body
    after = await api.get(node)
    assert after.body == response.body
    assert (after.metadata["labels"], after.metadata["annotations"]) == ({"b": "2"}, {"c": "3"})
    assert after["status"]["capacity"] == after["status"]["allocatable"] == {"cpu": "8", MEMORY: "8589934592"}


async def test_a_write_that_is_refused_changes_neither(api: KubeApi, node: str) -> None:
    before = await api.get(node)
    change = {"metadata": {"labels": {"b": "2"}}, "status": {"capacity": {TILES: "1.5"}}}
    assert (await api.patch(f"{node}/status", change)).refusal == (422, "Invalid")
    assert (await api.get(node)).body == before.body


async def test_the_spec_of_a_node_is_not_changed(api: KubeApi, node: str) -> None:
    response = await api.patch(f"{node}/status", {"spec": {"unschedulable": True}, "metadata": {"labels": {"b": "2"}}})
    assert response.code == 200, response.body
    assert "unschedulable" not in response["spec"]
    assert response.metadata["labels"] == {"a": "1", "b": "2"}


async def test_a_patch_of_the_node_itself_does_not_change_resources(api: KubeApi, node: str) -> None:
    response = await api.patch(node, {"status": {"capacity": {TILES: "9"}}})
    assert response["status"]["capacity"] == {"cpu": "8", TILES: "2"}


async def test_a_whole_status_replaces_resources_and_metadata_in_one_write(api: KubeApi, node: str) -> None:
    before = await api.get(node)
    resources = {"cpu": "8", MEMORY: "1Gi"}
    metadata = {"name": before.metadata["name"], "labels": {"b": "2"}}
    status = {"capacity": resources, "allocatable": resources}
    response = await api.put(
        f"{node}/status", {"metadata": metadata, "spec": {"unschedulable": True}, "status": status}
    )
    assert response.code == 200, response.body
    after = await api.get(node)
    assert after.body == response.body
    assert (after.metadata["labels"], after.metadata["uid"]) == ({"b": "2"}, before.metadata["uid"])
    assert after["status"]["capacity"] == after["status"]["allocatable"] == resources
    assert "unschedulable" not in after["spec"]
    assert (await api.put(f"{node}/status", before.body)).refusal == (409, "Conflict")
