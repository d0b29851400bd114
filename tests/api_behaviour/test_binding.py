"""Binding: node and annotations in one write, or not at all."""

from __future__ import annotations

from typing import Any

import pytest

from tests.api_behaviour.client import KubeApi, binding

NODE = "some-node"


async def test_a_binding_sets_node_and_annotations_in_one_write(api: KubeApi) -> None:
    created = await api.create_pod("p", metadata={"annotations": {"mine": "stays", "gas-ts": "old"}})
    async with api.watch(api.pods, resourceVersion=created.version) as events:
        annotations = {"gas-container-cards": "card0", "gas-ts": "1700000000000000000"}
        answer = await api.bind("p", NODE, uid=created.metadata["uid"], annotations=annotations)
        assert answer.code == 201
        assert (answer["kind"], answer["status"]) == ("Status", "Success")
        word, seen = await events.next()
    assert word == "MODIFIED"
    assert seen["spec"]["nodeName"] == NODE
    assert seen["metadata"]["annotations"] == {"mine": "stays", **annotations}
    assert [(c["type"], c["status"]) for c in seen["status"]["conditions"]] == [("PodScheduled", "True")]
    assert seen == (await api.get(f"{api.pods}/p")).body


async def test_a_binding_without_uid_or_annotations(api: KubeApi) -> None:
    await api.create_pod("p")
    assert (await api.bind("p", NODE)).code == 201
    assert "annotations" not in (await api.get(f"{api.pods}/p")).metadata


async def test_the_condition_of_a_pod_that_had_no_room_turns(api: KubeApi) -> None:
    await api.create_pod("p")
    refused = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no room"}
    await api.patch(f"{api.pods}/p/status", {"status": {"conditions": [refused]}})
    await api.bind("p", NODE)
    (condition,) = (await api.get(f"{api.pods}/p"))["status"]["conditions"]
    assert condition["status"] == "True"
    assert "reason" not in condition
    assert "message" not in condition


async def test_a_pod_is_bound_once(api: KubeApi) -> None:
    created = await api.create_pod("p")
    await api.bind("p", NODE, annotations={"first": "1"})
    answer = await api.bind("p", "other", uid=created.metadata["uid"], annotations={"second": "2"})
    assert answer.refusal == (409, "Conflict")
    assert f'pod p is already assigned to node "{NODE}"' in answer["message"]
    now = await api.get(f"{api.pods}/p")
    assert (now["spec"]["nodeName"], now.metadata["annotations"]) == (NODE, {"first": "1"})


async def test_another_uid_is_a_conflict_and_changes_nothing(api: KubeApi) -> None:
    created = await api.create_pod("p")
    answer = await api.bind("p", NODE, uid="some-other-uid", annotations={"a": "1"})
    assert answer.refusal == (409, "Conflict")
    assert f"UID in precondition: some-other-uid, UID in object meta: {created.metadata['uid']}" in answer["message"]
    assert (await api.get(f"{api.pods}/p")).body == created.body


async def test_another_version_is_a_conflict(api: KubeApi) -> None:
    created = await api.create_pod("p")
    await api.patch(f"{api.pods}/p", {"metadata": {"labels": {"a": "1"}}})
    assert (await api.bind("p", NODE, resourceVersion=created.version)).refusal == (409, "Conflict")


async def test_a_pod_that_is_gone(api: KubeApi) -> None:
    answer = await api.bind("p", NODE)
    assert answer.refusal == (404, "NotFound")
    assert answer["message"] == 'pods "p" not found'


async def test_a_pod_that_is_being_deleted(api: KubeApi) -> None:
    await api.create_pod("p", metadata={"finalizers": ["example.com/wait"]})
    await api.delete(f"{api.pods}/p")
    answer = await api.bind("p", NODE)
    assert answer.refusal == (409, "Conflict")
    assert "pod p is being deleted, cannot be assigned to a host" in answer["message"]


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
async def test_a_binding_that_cannot_be(
    api: KubeApi, sent: dict[str, Any], refusal: tuple[int, str], message: str
) -> None:
    await api.create_pod("p")
    answer = await api.post(f"{api.pods}/p/binding", sent)
    assert answer.refusal == refusal
    assert message in answer["message"]
