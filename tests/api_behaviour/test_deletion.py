"""Deleting pods: grace periods, preconditions, finalizers."""

from __future__ import annotations

from datetime import datetime

from tests.api_behaviour.client import KubeApi


def _moment(text: str) -> datetime:
    return datetime.strptime(text, "%Y-%m-%dT%H:%M:%S%z")


async def test_a_bound_pod_stays_through_its_grace_period(api: KubeApi) -> None:
    created = await api.create_pod("p", terminationGracePeriodSeconds=40)
    await api.bind("p", "n")
    answer = await api.delete(f"{api.pods}/p")
    assert answer.code == 200
    assert answer["kind"] == "Pod"
    assert answer.metadata["deletionGracePeriodSeconds"] == 40
    seconds = _moment(answer.metadata["deletionTimestamp"]) - _moment(created.metadata["creationTimestamp"])
    assert 40 <= seconds.total_seconds() <= 100
    assert (await api.get(f"{api.pods}/p")).body == answer.body


async def test_deleting_again_only_shortens_the_wait(api: KubeApi) -> None:
    await api.create_pod("p")
    await api.bind("p", "n")
    first = await api.delete(f"{api.pods}/p")
    assert (await api.delete(f"{api.pods}/p")).version == first.version
    assert (await api.delete(f"{api.pods}/p", {"gracePeriodSeconds": 60})).version == first.version
    sooner = await api.delete(f"{api.pods}/p", {"gracePeriodSeconds": 5})
    assert sooner.metadata["deletionGracePeriodSeconds"] == 5
    earlier = _moment(first.metadata["deletionTimestamp"]) - _moment(sooner.metadata["deletionTimestamp"])
    assert 24 <= earlier.total_seconds() <= 26


async def test_no_grace_ends_a_pod_at_once(api: KubeApi) -> None:
    created = await api.create_pod("p")
    await api.bind("p", "n")
    async with api.watch(api.pods, resourceVersion=created.version) as events:
        await api.delete(f"{api.pods}/p")
        answer = await api.delete(f"{api.pods}/p", {"gracePeriodSeconds": 0})
        assert answer.code == 200
        assert (await api.get(f"{api.pods}/p")).code == 404
        words = [word for word, _ in await events.seen(4)]
    assert words == ["MODIFIED", "MODIFIED", "MODIFIED", "DELETED"]


async def test_the_grace_period_can_be_in_the_query(api: KubeApi) -> None:
    await api.create_pod("p")
    await api.bind("p", "n")
    await api.send("DELETE", f"{api.pods}/p", query={"gracePeriodSeconds": "0"})
    assert (await api.get(f"{api.pods}/p")).code == 404


async def test_a_pod_without_a_node_goes_at_once(api: KubeApi) -> None:
    await api.create_pod("p")
    answer = await api.delete(f"{api.pods}/p")
    assert (answer.code, answer["kind"]) == (200, "Pod")
    assert answer.metadata["deletionGracePeriodSeconds"] == 0
    assert (await api.get(f"{api.pods}/p")).code == 404


async def test_a_pod_that_is_over_goes_at_once(api: KubeApi) -> None:
    for name, phase in (("s", "Succeeded"), ("f", "Failed")):
        await api.create_pod(name)
        await api.bind(name, "n")
        await api.patch(f"{api.pods}/{name}/status", {"status": {"phase": phase}})
        await api.delete(f"{api.pods}/{name}")
        assert (await api.get(f"{api.pods}/{name}")).code == 404


async def test_the_uid_is_a_precondition(api: KubeApi) -> None:
    created = await api.create_pod("p")
    answer = await api.delete(f"{api.pods}/p", {"preconditions": {"uid": "some-other-uid"}})
    assert answer.refusal == (409, "Conflict")
    assert "the UID in the precondition (some-other-uid) does not match the UID in record" in answer["message"]
    right = {"preconditions": {"uid": created.metadata["uid"]}}
    assert (await api.delete(f"{api.pods}/p", right)).code == 200


async def test_a_finalizer_keeps_a_pod_until_it_is_taken_off(api: KubeApi) -> None:
    await api.create_pod("p", metadata={"finalizers": ["example.com/wait"]})
    await api.delete(f"{api.pods}/p")
    assert "deletionTimestamp" in (await api.get(f"{api.pods}/p")).metadata
    await api.patch(f"{api.pods}/p", {"metadata": {"finalizers": None}})
    assert (await api.get(f"{api.pods}/p")).code == 404


async def test_what_is_gone_cannot_be_deleted(api: KubeApi) -> None:
    assert (await api.delete(f"{api.pods}/p")).refusal == (404, "NotFound")
