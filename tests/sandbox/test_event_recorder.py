"""Events are counted, not repeated."""

from __future__ import annotations

from typing import Any

from gas.sandbox.api_client import ApiClient
from gas.sandbox.event_recorder import EventRecorder
from tests.sandbox.objects import PODS, pod

EVENTS = "/api/v1/namespaces/default/events"


async def _told(client: ApiClient) -> list[tuple[str, int]]:
    listed = await client.get(EVENTS)
    return sorted((event["message"], event["count"]) for event in listed["items"])


async def _record(recorder: EventRecorder, about: dict[str, Any], *messages: str) -> None:
    for message in messages:
        await recorder.record(about, "Warning", "FailedScheduling", message)


async def test_the_same_again_is_counted_and_another_is_new(client: ApiClient) -> None:
    created = await client.post(PODS, pod("p"))
    await _record(EventRecorder(client, "default-scheduler"), created, "no", "no", "no", "other")
    assert await _told(client) == [("no", 3), ("other", 1)]
    (event, *_) = (await client.get(EVENTS))["items"]
    assert event["involvedObject"]["uid"] == created["metadata"]["uid"]
    assert event["source"] == {"component": "default-scheduler"}


async def test_a_pod_that_is_gone_is_forgotten(client: ApiClient) -> None:
    created = await client.post(PODS, pod("p"))
    recorder = EventRecorder(client, "default-scheduler")
    await _record(recorder, created, "no")
    recorder.forget(created["metadata"]["uid"])
    await _record(recorder, created, "no")
    assert await _told(client) == [("no", 1), ("no", 1)]


async def test_an_event_that_somebody_removed_is_written_anew_the_next_time(client: ApiClient) -> None:
    created = await client.post(PODS, pod("p"))
    recorder = EventRecorder(client, "default-scheduler")
    await _record(recorder, created, "no")
    (event,) = (await client.get(EVENTS))["items"]
    await client.delete(f"{EVENTS}/{event['metadata']['name']}")
    await _record(recorder, created, "no", "no")
    assert await _told(client) == [("no", 1)]
