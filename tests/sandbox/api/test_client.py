"""Mirrors that follow the API server, and events that are counted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from sandbox.api.client import ApiClient, EventRecorder, Mirror, Object, event_note
from sandbox.api.kinds import NODES as KIND
from sandbox.api.server import ApiServer
from tests.sandbox.objects import PATIENCE, PODS, node, pod

NODES = "/api/v1/nodes"


class _Followed:
    """Run a mirror of the nodes, and record what it reports."""

    def __init__(self, client: ApiClient) -> None:
        self.told: list[str] = []
        self.mirror = Mirror(client, NODES, self._changed)

    def _changed(self, before: Object | None, after: Object | None) -> None:
        value = after or before or {}
        word = "changed" if before and after else "came" if after else "went"
        self.told.append(f"{value['metadata']['name']} {word}")

    async def until_told(self, *lines: str) -> None:
        for _ in range(PATIENCE * 100):
            if sorted(self.told) == sorted(lines):
                break
            await asyncio.sleep(0.01)
        assert sorted(self.told) == sorted(lines)


@pytest.fixture
async def followed(client: ApiClient) -> AsyncIterator[_Followed]:
    followed = _Followed(client)
    running = asyncio.create_task(followed.mirror.run())
    yield followed
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


def _names(mirror: Mirror) -> list[str]:
    return sorted(value["metadata"]["name"] for value in mirror.objects.values())


async def test_a_mirror_has_existing_objects_and_follows_every_change(client: ApiClient, followed: _Followed) -> None:
    await followed.mirror.complete.wait()
    await client.post(NODES, node("a"))
    await client.post(NODES, node("b"))
    await client.patch(f"{NODES}/a", {"metadata": {"labels": {"x": "y"}}})
    await client.delete(f"{NODES}/b")
    await followed.until_told("a came", "b came", "a changed", "b went")
    assert _names(followed.mirror) == ["a"]


async def test_a_mirror_reports_changes_that_happened_while_the_server_was_away(
    server: ApiServer, client: ApiClient, followed: _Followed
) -> None:
    for name in ("stays", "goes", "changes"):
        await client.post(NODES, node(name))
    came = ["stays came", "goes came", "changes came"]
    await followed.until_told(*came)

    await server.pause()
    _while_away(server)
    await server.resume()
    await followed.until_told(*came, "goes went", "changes changed", "new came")
    assert _names(followed.mirror) == ["changes", "new", "stays"]


def _while_away(server: ApiServer) -> None:
    server.api.delete(KIND, None, "goes", {})
    patch = ("application/merge-patch+json", b'{"metadata":{"labels":{"x":"y"}}}')
    server.api.patch(KIND, None, "changes", patch)
    server.api.create(KIND, None, node("new"))
    server.api.storage.compact()


EVENTS = "/api/v1/namespaces/default/events"


async def _told(client: ApiClient) -> list[tuple[str, int]]:
    listed = await client.get(EVENTS)
    return sorted((event["message"], event["count"]) for event in listed["items"])


async def _record(recorder: EventRecorder, about: dict[str, Any], *messages: str) -> None:
    for message in messages:
        await recorder.record(about, "Warning", "FailedScheduling", message)


async def test_a_repeated_event_is_counted_and_a_different_one_is_new(client: ApiClient) -> None:
    created = await client.post(PODS, pod("p"))
    await _record(EventRecorder(client, "default-scheduler"), created, "no", "no", "no", "other")
    assert await _told(client) == [("no", 3), ("other", 1)]
    (event, *_) = (await client.get(EVENTS))["items"]
    assert event["involvedObject"]["uid"] == created["metadata"]["uid"]
    assert event["source"] == {"component": "default-scheduler"}


async def test_events_of_a_pod_that_is_gone_are_forgotten(client: ApiClient) -> None:
    created = await client.post(PODS, pod("p"))
    recorder = EventRecorder(client, "default-scheduler")
    await _record(recorder, created, "no")
    recorder.forget(created["metadata"]["uid"])
    await _record(recorder, created, "no")
    assert await _told(client) == [("no", 1), ("no", 1)]


async def test_a_removed_event_is_written_again_the_next_time(client: ApiClient) -> None:
    created = await client.post(PODS, pod("p"))
    recorder = EventRecorder(client, "default-scheduler")
    await _record(recorder, created, "no")
    (event,) = (await client.get(EVENTS))["items"]
    await client.delete(f"{EVENTS}/{event['metadata']['name']}")
    await _record(recorder, created, "no", "no")
    assert await _told(client) == [("no", 1)]


def test_an_event_is_shortened_to_1024_characters() -> None:
    assert event_note("x" * 1024) == "x" * 1024
    assert event_note("x" * 1025) == "x" * 1020 + " ..."
