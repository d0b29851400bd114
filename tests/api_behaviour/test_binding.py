"""Binding: node and annotations in one write, or not at all."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.api_behaviour.client import KubeApi, binding

NODE = "some-node"


async def test_a_binding_sets_node_and_annotations_in_one_write(api: KubeApi) -> None:
    created = await api.create_pod("p", metadata={"annotations": {"mine": "stays", "gas-ts": "old"}})
    async with api.watch(api.pods, resourceVersion=created.version) as events:
        annotations = {"gas-container-cards": "card0", "gas-ts": "1700000000000000000"}
        response = await api.bind("p", NODE, uid=created.metadata["uid"], annotations=annotations)
        assert response.code == 201
        assert (response["kind"], response["status"]) == ("Status", "Success")
        word, seen = await events.next()
    assert word == "MODIFIED"
    assert seen["spec"]["nodeName"] == NODE
    assert seen["metadata"]["annotations"] == {"mine": "stays", **annotations}
    assert [(c["type"], c["status"]) for c in seen["status"]["conditions"]] == [("PodScheduled", "True")]
    assert seen == (await api.get(f"{api.pods}/p")).body


async def test_a_binding_needs_no_uid_and_no_annotations(api: KubeApi) -> None:
    await api.create_pod("p")
    assert (await api.bind("p", NODE)).code == 201
    assert "annotations" not in (await api.get(f"{api.pods}/p")).metadata


async def test_a_binding_changes_the_condition_of_an_unschedulable_pod(api: KubeApi) -> None:
    await api.create_pod("p")
    refused = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no room"}
    await api.patch(f"{api.pods}/p/status", {"status": {"conditions": [refused]}})
    await api.bind("p", NODE)
    (condition,) = (await api.get(f"{api.pods}/p"))["status"]["conditions"]
    assert condition["status"] == "True"
    assert "reason" not in condition
    assert "message" not in condition


async def test_a_pod_is_bound_only_once(api: KubeApi) -> None:
    created = await api.create_pod("p")
    await api.bind("p", NODE, annotations={"first": "1"})
    response = await api.bind("p", "other", uid=created.metadata["uid"], annotations={"second": "2"})
    assert response.refusal == (409, "Conflict")
    assert f'pod p is already assigned to node "{NODE}"' in response["message"]
    now = await api.get(f"{api.pods}/p")
    assert (now["spec"]["nodeName"], now.metadata["annotations"]) == (NODE, {"first": "1"})


async def test_another_uid_is_a_conflict_and_changes_nothing(api: KubeApi) -> None:
    created = await api.create_pod("p")
    response = await api.bind("p", NODE, uid="some-other-uid", annotations={"a": "1"})
    assert response.refusal == (409, "Conflict")
    assert f"UID in precondition: some-other-uid, UID in object meta: {created.metadata['uid']}" in response["message"]
    assert (await api.get(f"{api.pods}/p")).body == created.body


async def test_another_version_is_a_conflict(api: KubeApi) -> None:
    created = await api.create_pod("p")
    await api.patch(f"{api.pods}/p", {"metadata": {"labels": {"a": "1"}}})
    assert (await api.bind("p", NODE, resourceVersion=created.version)).refusal == (409, "Conflict")


async def test_of_bindings_at_the_same_time_one_succeeds_whole(api: KubeApi) -> None:
    created = await api.create_pod("p")
    responses = await asyncio.gather(
        *(api.bind("p", f"n{n}", uid=created.metadata["uid"], annotations={"by": f"n{n}"}) for n in range(8))
    )
    assert sorted(response.code for response in responses) == [201] + 7 * [409]
    (winner,) = (f"n{n}" for n, response in enumerate(responses) if response.code == 201)
    now = await api.get(f"{api.pods}/p")
    assert (now["spec"]["nodeName"], now.metadata["annotations"]) == (winner, {"by": winner})


async def test_a_binding_for_an_earlier_pod_of_the_name_is_a_conflict(api: KubeApi) -> None:
    earlier = await api.create_pod("p")
    await api.delete(f"{api.pods}/p")
    created = await api.create_pod("p")
    assert (await api.bind("p", NODE, uid=earlier.metadata["uid"])).refusal == (409, "Conflict")
    assert (await api.get(f"{api.pods}/p")).body == created.body


@pytest.mark.parametrize("status", ["", "/status"], ids=["metadata", "status"])
async def test_every_write_after_its_version_ends_a_binding(api: KubeApi, status: str) -> None:
    created = await api.create_pod("p")
    await api.patch(f"{api.pods}/p{status}", {"metadata": {"annotations": {"a": "1"}}})
    response = await api.bind("p", NODE, uid=created.metadata["uid"], resourceVersion=created.version)
    assert response.refusal == (409, "Conflict")
    now = await api.get(f"{api.pods}/p")
    assert "nodeName" not in now["spec"]
    assert (await api.bind("p", NODE, uid=created.metadata["uid"], resourceVersion=now.version)).code == 201


async def test_a_binding_of_a_missing_pod_is_not_found(api: KubeApi) -> None:
    response = await api.bind("p", NODE)
    assert response.refusal == (404, "NotFound")
    assert response["message"] == 'pods "p" not found'


async def test_a_pod_that_is_being_deleted_is_not_bound(api: KubeApi) -> None:
    await api.create_pod("p", metadata={"finalizers": ["example.com/wait"]})
    await api.delete(f"{api.pods}/p")
    response = await api.bind("p", NODE)
    assert response.refusal == (409, "Conflict")
    assert "pod p is being deleted, cannot be assigned to a host" in response["message"]


@pytest.mark.parametrize(
    ("sent", "refusal", "message"),
    [
        pytest.param(
            binding("other", NODE),
            (400, "BadRequest"),
            "name in URL does not match name in Binding object",
            id="another-name",
        ),
        pytest.param(binding("p", ""), (500, ""), "target.name: Required value", id="no-node"),
        pytest.param(
            binding("p", NODE) | {"target": {"kind": "Pod", "name": NODE}},
            (500, ""),
            "target.kind: Unsupported value",
            id="not-to-a-pod",
        ),
    ],
)
async def test_an_invalid_binding_is_refused(
    api: KubeApi, sent: dict[str, Any], refusal: tuple[int, str], message: str
) -> None:
    await api.create_pod("p")
    response = await api.post(f"{api.pods}/p/binding", sent)
    assert response.refusal == refusal
    assert message in response["message"]
