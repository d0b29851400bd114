"""Merge patches, the format that all clients send."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.api_behaviour.client import MERGE, KubeApi, Response

DESCHEDULE = "gpu.aware.scheduling/deschedule-pod"


async def _patched(api: KubeApi, patch: Any) -> dict[str, Any]:
    """Patch a pod that has the annotations a and b and the label l."""
    await api.create_pod("p", metadata={"annotations": {"a": "1", "b": "2"}, "labels": {"l": "1"}})
    response = await api.patch(f"{api.pods}/p", patch)
    assert response.code == 200, response.body
    assert response.body == (await api.get(f"{api.pods}/p")).body
    return response.metadata


async def test_maps_merge_and_null_removes(api: KubeApi) -> None:
    patch = {"metadata": {"annotations": {"a": None, "c": "3"}, "labels": {DESCHEDULE: "gpu"}}}
    metadata = await _patched(api, patch)
    assert metadata["annotations"] == {"b": "2", "c": "3"}
    assert metadata["labels"] == {"l": "1", DESCHEDULE: "gpu"}


async def test_a_map_is_removed_by_null_or_with_its_last_entry(api: KubeApi) -> None:
    metadata = await _patched(api, {"metadata": {"annotations": None, "labels": {"l": None}}})
    assert "annotations" not in metadata
    assert "labels" not in metadata


async def test_a_status_patch_changes_status_and_labels_but_no_spec(api: KubeApi) -> None:
    await api.create_pod("p")
    patch = {
        "metadata": {"annotations": {"a": "1"}},
        "spec": {"nodeName": "n"},
        "status": {"phase": "Running"},
    }
    response = await api.patch(f"{api.pods}/p/status", patch)
    assert response["status"]["phase"] == "Running"
    assert response.metadata["annotations"] == {"a": "1"}
    assert "nodeName" not in response["spec"]


async def test_a_patch_of_the_pod_leaves_its_status_alone(api: KubeApi) -> None:
    await api.create_pod("p")
    response = await api.patch(f"{api.pods}/p", {"status": {"phase": "Running"}})
    assert response["status"]["phase"] == "Pending"


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param({"nodeName": "n"}, id="node"),
        pytest.param({"schedulerName": "other"}, id="scheduler"),
        pytest.param({"terminationGracePeriodSeconds": 5}, id="grace-period"),
        pytest.param({"containers": [{"name": "c", "image": "x", "command": ["y"]}]}, id="command"),
    ],
)
async def test_the_spec_of_a_pod_does_not_change(api: KubeApi, spec: dict[str, Any]) -> None:
    await api.create_pod("p")
    response = await api.patch(f"{api.pods}/p", {"spec": spec})
    assert response.refusal == (422, "Invalid")
    assert "pod updates may not change fields other than" in response["message"]


async def test_the_image_of_a_container_may_change(api: KubeApi) -> None:
    created = await api.create_pod("p")
    change = {"spec": {"containers": [{**created["spec"]["containers"][0], "image": "example/c:2"}]}}
    response = await api.patch(f"{api.pods}/p", change)
    assert response["spec"]["containers"][0]["image"] == "example/c:2"


@pytest.mark.parametrize("part", ["", "/status"], ids=["pod", "status"])
async def test_the_uid_in_a_patch_is_a_precondition(api: KubeApi, part: str) -> None:
    created = await api.create_pod("p")
    path, change = f"{api.pods}/p{part}", {"labels": {"a": "1"}}
    right = {"metadata": {"uid": created.metadata["uid"], **change}}
    assert (await api.patch(path, right)).metadata["labels"] == {"a": "1"}
    response = await api.patch(path, {"metadata": {"uid": "other", **change}})
    assert response.refusal == (422, "Invalid")
    assert response["details"]["causes"][0]["field"] == "metadata.uid"


async def test_the_version_in_a_patch_is_a_precondition(api: KubeApi) -> None:
    created = await api.create_pod("p")
    path = f"{api.pods}/p"
    right = {"metadata": {"resourceVersion": created.version, "labels": {"a": "1"}}}
    assert (await api.patch(path, right)).code == 200
    assert (await api.patch(path, right)).refusal == (409, "Conflict")


async def test_annotations_change_in_every_state_of_a_pod_and_its_node_never(api: KubeApi) -> None:
    await api.create_pod("p")
    await api.bind("p", "n")
    steps: tuple[Callable[[], Awaitable[Response]], ...] = (
        lambda: api.patch(f"{api.pods}/p/status", {"status": {"phase": "Running"}}),
        lambda: api.delete(f"{api.pods}/p"),
        lambda: api.patch(f"{api.pods}/p/status", {"status": {"phase": "Succeeded"}}),
    )
    for number, step in enumerate(steps):
        assert (await step()).code == 200
        response = await api.patch(f"{api.pods}/p", {"metadata": {"annotations": {"a": str(number)}}})
        assert response.metadata["annotations"] == {"a": str(number)}
        assert (await api.patch(f"{api.pods}/p", {"spec": {"nodeName": "other"}})).refusal == (422, "Invalid")


@pytest.mark.parametrize(
    ("body", "content_type", "refusal"),
    [
        pytest.param(b'{"metadata":', MERGE, (400, "BadRequest"), id="broken-json"),
        pytest.param({"metadata": {"name": "other"}}, MERGE, (400, "BadRequest"), id="another-name"),
        pytest.param({}, "application/json", (415, "UnsupportedMediaType"), id="no-type-of-patch"),
        pytest.param({"metadata": {"labels": {"a": "b c"}}}, MERGE, (422, "Invalid"), id="a-wrong-label"),
        pytest.param({"metadata": {"annotations": {"a": 1}}}, MERGE, (422, "Invalid"), id="an-annotation-is-a-text"),
    ],
)
async def test_an_invalid_patch_is_refused(
    api: KubeApi, body: Any, content_type: str, refusal: tuple[int, str]
) -> None:
    created = await api.create_pod("p")
    assert (await api.patch(f"{api.pods}/p", body, content_type)).refusal == refusal
    assert (await api.get(f"{api.pods}/p")).body == created.body


async def test_a_patch_of_a_missing_pod_is_not_found(api: KubeApi) -> None:
    assert (await api.patch(f"{api.pods}/p", {})).refusal == (404, "NotFound")
