from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import socket
import ssl
import struct
import time
from asyncio.sslproto import SSLProtocol
from contextlib import ExitStack
from itertools import pairwise
from typing import Any

import pytest
from hypercorn.asyncio.tcp_server import TCPServer
from starlette.types import Receive, Scope, Send

from gas.daemon.listening import ListeningSocket, listen
from gas.daemon.serving import ACCEPTED_AT_ONCE, LINGER, PLACE_CHECK, Port, serve
from gas.extender.metrics import Metrics
from gas.extender.server import ServedVerb, extender_app
from sandbox.certificates import Authority
from tests.extender.handshakes import client_context, serving_certificates
from tests.extender.running import Running, read_to_end, running, trickle, wait_until

LARGE = 30_000_000
POST_WITHOUT_BODY = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n"


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    """Respond to every request: /slow after a while, /busy as the only one, /large with much."""
    if scope["type"] == "http":
        while (await receive()).get("more_body", False):
            pass
    if scope["path"] == "/slow":
        await asyncio.sleep(0.5)
    if scope["path"] == "/busy":
        time.sleep(0.2)  # noqa: ASYNC251  # the event loop does nothing else meanwhile
    if scope["path"] == "/stuck":
        await asyncio.sleep(3600)
    body = b"x" * LARGE if scope["path"] == "/large" else b"ok"
    headers = [(b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def get(path: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode()


def read_answer(client: socket.socket) -> bytes:
    """Read the whole of app's short response."""
    answer = b""
    while not answer.endswith(b"ok"):
        piece = client.recv(1000)
        assert piece, "closed before the answer's end"
        answer += piece
    return answer


def tls_sides(authority: Authority, *, tls: bool = True) -> dict[str, Any]:
    """Return the arguments of `running` for a port with TLS and a client that may call it; none without TLS."""
    if not tls:
        return {}
    return {
        "tls": serving_certificates(authority, Metrics("test")),
        "client": client_context(authority, authority.client("scheduler")),
    }


def is_closed(client: socket.socket) -> bool:
    client.settimeout(15)
    try:
        return client.recv(1) == b""
    except OSError as error:
        return not isinstance(error, TimeoutError)


def seconds_to_end(served: Running) -> float:
    began = time.monotonic()
    served.stop()
    served.ended()
    return time.monotonic() - began


class TestShutdown:
    # contract E12.4
    def test_a_request_in_progress_is_finished(self) -> None:
        with running(app) as served, served.connect() as client:
            client.sendall(get("/slow"))
            time.sleep(0.1)
            served.stop()
            assert read_to_end(client).endswith(b"\r\n\r\nok")

    # contract E12.4
    @pytest.mark.parametrize("tls", [True, False], ids=["tls", "plain"])
    def test_a_request_just_after_the_signal_is_completed_and_ends_its_connection(
        self, authority: Authority, *, tls: bool
    ) -> None:
        sides = tls_sides(authority, tls=tls)
        with running(app, **sides) as served, served.connect() as client:
            client.sendall(get("/"))
            assert b"connection: close" not in read_answer(client)
            served.stop()
            time.sleep(0.1)
            client.sendall(get("/"))
            assert b"connection: close" in read_answer(client)
            assert is_closed(client)

    @pytest.mark.parametrize("tls", [True, False], ids=["tls", "plain"])
    def test_a_request_on_a_connection_that_closes_is_either_not_started_or_answered(
        self, authority: Authority, *, tls: bool
    ) -> None:
        started: list[str] = []

        async def counting(scope: Scope, receive: Receive, send: Send) -> None:
            started.append(scope["path"])
            await app(scope, receive, send)

        sides = tls_sides(authority, tls=tls)
        answered = []
        with running(counting, **sides) as served, ExitStack() as opened:
            clients = [opened.enter_context(served.connect()) for _ in range(60)]
            for client in clients:
                client.sendall(get("/"))
                read_answer(client)
            started.clear()
            served.stop()
            time.sleep(LINGER - 0.03)
            for number, client in enumerate(clients):  # 60 ms around the end of the idle connections
                with contextlib.suppress(OSError):
                    client.sendall(get(f"/{number}"))
                time.sleep(0.001)
            for number, client in enumerate(clients):
                with contextlib.suppress(OSError, AssertionError):
                    read_answer(client)
                    answered.append(f"/{number}")
        assert sorted(started) == sorted(answered)

    @pytest.mark.parametrize("later", range(8))
    async def test_a_request_that_arrives_in_the_turn_of_closing_is_either_not_started_or_answered(
        self, monkeypatch: pytest.MonkeyPatch, later: int
    ) -> None:
        monkeypatch.setattr("gas.daemon.serving.LINGER", 0)
        started: list[str] = []

        async def counting(scope: Scope, receive: Receive, send: Send) -> None:
            started.append(scope["path"])
            await app(scope, receive, send)

        opened, stopping = listen("127.0.0.1", 0, flag="port"), asyncio.Event()
        ports = [Port(app=counting, socket=opened, tls=None, keep_alive=5.0)]
        serving = asyncio.create_task(serve(ports, stopping, graceful_timeout=1.0))
        clients = {f"/{number}": socket.create_connection(opened.getsockname()) for number in range(8)}
        for path, client in clients.items():
            client.sendall(get(path))
        await asyncio.sleep(0.3)
        assert sorted(started) == sorted(clients)
        started.clear()
        stopping.set()
        for _ in range(later):
            await asyncio.sleep(0)
        for path, client in clients.items():
            with contextlib.suppress(OSError):
                client.sendall(get(path))
        await serving
        answered = [path for path, client in clients.items() if read_to_end(client).count(b"ok") == 2]
        for client in clients.values():
            client.close()
        assert sorted(started) == sorted(answered)

    def test_no_new_connection_is_accepted(self) -> None:
        with running(app) as served:
            with served.connect() as client:
                client.sendall(get("/"))
                read_answer(client)
                served.stop()
                assert is_closed(client)
            served.ended()
            with pytest.raises(ConnectionRefusedError):
                served.connect()

    def test_a_request_that_never_ends_is_cut_off(self) -> None:
        with running(app, graceful_timeout=0.3) as served, served.connect() as client:
            client.sendall(get("/stuck"))
            time.sleep(0.1)
            assert seconds_to_end(served) < 8

    @pytest.mark.parametrize("tls", [True, False], ids=["tls", "plain"])
    @pytest.mark.parametrize("path", ["/", "/large"], ids=["idle", "reads-nothing"])
    def test_an_idle_client_does_not_delay_the_end(self, authority: Authority, path: str, *, tls: bool) -> None:
        sides = tls_sides(authority, tls=tls)
        with running(app, **sides, graceful_timeout=0.5) as served, served.connect() as client:
            client.sendall(get(path))
            client.recv(10)
            time.sleep(0.2)
            assert seconds_to_end(served) < 8

    async def test_two_ports_stop_together(self) -> None:
        sockets = [listen("127.0.0.1", 0, flag="port") for _ in range(2)]
        ports = [Port(app=app, socket=each, tls=None, keep_alive=5.0) for each in sockets]
        shutdown = asyncio.Event()
        serving = asyncio.create_task(serve(ports, shutdown, graceful_timeout=1.0))
        for each in sockets:
            reader, writer = await asyncio.open_connection(*each.getsockname())
            writer.write(get("/"))
            assert (await reader.readline()).startswith(b"HTTP/1.1 200")
            writer.close()
        shutdown.set()
        await asyncio.wait_for(serving, 10)

    async def test_a_port_that_fails_stops_the_others_and_raises_the_reason(self) -> None:
        broken, whole = (listen("127.0.0.1", 0, flag="port") for _ in range(2))
        broken.close()
        ports = [Port(app=app, socket=each, tls=None, keep_alive=5.0) for each in (broken, whole)]
        with pytest.raises((OSError, ValueError)):
            await asyncio.wait_for(serve(ports, asyncio.Event(), graceful_timeout=1.0), 10)
        whole.close()


class TestSlowClients:
    def test_an_unfinished_handshake_is_cut_off(self, authority: Authority) -> None:
        context = serving_certificates(authority, Metrics("test"))
        with (
            running(app, tls=context, handshake_timeout=0.5) as served,
            socket.create_connection(("127.0.0.1", served.port)) as silent,
            socket.create_connection(("127.0.0.1", served.port)) as trickling,
        ):
            trickling.sendall(b"\x16\x03\x01\x40")
            assert trickle(trickling, b"\x00") == b""
            assert is_closed(silent)

    def test_a_silent_connection_ends_with_the_keep_alive(self) -> None:
        with running(app, keep_alive=1.5) as served, served.connect() as client:
            began = time.monotonic()
            assert is_closed(client)
            assert 1 < time.monotonic() - began < 2.5

    def test_an_idle_connection_lives_as_long_as_the_keep_alive(self) -> None:
        with running(app, keep_alive=30) as served, served.connect() as client:
            for _ in range(2):
                client.sendall(get("/"))
                assert read_answer(client).startswith(b"HTTP/1.1 200")
                time.sleep(0.6)

    def test_a_client_that_takes_nothing_is_given_up(self, caplog: pytest.LogCaptureFixture) -> None:
        with running(app, stalled=1500) as served, served.connect() as client:
            client.sendall(get("/large"))
            wait_until(lambda: "closed a broken connection" in caplog.text)


@pytest.mark.parametrize("tls", [True, False], ids=["tls", "plain"])
@pytest.mark.parametrize(
    "paths", [[], ["/"], ["/", "/"], ["/slow"]], ids=["none", "one", "two", "closed-before-the-response"]
)
def test_nothing_is_kept_of_a_connection_that_its_client_has_closed(
    authority: Authority, paths: list[str], *, tls: bool
) -> None:
    sides = tls_sides(authority, tls=tls)
    with running(app, **sides, keep_alive=60) as served:
        before = served.tasks()
        with served.connect() as client:
            wait_until(lambda: served.tasks() > before)
            for path in paths:
                client.sendall(get(path))
                if path == "/":
                    read_answer(client)
            time.sleep(0.1)
        wait_until(lambda: served.tasks() == before)


@pytest.mark.parametrize("tls", [True, False], ids=["tls", "plain"])
@pytest.mark.parametrize("count", [0, 2])
def test_the_memory_of_a_connection_is_free_without_the_garbage_collector(
    authority: Authority, count: int, *, tls: bool
) -> None:
    sides = tls_sides(authority, tls=tls)

    def connections() -> int:
        return sum(isinstance(each, TCPServer) for each in gc.get_objects())

    with running(app, **sides) as served:
        gc.collect()
        before = connections()
        gc.disable()
        try:
            with served.connect() as client:
                wait_until(lambda: connections() > before)
                for _ in range(count):
                    client.sendall(get("/"))
                    read_answer(client)
            wait_until(lambda: connections() == before)
        finally:
            gc.enable()


@pytest.mark.parametrize("is_reset", [True, False], ids=["reset", "closed"])
@pytest.mark.parametrize("path", ["/", "/slow", "/large"])
def test_a_client_that_leaves_before_its_request_is_read_logs_no_error(
    authority: Authority, caplog: pytest.LogCaptureFixture, path: str, *, is_reset: bool
) -> None:
    sides = tls_sides(authority)
    with running(app, **sides) as served:
        before = served.tasks()
        with served.connect() as other, served.connect() as client:
            wait_until(lambda: served.tasks() == before + 2)
            other.sendall(get("/busy"))
            time.sleep(0.05)
            client.sendall(get(path))
            if is_reset:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            client.close()
            read_answer(other)
        wait_until(lambda: served.tasks() == before)
    assert "Traceback" not in caplog.text


def test_an_idle_connection_has_a_single_task() -> None:
    with running(app) as served:
        before = served.tasks()
        with served.connect() as client:
            for _ in range(2):
                client.sendall(get("/"))
                read_answer(client)
            wait_until(lambda: served.tasks() == before + 1)


def test_a_client_that_sends_no_more_gets_its_response_and_then_the_end() -> None:
    with running(app, keep_alive=60) as served, served.connect() as client:
        client.sendall(get("/slow"))
        client.shutdown(socket.SHUT_WR)
        assert read_answer(client).startswith(b"HTTP/1.1 200")
        assert is_closed(client)


def test_plain_http_on_the_tls_port_logs_no_error(authority: Authority, caplog: pytest.LogCaptureFixture) -> None:
    metrics = Metrics("test")
    context = serving_certificates(authority, metrics)
    with running(app, tls=context) as served, socket.create_connection(("127.0.0.1", served.port)) as client:
        client.sendall(get("/"))
        assert is_closed(client)
    assert metrics.registry.get_sample_value("gas_extender_refused_clients_total", {"reason": "handshake"}) == 1
    assert "Traceback" not in caplog.text


@pytest.mark.parametrize("kind", ["none", "foreign", "other-name"])
def test_a_refused_client_gets_no_response(authority: Authority, kind: str) -> None:
    async def verb(_body: bytes) -> bytes:
        raise AssertionError

    foreign = Authority(authority.directory, "foreign")
    pair = {"none": None, "foreign": foreign.client("scheduler"), "other-name": authority.client("kubelet")}[kind]
    metrics = Metrics("test")
    certificates = serving_certificates(authority, metrics, allowed_names=frozenset({"scheduler"}))
    extender = extender_app(
        {"filter": ServedVerb(verb), "bind": ServedVerb(verb, is_undisturbed=True)},
        metrics,
        max_body=10,
        body_timeout=5,
    )
    with running(extender, tls=certificates, client=client_context(authority, pair)) as served:
        with pytest.raises((ssl.SSLError, ConnectionError, OSError)):
            served.ask("POST", "/scheduler/filter", b"{}", {"Content-Type": "application/json"})
        assert metrics.registry.get_sample_value("gas_extender_requests_total") is None


def test_changed_certificates_serve_the_next_connection_and_leave_open_ones(authority: Authority) -> None:
    metrics = Metrics("test")
    certificates = serving_certificates(authority, metrics)
    client_tls = client_context(authority, authority.client("scheduler"))
    with running(app, tls=certificates, client=client_tls) as served, served.connect() as before:
        assert isinstance(before, ssl.SSLSocket)
        authority.server()
        certificates.reload()
        assert certificates.reload()
        with served.connect() as after:
            assert isinstance(after, ssl.SSLSocket)
            assert (before.getpeercert() or {})["serialNumber"] != (after.getpeercert() or {})["serialNumber"]
        before.sendall(get("/"))
        assert read_answer(before).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize(("method", "written"), [("GET", b"ok"), ("HEAD", b"\r\n\r\n")])
def test_the_head_of_a_response_leaves_with_its_body(
    monkeypatch: pytest.MonkeyPatch, method: str, written: bytes
) -> None:
    pieces: list[bytes] = []
    write = asyncio.StreamWriter.write

    def recording(writer: asyncio.StreamWriter, data: bytes) -> None:
        pieces.append(data)
        write(writer, data)

    monkeypatch.setattr(asyncio.StreamWriter, "write", recording)
    with running(app) as served:
        assert served.ask(method, "/")[0] == 200
    (head,) = (piece for piece in pieces if piece.startswith(b"HTTP/1.1 200"))
    assert head.endswith(written)
    assert b"" not in pieces


def test_the_response_does_not_name_hypercorn() -> None:
    with running(app) as served:
        assert "server" not in served.ask("GET", "/")[2]
        assert json.dumps(served.ask("GET", "/")[1].decode()) == '"ok"'


class TestMostConnections:
    def test_a_further_connection_takes_the_place_of_the_idlest(self) -> None:
        with running(app, most=3) as served, ExitStack() as stack:
            first, second, third = (stack.enter_context(served.connect()) for _ in range(3))
            for client in (second, third, first):
                client.sendall(get("/"))
                read_answer(client)
            for _ in range(2):
                further = stack.enter_context(served.connect())
                further.sendall(get("/"))
                assert read_answer(further).startswith(b"HTTP/1.1 200")
            assert is_closed(second)
            assert is_closed(third)
            first.sendall(get("/"))
            assert read_answer(first).startswith(b"HTTP/1.1 200")

    def test_a_request_in_progress_keeps_its_connection(self) -> None:
        with running(app, most=2) as served, served.connect() as slow, served.connect() as other:
            for client in (slow, other):
                client.sendall(get("/slow"))
            time.sleep(0.2)
            with served.connect() as refused:
                refused.sendall(get("/"))
                assert is_closed(refused)
            assert read_answer(slow).startswith(b"HTTP/1.1 200")
            assert read_answer(other).startswith(b"HTTP/1.1 200")
            with served.connect() as further:
                further.sendall(get("/"))
                assert read_answer(further).startswith(b"HTTP/1.1 200")

    @pytest.mark.parametrize("sent", [b"", b"\x16\x03\x01\x40"], ids=["silent", "unfinished-handshake"])
    def test_connections_without_a_handshake_are_limited_as_well(self, authority: Authority, sent: bytes) -> None:
        context = serving_certificates(authority, Metrics("test"))
        client = client_context(authority, authority.client("scheduler"))
        with running(app, tls=context, client=client, most=4) as served, ExitStack() as stack:
            silent = [
                stack.enter_context(socket.create_connection(("127.0.0.1", served.port), timeout=20)) for _ in range(20)
            ]
            for each in silent:
                with contextlib.suppress(OSError):
                    each.sendall(sent)
            with served.connect() as asking:
                asking.sendall(get("/"))
                assert read_answer(asking).startswith(b"HTTP/1.1 200")
            assert all(map(is_closed, silent[:16]))

    def test_clients_without_a_complete_request_close_no_other_connection(self) -> None:
        with running(app, most=2) as served, served.connect() as idle, ExitStack() as stack:
            idle.sendall(get("/"))
            read_answer(idle)
            for _ in range(10):
                slow = stack.enter_context(served.connect())
                slow.sendall(POST_WITHOUT_BODY)
            with served.connect() as busy:
                busy.sendall(get("/slow"))
                time.sleep(0.2)
                for _ in range(10):
                    slow = stack.enter_context(served.connect())
                    slow.sendall(POST_WITHOUT_BODY)
                assert read_answer(busy).startswith(b"HTTP/1.1 200")
            idle.sendall(get("/"))
            assert read_answer(idle).startswith(b"HTTP/1.1 200")

    def test_a_connection_that_is_slow_with_its_second_request_gives_up_its_place(self) -> None:
        with running(app, most=2) as served, ExitStack() as stack:
            for _ in range(4):
                slow = stack.enter_context(served.connect())
                slow.sendall(get("/"))
                read_answer(slow)
                slow.sendall(POST_WITHOUT_BODY)
            time.sleep(0.2)
            with served.connect() as asking:
                asking.sendall(get("/"))
                assert read_answer(asking).startswith(b"HTTP/1.1 200")

    def test_an_unproven_connection_has_its_time_before_another_takes_its_place(self) -> None:
        with running(app, most=2, least_time=1.0) as served, ExitStack() as stack:
            began = time.monotonic()
            first, second, third = (stack.enter_context(served.connect()) for _ in range(3))
            third.sendall(get("/"))
            time.sleep(0.3)
            second.sendall(get("/"))
            assert read_answer(second).startswith(b"HTTP/1.1 200")
            assert read_answer(third).startswith(b"HTTP/1.1 200")
            first.sendall(get("/"))
            assert read_answer(first).startswith(b"HTTP/1.1 200")
            fourth, fifth, last = (stack.enter_context(served.connect()) for _ in range(3))
            last.sendall(get("/"))
            assert read_answer(last).startswith(b"HTTP/1.1 200")
            assert time.monotonic() - began > 1.0
            assert is_closed(fourth)
            fifth.sendall(get("/"))
            assert read_answer(fifth).startswith(b"HTTP/1.1 200")


async def test_few_connections_are_accepted_before_open_ones_get_a_turn() -> None:
    opened, stopping = listen("127.0.0.1", 0, flag="port"), asyncio.Event()
    accepted: list[float] = []
    turns: list[int] = []

    class Counting(ListeningSocket):
        def accept(self) -> tuple[socket.socket, Any]:
            connection = super().accept()
            accepted.append(time.monotonic())
            return connection

    counting = Counting(opened)
    clients = [socket.create_connection(counting.getsockname()) for _ in range(3 * ACCEPTED_AT_ONCE)]
    port = Port(app=app, socket=counting, tls=None, keep_alive=5.0)
    serving = asyncio.create_task(serve([port], stopping, graceful_timeout=1.0))
    while len(accepted) < len(clients):
        turns.append(len(accepted))
        await asyncio.sleep(0)
    assert max(later - earlier for earlier, later in pairwise([*turns, len(accepted)])) <= ACCEPTED_AT_ONCE
    for client in clients:
        client.close()
    stopping.set()
    await serving


async def test_a_connection_without_a_place_is_looked_at_a_few_times_a_second() -> None:
    """It stays readable in the kernel's queue, so the event loop would call the acceptor all the time."""
    stopping, looks = asyncio.Event(), 0

    class Counting(ListeningSocket):
        def seconds_to_place(self) -> float:
            nonlocal looks
            looks += 1
            return super().seconds_to_place()

    counting = Counting(listen("127.0.0.1", 0, flag="port"), most=2, least_time=30.0)
    clients = [socket.create_connection(counting.getsockname()) for _ in range(3)]
    serving = asyncio.create_task(
        serve([Port(app=app, socket=counting, tls=None, keep_alive=5.0)], stopping, graceful_timeout=1.0)
    )
    began = time.monotonic()
    await asyncio.sleep(10 * PLACE_CHECK)
    assert 3 < looks <= 4 + (time.monotonic() - began) / PLACE_CHECK
    for client in clients:
        client.close()
    stopping.set()
    await serving


@pytest.mark.parametrize(
    "sent", [b"", b"\x16\x03\x01\x40", b"GET / HTTP/1.1\r\n\r\n"], ids=["nothing", "part", "plain"]
)
@pytest.mark.parametrize("most", [None, 100])
def test_the_memory_of_a_failed_handshake_is_free_without_the_garbage_collector(
    authority: Authority, sent: bytes, most: int | None
) -> None:
    context = serving_certificates(authority, Metrics("test"))

    def tls_objects() -> int:
        return sum(isinstance(each, SSLProtocol) for each in gc.get_objects())

    with running(app, tls=context, most=most) as served:
        gc.collect()
        before = tls_objects()
        gc.disable()
        try:
            for _ in range(5):
                with socket.create_connection(("127.0.0.1", served.port)) as client:
                    client.sendall(sent)
                    time.sleep(0.1)
            wait_until(lambda: tls_objects() == before)
        finally:
            gc.enable()


def test_a_silent_client_has_no_tls_object(authority: Authority) -> None:
    context = serving_certificates(authority, Metrics("test"))
    gc.collect()
    before = sum(isinstance(each, SSLProtocol) for each in gc.get_objects())
    with running(app, tls=context) as served, socket.create_connection(("127.0.0.1", served.port)) as silent:
        time.sleep(0.3)
        assert sum(isinstance(each, SSLProtocol) for each in gc.get_objects()) == before
        silent.sendall(b"\x16\x03\x01\x40")
        wait_until(lambda: sum(isinstance(each, SSLProtocol) for each in gc.get_objects()) > before)
