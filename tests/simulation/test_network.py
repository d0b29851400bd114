"""The connections between processes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import aiohttp
import pytest

from simulation.chance import Chance
from simulation.loop import Process, VirtualLoop
from simulation.network import BOOKMARK, LINGER, TIMED_OUT, Condition, Network, Server


class Wire:
    """A client and a server that counts what it carries out."""

    def __init__(self) -> None:
        self.loop = VirtualLoop(Chance(1, "loop"))
        self.network = Network(self.loop, Chance(1, "network"))
        self.process = Process("client")
        self.server = Server("api", Process("api"), self.app)
        self.carried_out: list[str] = []
        self.results: list[str] = []

    async def app(self, scope: dict[str, Any], receive: Callable[[], Any], send: Callable[[Any], Any]) -> None:
        self.carried_out.append((await receive())["body"].decode())
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for number in range(20):
            await send({"type": "http.response.body", "body": str(number).encode() + b","})

    async def post(self, patience: float = 10.0, target: str = "/x") -> None:
        try:
            async with self.network.exchange(self.process, self.server, "POST", target, headers={}, body=b"b") as it:
                async with asyncio.timeout(patience):
                    await it.head()
                    text = b""
                    while part := await it.chunk():
                        text += part
                    self.results.append(text.decode())
        except (aiohttp.ClientError, TimeoutError) as error:
            self.results.append(type(error).__name__)

    def play(self, work: Coroutine[Any, Any, None]) -> None:
        self.loop.start(self.process, work)
        self.loop.run_until_complete(asyncio.sleep(30))
        for task in asyncio.all_tasks(self.loop):
            task.cancel()
        self.loop.run_until_complete(asyncio.sleep(0))
        self.loop.close()


def test_a_response_arrives_whole_and_in_order() -> None:
    wire = Wire()
    wire.play(wire.post())
    assert wire.results == ["".join(f"{number}," for number in range(20))]
    assert wire.carried_out == ["b"]


def test_a_server_that_is_away_refuses_the_connection() -> None:
    wire = Wire()
    wire.server.up = False
    wire.play(wire.post())
    assert (wire.results, wire.carried_out) == (["ClientConnectorError"], [])


@pytest.mark.parametrize(
    ("condition", "result"),
    [
        pytest.param(Condition(lost=1.0), "ServerDisconnectedError", id="the-connection-breaks"),
        pytest.param(Condition(silent=1.0), "TimeoutError", id="the-client-gives-up"),
        pytest.param(Condition(failed=1.0), TIMED_OUT.decode(), id="the-server-had-too-little-time"),
    ],
)
def test_a_lost_response_does_not_undo_the_write(condition: Condition, result: str) -> None:
    wire = Wire()
    wire.network.conditions.append(condition)
    wire.play(wire.post())
    assert (wire.results, wire.carried_out) == ([result], ["b"])


def test_a_request_that_cannot_connect_is_not_carried_out() -> None:
    wire = Wire()
    wire.network.conditions.append(Condition(clients="client", cut=1.0))
    wire.play(wire.post())
    assert (wire.results, wire.carried_out) == (["ClientConnectorError"], [])


def test_events_of_a_watch_may_come_twice_and_bookmarks_not_at_all() -> None:
    wire = Wire()
    wire.network.repeats["client"] = 1.0
    wire.network.no_bookmarks.add("client")

    async def events(_scope: object, _receive: object, send: Callable[[Any], Any]) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for line in (b"event,", BOOKMARK + b"},"):
            await send({"type": "http.response.body", "body": line})

    wire.server.app = events
    wire.play(wire.post(target="/x?watch=true"))
    assert wire.results == ["event,event,"]


def test_a_late_event_of_a_watch_comes_within_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("simulation.network.LATEST_EVENT", 20.0)
    wire = Wire()
    wire.network.watch_delays["client"] = 1e9
    wire.play(wire.post(patience=25.0, target="/x?watch=true"))
    assert wire.results == ["".join(f"{number}," for number in range(20))]


@pytest.mark.parametrize(
    ("condition", "carried_out"),
    [
        pytest.param(Condition(path="/y", cut=1.0), ["b"], id="another-path"),
        pytest.param(Condition(method="PATCH", cut=1.0), ["b"], id="another-method"),
        pytest.param(Condition(method="POST", path="/x", cut=1.0), [], id="this-request"),
    ],
)
def test_a_condition_may_be_about_some_requests_only(condition: Condition, carried_out: list[str]) -> None:
    wire = Wire()
    wire.network.conditions.append(condition)
    wire.play(wire.post())
    assert wire.carried_out == carried_out


@pytest.mark.parametrize(("patience", "result"), [(1.5, "TimeoutError"), (2.5, None)])
def test_a_response_may_be_held_back(patience: float, result: str | None) -> None:
    wire = Wire()
    wire.network.conditions.append(Condition(hold=2.0))
    wire.play(wire.post(patience=patience))
    assert wire.carried_out == ["b"]
    assert wire.results == ([result] if result else ["".join(f"{number}," for number in range(20))])


@pytest.mark.parametrize(
    ("late", "carried_out"),
    [
        pytest.param(1.0 + LINGER / 2, ["b"], id="on-its-way-to-etcd"),
        pytest.param(1.0 + 2 * LINGER, [], id="called-back"),
    ],
)
def test_a_write_may_be_carried_out_shortly_after_the_client_gave_up(late: float, carried_out: list[str]) -> None:
    wire = Wire()
    wire.network.late = lambda _method, _path: late
    wire.play(wire.post(patience=1.0))
    assert (wire.results, wire.carried_out) == (["TimeoutError"], carried_out)


def test_a_client_that_is_killed_before_it_sends_sends_nothing() -> None:
    wire = Wire()

    def kill(client: Process, _method: str, _target: str) -> bool:
        client.kill()
        return False

    wire.network.on_send = kill
    wire.loop.start(wire.process, wire.post())
    wire.loop.run_until_complete(asyncio.sleep(5))
    assert (wire.results, wire.carried_out) == ([], [])
    wire.network.closed = True
    wire.loop.bury(wire.process)
    for task in asyncio.all_tasks(wire.loop):
        task.cancel()
    wire.loop.run_until_complete(asyncio.sleep(1))
    wire.loop.close()
