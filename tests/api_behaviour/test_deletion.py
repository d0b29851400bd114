"""Deleting pods: grace periods, preconditions, finalizers."""

from __future__ import annotations

from datetime import datetime

from tests.api_behaviour.client import KubeApi


def _moment(text: str) -> datetime:
    return datetime.strptime(text, "%Y-%m-%dT%H:%M:%S%z")


async def test_a_bound_pod_stays_through_its_grace_period(api: KubeApi) -> None:
    created = await api.create_pod("p", terminationGracePeriodSeconds=40)
    await api.bind("p", "n")
    response = await api.delete(f"{api.pods}/p")
    assert response.code == 200
    assert response["kind"] == "Pod"
    assert response.metadata["deletionGracePeriodSeconds"] == 40
    seconds = _moment(response.metadata["deletionTimestamp"]) - _moment(created.metadata["creationTimestamp"])
    assert 40 <= seconds.total_seconds() <= 100
    assert (await api.get(f"{api.pods}/p")).body == response.body


async def test_deleting_again_can_only_shorten_the_grace_period(api: KubeApi) -> None:
    await api.create_pod("p")
    await api.bind("p", "n")
    first = await api.delete(f"{api.pods}/p")
    assert (await api.delete(f"{api.pods}/p")).version == first.version
    assert (await api.delete(f"{api.pods}/p", {"gracePeriodSeconds": 60})).version == first.version
    sooner = await api.delete(f"{api.pods}/p", {"gracePeriodSeconds": 5})
    assert sooner.metadata["deletionGracePeriodSeconds"] == 5
    earlier = _moment(first.metadata["deletionTimestamp"]) - _moment(sooner.metadata["deletionTimestamp"])
    assert 24 <= earlier.total_seconds() <= 26


async def test_a_grace_period_of_0_deletes_a_pod_at_once(api: KubeApi) -> None:
    created = await api.create_pod("p")
    await api.bind("p", "n")
    async with api.watch(api.pods, resourceVersion=created.version) as events:
        await api.delete(f"{api.pods}/p")
        response = await api.delete(f"{api.pods}/p", {"gracePeriodSeconds": 0})
        assert response.code == 200
        assert (await api.get(f"{api.pods}/p")).code == 404
        words = [word for word, _ in await events.seen(4)]
    assert words == ["MODIFIED", "MODIFIED", "MODIFIED", "DELETED"]


async def test_the_grace_period_can_be_in_the_query(api: KubeApi) -> None:
    await api.create_pod("p")
    await api.bind("p", "n")
    await api.send("DELETE", f"{api.pods}/p", query={"gracePeriodSeconds": "0"})
    assert (await api.get(f"{api.pods}/p")).code == 404


async def test_a_pod_without_a_node_is_deleted_at_once(api: KubeApi) -> None:
    await api.create_pod("p")
    response = await api.delete(f"{api.pods}/p")
    assert (response.code, response["kind"]) == (200, "Pod")
    assert response.metadata["deletionGracePeriodSeconds"] == 0
    assert (await api.get(f"{api.pods}/p")).code == 404


async def test_a_pod_that_has_ended_is_deleted_at_once(api: KubeApi) -> None:
    for name, phase in (("s", "Succeeded"), ("f", "Failed")):
        await api.create_pod(name)
        await api.bind(name, "n")
        await api.patch(f"{api.pods}/{name}/status", {"status": {"phase": phase}})
        await api.delete(f"{api.pods}/{name}")
        assert (await api.get(f"{api.pods}/{name}")).code == 404


async def test_the_uid_is_a_precondition(api: KubeApi) -> None:
    created = await api.create_pod("p")
    response = await api.delete(f"{api.pods}/p", {"preconditions": {"uid": "some-other-uid"}})
    assert response.refusal == (409, "Conflict")
    assert "the UID in the precondition (some-other-uid) does not match the UID in record" in response["message"]
    right = {"preconditions": {"uid": created.metadata["uid"]}}
    assert (await api.delete(f"{api.pods}/p", right)).code == 200


async def test_the_version_is_a_precondition(api: KubeApi) -> None:
    created = await api.create_pod("p")
    changed = await api.patch(f"{api.pods}/p", {"metadata": {"labels": {"a": "1"}}})
    response = await api.delete(f"{api.pods}/p", {"preconditions": {"resourceVersion": created.version}})
    assert response.refusal == (409, "Conflict")
    stale = f"the ResourceVersion in the precondition ({created.version}) does not match the ResourceVersion in record"
    assert stale in response["message"]
    right = {"preconditions": {"uid": created.metadata["uid"], "resourceVersion": changed.version}}
    assert (await api.delete(f"{api.pods}/p", right)).code == 200


async def test_a_deletion_of_an_earlier_pod_of_the_name_is_a_conflict(api: KubeApi) -> None:
    earlier = await api.create_pod("p")
    await api.delete(f"{api.pods}/p")
    created = await api.create_pod("p")
    options = {"gracePeriodSeconds": 0, "preconditions": {"uid": earlier.metadata["uid"]}}
    assert (await api.delete(f"{api.pods}/p", options)).refusal == (409, "Conflict")
    assert (await api.get(f"{api.pods}/p")).body == created.body


async def test_a_pod_that_ends_while_it_is_deleted_stays_until_kubelet_removes_it(api: KubeApi) -> None:
    await api.create_pod("p")
    assert (await api.bind("p", "n")).code == 201
    assert (await api.delete(f"{api.pods}/p")).code == 200
    assert (await api.patch(f"{api.pods}/p/status", {"status": {"phase": "Succeeded"}})).code == 200
    now = await api.get(f"{api.pods}/p")
    assert (now["status"]["phase"], now.metadata["deletionGracePeriodSeconds"]) == ("Succeeded", 30)
    await api.delete(f"{api.pods}/p", {"gracePeriodSeconds": 0})
    assert (await api.get(f"{api.pods}/p")).code == 404


async def test_pods_stay_when_their_node_is_deleted_and_a_node_of_that_name_is_another_one(api: KubeApi) -> None:
    name = f"node-of-{api.namespace}"
    node = await api.post("/api/v1/nodes", {"metadata": {"name": name}})
    await api.create_pod("p")
    await api.bind("p", name)
    before = await api.get(f"{api.pods}/p")
    response = await api.delete(f"/api/v1/nodes/{name}")
    assert (response.code, response["status"]) == (200, "Success")
    assert (await api.get(f"{api.pods}/p")).body == before.body
    again = await api.post("/api/v1/nodes", {"metadata": {"name": name}})
    assert again.metadata["uid"] != node.metadata["uid"]
    await api.delete(f"/api/v1/nodes/{name}")


async def test_a_finalizer_keeps_a_pod_until_it_is_removed(api: KubeApi) -> None:
    await api.create_pod("p", metadata={"finalizers": ["example.com/wait"]})
    await api.delete(f"{api.pods}/p")
    assert "deletionTimestamp" in (await api.get(f"{api.pods}/p")).metadata
    await api.patch(f"{api.pods}/p", {"metadata": {"finalizers": None}})
    assert (await api.get(f"{api.pods}/p")).code == 404


async def test_deleting_a_missing_object_is_not_found(api: KubeApi) -> None:
    assert (await api.delete(f"{api.pods}/p")).refusal == (404, "NotFound")
