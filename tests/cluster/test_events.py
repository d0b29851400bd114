from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from gas.cluster.events import Events, Involved
from gas.values.timing import Timing
from tests.background import eventually
from tests.cluster.moved_clock import Clock
from tests.cluster.scripted_server import ScriptedServer, Seen, Step, answer, connected, hang_up, refuse

POD = Involved("Pod", "web-0", "u1", "shop")
NODE = Involved("Node", "n1", "u2")
FORBIDDEN = 'events is forbidden: User "gas" cannot create resource "events" in API group "" in the namespace "shop"'


@asynccontextmanager
async def writing(
    server: ScriptedServer, directory: Path, *, per_second: float = 1000, queue_size: int = 1000
) -> AsyncIterator[tuple[Events, Clock]]:
    clock = Clock()
    async with connected(server.url, directory) as api:
        events = Events(
            api, instance="host-1", per_second=per_second, queue_size=queue_size, timing=Timing(monotonic=clock)
        )
        task = asyncio.create_task(events.run())
        try:
            yield events, clock
        finally:
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task


def warn(events: Events, message: str = "no card has 5.0 GB", involved: Involved = POD) -> None:
    events.post(involved, severity="Warning", reason="CardsExhausted", message=message)


def always(step: Step) -> Callable[[Seen], Step]:
    return lambda seen: step


async def test_an_event_has_the_fields_that_kubectl_describe_shows(tmp_path: Path) -> None:
    async with ScriptedServer(route=always(answer(201))) as server, writing(server, tmp_path) as (events, _):
        warn(events)
        await eventually(lambda: events.written == 1)
    seen = server.seen[0]
    assert (seen.method, seen.path) == ("POST", "/api/v1/namespaces/shop/events")
    body = seen.json
    metadata = body.pop("metadata")
    assert isinstance(metadata, dict)
    assert metadata["namespace"] == "shop"
    assert metadata["name"].startswith("web-0.")
    assert body.pop("firstTimestamp") == body.pop("lastTimestamp")
    assert body == {
        "involvedObject": {"apiVersion": "v1", "kind": "Pod", "namespace": "shop", "name": "web-0", "uid": "u1"},
        "type": "Warning",
        "reason": "CardsExhausted",
        "message": "no card has 5.0 GB",
        "count": 1,
        "source": {"component": "gas-extender", "host": "host-1"},
        "reportingComponent": "gas-extender",
        "reportingInstance": "host-1",
    }


async def test_events_of_a_node_are_in_the_default_namespace(tmp_path: Path) -> None:
    async with ScriptedServer(route=always(answer(201))) as server, writing(server, tmp_path) as (events, _):
        warn(events, involved=NODE)
        await eventually(lambda: events.written == 1)
    assert server.seen[0].path == "/api/v1/namespaces/default/events"
    assert server.seen[0].json["involvedObject"] == {
        "apiVersion": "v1",
        "kind": "Node",
        "namespace": "",
        "name": "n1",
        "uid": "u2",
    }


async def test_equal_events_are_written_once_in_five_minutes_then_counted_on_the_same_object(tmp_path: Path) -> None:
    async with ScriptedServer(route=always(answer(201))) as server, writing(server, tmp_path) as (events, clock):
        warn(events)
        await eventually(lambda: events.written == 1)
        clock.now += 299
        warn(events)
        warn(events, "another sentence")
        await eventually(lambda: events.written == 2)
        clock.now += 2
        warn(events)
        await eventually(lambda: events.written == 3)
    assert [seen.method for seen in server.seen] == ["POST", "POST", "PATCH"]
    first = server.seen[0].json["metadata"]
    assert isinstance(first, dict)
    assert server.seen[2].path == f"/api/v1/namespaces/shop/events/{first['name']}"
    assert server.seen[2].json["count"] == 3
    assert set(server.seen[2].json) == {"count", "lastTimestamp"}


async def test_an_event_that_the_server_has_deleted_is_written_again(tmp_path: Path) -> None:
    steps = (answer(201), refuse(404, "NotFound"), answer(201))
    async with ScriptedServer(*steps) as server, writing(server, tmp_path) as (events, clock):
        warn(events)
        await eventually(lambda: events.written == 1)
        clock.now += 301
        warn(events)
        await eventually(lambda: events.written == 2)
    assert [seen.method for seen in server.seen] == ["POST", "PATCH", "POST"]
    assert server.seen[2].json["count"] == 2


async def test_a_lost_response_does_not_make_two_events(tmp_path: Path) -> None:
    async with ScriptedServer(hang_up, answer(200)) as server, writing(server, tmp_path) as (events, _):
        warn(events)
        await eventually(lambda: events.written == 1)
    assert [seen.method for seen in server.seen] == ["POST", "PATCH"]


async def test_a_missing_permission_is_logged_once_and_not_tried_for_ten_minutes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "gas.cluster.events")
    step = refuse(403, "Forbidden", FORBIDDEN)
    async with ScriptedServer(route=always(step)) as server, writing(server, tmp_path) as (events, clock):
        for number in range(5):
            warn(events, f"sentence {number}")
        await eventually(lambda: events.dropped == 5)
        assert len(server.seen) == 1
        clock.now += 601
        warn(events, "sentence 6")
        await eventually(lambda: len(server.seen) == 2)
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert 'the verb "create" on resource "events" in namespace "shop"' in caplog.text


async def test_a_refusal_in_a_deleted_namespace_does_not_stop_other_events(tmp_path: Path) -> None:
    ending = "unable to create new content in namespace shop because it is being terminated"
    steps = (refuse(403, "Forbidden", ending), answer(201))
    async with ScriptedServer(*steps) as server, writing(server, tmp_path) as (events, _):
        warn(events, "one")
        warn(events, "two")
        await eventually(lambda: (events.written, events.dropped) == (1, 1))


async def test_events_wait_while_the_api_server_is_unavailable_and_a_full_queue_drops_them(tmp_path: Path) -> None:
    back = asyncio.Event()

    def route(seen: Seen) -> Step:
        return answer(201) if back.is_set() else refuse(503)

    server = ScriptedServer(route=route)
    async with server, writing(server, tmp_path, queue_size=3) as (events, _):
        warn(events, "sentence 0")
        await eventually(lambda: server.seen)
        for number in range(1, 11):
            warn(events, f"sentence {number}")
        assert events.dropped == 7
        back.set()
        await eventually(lambda: events.written == 4)


async def test_writes_are_limited_per_second(tmp_path: Path) -> None:
    server = ScriptedServer(route=always(answer(201)))
    async with server, writing(server, tmp_path, per_second=10) as (events, _):
        started = asyncio.get_running_loop().time()
        for number in range(4):
            warn(events, f"sentence {number}")
        await eventually(lambda: events.written == 4)
        assert asyncio.get_running_loop().time() - started >= 0.3


async def test_a_long_message_is_cut_to_the_limit_of_an_event(tmp_path: Path) -> None:
    async with ScriptedServer(route=always(answer(201))) as server, writing(server, tmp_path) as (events, _):
        warn(events, "x" * 5000)
        await eventually(lambda: events.written == 1)
    message = server.seen[0].json["message"]
    assert isinstance(message, str)
    assert len(message) == 1024
    assert message.endswith("x…")


async def test_an_invalid_name_does_not_stop_other_events(tmp_path: Path) -> None:
    async with ScriptedServer(route=always(answer(201))) as server, writing(server, tmp_path) as (events, _):
        warn(events, involved=Involved("Pod", "web-0", "u1", ".."))
        warn(events)
        await eventually(lambda: (events.written, events.dropped) == (1, 1))
