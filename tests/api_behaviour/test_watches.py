"""Watches: their start, selections, bookmarks, and the end of history."""

from __future__ import annotations

import asyncio

import pytest

from tests.api_behaviour.client import KubeApi


async def test_a_watch_sees_every_change_after_its_version(api: KubeApi) -> None:
    await api.create_pod("before")
    version = (await api.get(api.pods)).version
    async with api.watch(api.pods, resourceVersion=version) as events:
        await api.create_pod("p")
        await api.patch(f"{api.pods}/p", {"metadata": {"labels": {"a": "1"}}})
        await api.delete(f"{api.pods}/p")
        assert await events.seen(4) == [("ADDED", "p"), ("MODIFIED", "p"), ("MODIFIED", "p"), ("DELETED", "p")]


async def test_events_carry_whole_objects_and_rising_versions(api: KubeApi) -> None:
    created = await api.create_pod("p")
    async with api.watch(api.pods, resourceVersion=created.version) as events:
        patched = await api.patch(f"{api.pods}/p", {"metadata": {"labels": {"a": "1"}}})
        word, seen = await events.next()
        assert (word, seen) == ("MODIFIED", patched.body)
        await api.delete(f"{api.pods}/p")
        _, going = await events.next()
        word, gone = await events.next()
        assert word == "DELETED"
        assert (gone["kind"], gone["apiVersion"]) == ("Pod", "v1")
        assert gone["metadata"]["uid"] == created.metadata["uid"]
        assert gone["metadata"]["deletionTimestamp"] == going["metadata"]["deletionTimestamp"]
        versions = [int(value["metadata"]["resourceVersion"]) for value in (seen, going, gone)]
        assert versions == sorted(set(versions))


async def test_the_last_event_of_a_pod_carries_its_last_state(api: KubeApi) -> None:
    created = await api.create_pod("p")
    await api.bind("p", "n", annotations={"gas-container-cards": "card0"})
    last = await api.patch(f"{api.pods}/p/status", {"status": {"phase": "Running"}})
    async with api.watch(api.pods, resourceVersion=created.version) as events:
        await api.delete(f"{api.pods}/p", {"gracePeriodSeconds": 0})
        word, seen = await events.next()
        while word != "DELETED":
            word, seen = await events.next()
    assert (seen["spec"], seen["status"]) == (last["spec"], last["status"])
    assert seen["metadata"]["annotations"] == {"gas-container-cards": "card0"}
    assert int(seen["metadata"]["resourceVersion"]) > int(last.version)


async def test_a_recreated_pod_is_a_deletion_and_another_uid(api: KubeApi) -> None:
    first = await api.create_pod("p")
    async with api.watch(api.pods, resourceVersion=first.version) as events:
        await api.delete(f"{api.pods}/p")
        second = await api.create_pod("p")
        found = [await events.next() for _ in range(3)]
    assert [word for word, _ in found] == ["MODIFIED", "DELETED", "ADDED"]
    uids = [first.metadata["uid"], first.metadata["uid"], second.metadata["uid"]]
    assert [value["metadata"]["uid"] for _, value in found] == uids


async def test_all_watches_see_the_same_events_in_the_same_order(api: KubeApi) -> None:
    version = (await api.get(api.pods)).version
    async with (
        api.watch(api.pods, resourceVersion=version) as one,
        api.watch("/api/v1/pods", resourceVersion=version, fieldSelector=f"metadata.namespace={api.namespace}") as two,
    ):
        await asyncio.gather(*(api.create_pod(f"p{n}") for n in range(6)))
        await asyncio.gather(*(api.bind(f"p{n}", "n", annotations={"n": str(n)}) for n in range(6)))
        first = [await one.next() for _ in range(12)]
        second = [await two.next() for _ in range(12)]
    assert first == second
    versions = [int(value["metadata"]["resourceVersion"]) for _, value in first]
    assert versions == sorted(versions)


async def test_all_kinds_share_one_counter_of_versions(api: KubeApi) -> None:
    name = f"{api.namespace}-node"
    versions = [
        (await api.create_pod("p")).version,
        (await api.post("/api/v1/nodes", {"metadata": {"name": name}})).version,
        (await api.post(api.leases, {"metadata": {"name": "l"}, "spec": {}})).version,
        (await api.patch(f"{api.pods}/p", {"metadata": {"labels": {"a": "1"}}})).version,
        (await api.get("/api/v1/nodes")).version,
    ]
    await api.delete(f"/api/v1/nodes/{name}")
    numbers = [int(version) for version in versions]
    assert numbers == sorted(numbers)
    assert len(set(numbers[:4])) == 4


async def test_a_watch_resumes_where_another_ended(api: KubeApi) -> None:
    created = await api.create_pod("a")
    async with api.watch(api.pods, resourceVersion=created.version) as events:
        await api.create_pod("b")
        _, seen = await events.next()
    await api.create_pod("c")
    await api.delete(f"{api.pods}/a")
    async with api.watch(api.pods, resourceVersion=seen["metadata"]["resourceVersion"]) as events:
        assert await events.seen(3) == [("ADDED", "c"), ("MODIFIED", "a"), ("DELETED", "a")]


@pytest.mark.parametrize("query", [{}, {"resourceVersion": "0"}], ids=["without-a-version", "from-any-version"])
async def test_a_watch_without_a_version_begins_with_the_existing_objects(api: KubeApi, query: dict[str, str]) -> None:
    await api.create_pod("a")
    await api.create_pod("b")
    await api.patch(f"{api.pods}/b", {"metadata": {"labels": {"x": "y"}}})
    async with api.watch(api.pods, **query) as events:
        assert sorted(await events.seen(2)) == [("ADDED", "a"), ("ADDED", "b")]
        await api.create_pod("c")
        following = await events.seen(1)
        if query and following == [("MODIFIED", "b")]:  # any version: that before the patch will do
            following = await events.seen(1)
        assert following == [("ADDED", "c")]


async def test_a_quiet_watch_responds_at_once_and_ends_after_its_time(api: KubeApi) -> None:
    version = (await api.get(api.pods)).version
    async with api.watch(api.pods, resourceVersion=version, timeoutSeconds="1") as events:
        assert await events.rest() == []


async def test_a_watch_over_all_namespaces(api: KubeApi) -> None:
    version = (await api.get("/api/v1/pods")).version
    async with api.watch("/api/v1/pods", resourceVersion=version) as events:
        await api.create_pod("p")
        word, seen = await events.next()
        assert (word, seen["metadata"]["namespace"]) == ("ADDED", api.namespace)


async def test_a_selected_watch_sees_pods_enter_and_leave_by_label(api: KubeApi) -> None:
    await api.create_pod("in", metadata={"labels": {"gpu": "yes"}})
    version = (await api.create_pod("out")).version
    async with api.watch(api.pods, resourceVersion=version, labelSelector="gpu=yes") as events:
        await api.patch(f"{api.pods}/out", {"metadata": {"annotations": {"unseen": "1"}}})
        await api.patch(f"{api.pods}/out", {"metadata": {"labels": {"gpu": "yes"}}})
        await api.patch(f"{api.pods}/in", {"metadata": {"labels": {"gpu": "no"}}})
        entered, left = await events.next(), await events.next()
    assert (entered[0], entered[1]["metadata"]["name"]) == ("ADDED", "out")
    assert (left[0], left[1]["metadata"]["name"]) == ("DELETED", "in")
    assert left[1]["metadata"]["labels"] == {"gpu": "yes"}, "the last state inside the selection"
    assert int(left[1]["metadata"]["resourceVersion"]) > int(entered[1]["metadata"]["resourceVersion"])


async def test_a_selected_watch_sees_pods_enter_and_leave_by_field(api: KubeApi) -> None:
    version = (await api.create_pod("p")).version
    selector = "spec.nodeName!=,status.phase!=Succeeded"
    async with api.watch(api.pods, resourceVersion=version, fieldSelector=selector) as events:
        await api.bind("p", "n")
        await api.patch(f"{api.pods}/p/status", {"status": {"phase": "Running"}})
        await api.patch(f"{api.pods}/p/status", {"status": {"phase": "Succeeded"}})
        assert await events.seen(3) == [("ADDED", "p"), ("MODIFIED", "p"), ("DELETED", "p")]


async def test_bookmarks_advance_a_quiet_watch_and_are_sent_only_on_request(api: KubeApi) -> None:
    version = (await api.get(api.pods)).version
    query = {"resourceVersion": version, "timeoutSeconds": "4", "fieldSelector": "metadata.name=quiet"}
    async with (
        api.watch(api.pods, allowWatchBookmarks="true", **query) as asking,
        api.watch(api.pods, **query) as not_asking,
    ):
        unseen = await api.create_pod("p")
        word, mark = (await asking.rest())[-1]
        assert await not_asking.rest() == []
    assert word == "BOOKMARK"
    assert (mark["kind"], mark["apiVersion"]) == ("Pod", "v1")
    assert int(mark["metadata"]["resourceVersion"]) >= int(unseen.version)
    assert not mark["metadata"].get("name")


async def test_a_version_whose_history_is_gone_is_an_error_event(api: KubeApi) -> None:
    if api.compact is None:
        pytest.skip("this API server's history cannot be compacted: GAS_API_COMPACT is not set")
    version = (await api.create_pod("a")).version
    await api.create_pod("b")
    await api.compact()
    async with api.watch(api.pods, resourceVersion=version) as events:
        ((word, status),) = await events.rest()
    assert word == "ERROR"
    assert (status["kind"], status["code"], status["reason"]) == ("Status", 410, "Expired")
    assert status["message"].startswith(f"too old resource version: {version} (")


async def test_a_new_list_and_watch_work_after_the_history_is_gone(api: KubeApi) -> None:
    if api.compact is None:
        pytest.skip("this API server's history cannot be compacted: GAS_API_COMPACT is not set")
    await api.create_pod("a")
    await api.compact()
    listed = await api.get(api.pods)
    assert listed.names == ["a"]
    async with api.watch(api.pods, resourceVersion=listed.version) as events:
        await api.create_pod("b")
        assert await events.seen(1) == [("ADDED", "b")]


async def test_a_version_must_be_a_number(api: KubeApi) -> None:
    response = await api.get(api.pods, watch="true", resourceVersion="abc")
    assert response.refusal == (500, "")
    assert "Invalid value" in response["message"]


async def test_other_kinds_are_watched_in_the_same_way(api: KubeApi) -> None:
    name = f"{api.namespace}-node"
    version = (await api.get("/api/v1/nodes")).version
    selector = f"metadata.name={name}"
    async with api.watch("/api/v1/nodes", resourceVersion=version, fieldSelector=selector) as events:
        await api.post("/api/v1/nodes", {"metadata": {"name": name}})
        await api.patch(f"/api/v1/nodes/{name}", {"metadata": {"annotations": {"a": "1"}}})
        await api.patch(f"/api/v1/nodes/{name}/status", {"status": {"capacity": {"cpu": "1"}}})
        await api.delete(f"/api/v1/nodes/{name}")
        words = [word for word, _ in await events.seen(4)]
    assert words == ["ADDED", "MODIFIED", "MODIFIED", "DELETED"]
