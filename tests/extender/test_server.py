from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest
from starlette.types import Message

from gas.extender.endpoint import INTERNAL_ERROR, LARGE, MOST_LARGE
from gas.extender.metrics import Metrics
from gas.extender.readiness import NotReady
from gas.extender.server import ServedVerb, Verb, extender_app
from gas.extender.wire import BadRequest, Unreadable
from gas.values.errors import GasError
from sandbox.certificates import Authority
from tests.extender.handshakes import client_context, serving_certificates
from tests.extender.running import Running, read_to_end, running, trickle, wait_until

JSON = {"Content-Type": "application/json"}
MAX_BODY = 200_000


def answered(body: bytes) -> bytes:
    if body == b"unreadable":
        raise Unreadable("no JSON here")
    if body == b"bad":
        raise BadRequest("nothing to decide here")
    if body == b"not-ready":
        raise NotReady("another replica leads")
    if body == b"bug":
        raise ZeroDivisionError("secret detail")
    if body == b"error":
        raise GasError("secret detail")
    return json.dumps({"size": len(body), "verb": "filter"}).encode()


async def echo(body: bytes) -> bytes:
    return answered(body)


async def echo_later(body: bytes) -> bytes:
    if body.startswith(b"slow"):
        await asyncio.sleep(0.3)
    return answered(body).replace(b"filter", b"bind")


class Extender:
    """The application, served over TLS."""

    def __init__(self, running: Running, metrics: Metrics) -> None:
        self.running = running
        self.metrics = metrics

    def counted(self, verb: str, result: str) -> float:
        labels = {"verb": verb, "result": result}
        return self.metrics.registry.get_sample_value("gas_extender_requests_total", labels) or 0.0

    def post(self, path: str, body: bytes) -> tuple[int, object]:
        status, content, _ = self.running.ask("POST", path, body, JSON)
        return status, content


@contextmanager
def serving(
    authority: Authority, *, body_timeout: float = 10.0, keep_alive: float = 60.0, verb: Verb | None = None
) -> Iterator[Extender]:
    metrics = Metrics("test")
    certificates = serving_certificates(authority, metrics)
    more = {"more": ServedVerb(verb, undecided=b'{"undecided": true}')} if verb is not None else {}
    app = extender_app(
        {"filter": ServedVerb(echo), "bind": ServedVerb(echo_later, is_undisturbed=True)} | more,
        metrics,
        max_body=MAX_BODY,
        body_timeout=body_timeout,
    )
    client = client_context(authority, authority.client("scheduler"))
    with running(app, tls=certificates, client=client, keep_alive=keep_alive) as served:
        yield Extender(served, metrics)


@pytest.fixture
def extender(authority: Authority) -> Iterator[Extender]:
    with serving(authority) as served:
        yield served


@pytest.mark.parametrize("verb", ["filter", "bind"])
class TestVerbs:
    def test_a_verb_gets_the_body_and_its_result_is_the_response(self, extender: Extender, verb: str) -> None:
        assert extender.post(f"/scheduler/{verb}", b"x" * 1000) == (200, {"size": 1000, "verb": verb})
        seconds = extender.metrics.registry.get_sample_value("gas_extender_request_seconds_count", {"verb": verb})
        assert seconds == 1

    def test_a_body_of_exactly_the_limit_is_read(self, extender: Extender, verb: str) -> None:
        assert extender.post(f"/scheduler/{verb}", b"x" * MAX_BODY) == (200, {"size": MAX_BODY, "verb": verb})

    # contract E10.7
    @pytest.mark.parametrize(
        "content_type", ["application/json", "application/json; charset=utf-8", "Application/JSON;charset=UTF-8"]
    )
    def test_json_with_or_without_parameters(self, extender: Extender, verb: str, content_type: str) -> None:
        status, _, _ = extender.running.ask("POST", f"/scheduler/{verb}", b"{}", {"Content-Type": content_type})
        assert status == 200

    # contract E10.7
    @pytest.mark.parametrize("method", ["POST", "GET", "PUT"])
    @pytest.mark.parametrize("content_type", ["text/plain", "application/jsonx", "x/application/json", None])
    def test_another_content_type_is_404_whatever_the_method(
        self, extender: Extender, verb: str, method: str, content_type: str | None
    ) -> None:
        headers = {} if content_type is None else {"Content-Type": content_type}
        status, content, _ = extender.running.ask(method, f"/scheduler/{verb}", b"{}", headers)
        assert status == 404
        assert content["Error"].startswith("expected application/json, found ")
        assert extender.counted(verb, "wrong-content-type") == 1

    # contract E10.8
    @pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "OPTIONS"])
    def test_another_method_is_405(self, extender: Extender, verb: str, method: str) -> None:
        status, content, headers = extender.running.ask(method, f"/scheduler/{verb}", None, JSON)
        assert (status, content) == (405, {"Error": f"expected POST, found {method}"})
        assert headers["allow"] == "POST"

    # contract E10.9
    def test_a_body_that_is_not_json_is_404_with_a_sentence(self, extender: Extender, verb: str) -> None:
        assert extender.post(f"/scheduler/{verb}", b"unreadable") == (404, {"Error": "no JSON here"})
        assert extender.counted(verb, "unreadable") == 1

    # contract E10.10
    def test_an_invalid_request_is_200_with_a_sentence(self, extender: Extender, verb: str) -> None:
        assert extender.post(f"/scheduler/{verb}", b"bad") == (200, {"Error": "nothing to decide here"})

    def test_a_not_ready_response_is_200_with_a_sentence_and_ends_its_connection(
        self, extender: Extender, verb: str
    ) -> None:
        status, content, headers = extender.running.ask("POST", f"/scheduler/{verb}", b"not-ready", JSON)
        assert (status, content) == (200, {"Error": "another replica leads"})
        assert headers["Connection"] == "close"
        assert extender.counted(verb, "not-ready") == 1

    @pytest.mark.parametrize(("body", "name"), [(b"bug", "ZeroDivisionError"), (b"error", "GasError")])
    def test_a_bug_is_logged_counted_and_reported_without_detail(
        self, extender: Extender, verb: str, body: bytes, name: str, *, caplog: pytest.LogCaptureFixture
    ) -> None:
        assert extender.post(f"/scheduler/{verb}", body) == (200, {"Error": INTERNAL_ERROR})
        assert extender.counted(verb, "internal-error") == 1
        assert f"{name}: secret detail" in caplog.text
        assert extender.post(f"/scheduler/{verb}", b"x")[0] == 200

    # contract E10.10
    def test_a_body_declared_over_the_limit_is_413_before_it_is_sent(self, extender: Extender, verb: str) -> None:
        with extender.running.connect() as client:
            client.sendall(request_head(verb, f"Content-Length: {10**19}"))
            answer = read_to_end(client)
        assert answer.startswith(b"HTTP/1.1 413 ")
        assert b"connection: close" in answer.lower()
        assert b"larger than 200000 bytes" in answer
        assert extender.counted(verb, "too-large") == 1

    def test_an_endless_chunked_body_is_413_and_not_read_to_its_end(self, extender: Extender, verb: str) -> None:
        chunk = b"8000\r\n" + b"x" * 0x8000 + b"\r\n"
        sent = 0
        with extender.running.connect() as client:
            client.sendall(request_head(verb, "Transfer-Encoding: chunked"))
            began = time.monotonic()
            client.settimeout(0.01)
            answer = b""
            while time.monotonic() - began < 15:
                try:
                    client.settimeout(5)
                    client.sendall(chunk)
                    sent += len(chunk)
                    client.settimeout(0.001)
                    answer += client.recv(65536)
                except TimeoutError:
                    continue
                except OSError:
                    break
            else:
                pytest.fail("the connection was not closed")
        assert answer.startswith(b"HTTP/1.1 413 ")
        assert sent > MAX_BODY

    def test_a_blocking_client_that_sends_too_much_gets_its_413(self, extender: Extender, verb: str) -> None:
        status, content, _ = extender.running.ask("POST", f"/scheduler/{verb}", b"x" * 5_000_000, JSON)
        assert status == 413
        assert "--max-request-bytes" in content["Error"]


def request_head(verb: str, *headers: str) -> bytes:
    lines = [f"POST /scheduler/{verb} HTTP/1.1", "Host: x", "Content-Type: application/json", *headers, "", ""]
    return "\r\n".join(lines).encode()


# contract E10.6
@pytest.mark.parametrize(
    "path",
    [
        "/scheduler/prioritize",
        "/scheduler/preempt",
        "/",
        "/scheduler",
        "/scheduler/filter/",
        "/scheduler/filter2",
        "/metrics",
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_unknown_paths_are_404_with_a_sentence(extender: Extender, path: str, method: str) -> None:
    status, content, _ = extender.running.ask(method, path, b"{}" if method == "POST" else None, JSON)
    assert (status, content) == (404, {"Error": "unknown path: expected /scheduler/filter or /scheduler/bind"})


@pytest.fixture
def undecided(authority: Authority) -> Iterator[Extender]:
    with serving(authority, verb=echo) as served:
        yield served


UNDECIDED: dict[str, object] = {"undecided": True}


@pytest.mark.parametrize(
    ("body", "response", "result"),
    [
        (b"unreadable", (404, {"Error": "no JSON here"}), "unreadable"),
        (b"bad", (400, {"Error": "nothing to decide here"}), "bad-request"),
        (b"not-ready", (200, UNDECIDED), "not-ready"),
        (b"bug", (200, UNDECIDED), "internal-error"),
    ],
)
def test_a_verb_without_a_field_for_errors_says_that_nothing_was_decided(
    undecided: Extender, caplog: pytest.LogCaptureFixture, body: bytes, response: object, result: str
) -> None:
    assert undecided.post("/scheduler/more", body) == response
    assert undecided.counted("more", result) == 1
    assert ("nothing was decided" in caplog.text) == (response == (200, UNDECIDED))


def test_such_a_verb_closes_its_connection_while_it_is_not_ready(undecided: Extender) -> None:
    _, _, headers = undecided.running.ask("POST", "/scheduler/more", b"not-ready", JSON)
    assert headers["connection"] == "close"


def test_a_websocket_is_refused(extender: Extender) -> None:
    headers = {
        "Upgrade": "websocket",
        "Connection": "Upgrade",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
    }
    assert extender.running.ask("GET", "/scheduler/filter", None, headers)[0] == 403


def test_one_connection_carries_many_requests(extender: Extender) -> None:
    connection = extender.running.http()
    for number in range(1100):
        connection.request("POST", "/scheduler/filter", b"x" * (number % 7), JSON)
        answer = connection.getresponse()
        assert answer.status == 200
        assert json.loads(answer.read())["size"] == number % 7
    connection.close()


def test_slow_binds_do_not_hold_up_filters(extender: Extender) -> None:
    ends: list[str] = []

    def bind() -> None:
        extender.post("/scheduler/bind", b"slow")
        ends.append("bind")

    slow = threading.Thread(target=bind)
    slow.start()
    for _ in range(3):
        extender.post("/scheduler/filter", b"x")
        ends.append("filter")
    slow.join()
    assert ends[0] == "filter"


class TestSlowClients:
    # contract E10.10
    def test_a_trickling_body_is_408_and_the_connection_closed(self, authority: Authority) -> None:
        with serving(authority, body_timeout=0.5) as extender, extender.running.connect() as client:
            client.sendall(request_head("filter", "Content-Length: 100000"))
            answer = trickle(client, b"x")
            assert answer.startswith(b"HTTP/1.1 408 ")
            assert b"not complete after 0.5 s" in answer
            assert extender.counted("filter", "too-slow") == 1

    def test_trickling_headers_end_with_the_keep_alive(self, authority: Authority) -> None:
        with serving(authority, keep_alive=0.7) as extender, extender.running.connect() as client:
            client.sendall(b"POST /scheduler/filter HTTP/1.1\r\n")
            began = time.monotonic()
            assert trickle(client, b"X: y\r\n") == b""
            assert time.monotonic() - began < 10

    def test_headers_over_16_kib_are_refused(self, extender: Extender) -> None:
        with extender.running.connect() as client:
            client.sendall(b"POST /scheduler/filter HTTP/1.1\r\n" + b"X: " + b"y" * 40_000)
            assert read_to_end(client).startswith(b"HTTP/1.1 431 ")

    def test_few_large_bodies_are_read_at_a_time_and_small_ones_at_once(self, extender: Extender) -> None:
        with ExitStack() as opened:
            slow, *others = [opened.enter_context(extender.running.connect()) for _ in range(MOST_LARGE + 1)]
            for client in (*others, slow):
                client.sendall(request_head("filter", f"Content-Length: {LARGE + 1}") + b"x" * LARGE)
            assert extender.post("/scheduler/bind", b"{}")[0] == 200
            slow.sendall(b"x")
            slow.settimeout(0.3)
            with pytest.raises(TimeoutError):
                slow.recv(1)
            others[0].sendall(b"x")
            slow.settimeout(10)
            assert slow.recv(1000).startswith(b"HTTP/1.1 200 ")

    def test_one_connection_carries_more_than_a_thousand_requests(self, extender: Extender) -> None:
        connection = extender.running.http()
        for _ in range(1001):
            connection.request("POST", "/scheduler/filter", b"x", JSON)
            response = connection.getresponse()
            response.read()
        assert response.headers["connection"] is None
        connection.close()

    def test_a_client_that_goes_away_in_its_body_is_counted(self, extender: Extender) -> None:
        client = extender.running.connect()
        client.sendall(request_head("filter", "Content-Length: 100") + b"x")
        client.close()
        wait_until(lambda: extender.counted("filter", "client-gone") == 1)


@pytest.mark.parametrize(
    "begin",
    [
        pytest.param(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(9), id="begun"),
        pytest.param(b"GET /scheduler/filter HTTP/1.1\r\nHost: a\r\nUpgrade: h2c\r\n\r\n", id="asked-for"),
    ],
)
def test_http_2_is_not_spoken(extender: Extender, begin: bytes) -> None:
    with extender.running.connect() as client:
        client.sendall(begin)
        assert client.recv(1000).startswith(b"HTTP/1.1 404 ")


async def test_a_bind_that_has_begun_is_not_cancelled_with_its_connection() -> None:
    ends: list[str] = []
    begun = asyncio.Event()

    async def bind_pod(_body: bytes) -> bytes:
        begun.set()
        try:
            await asyncio.sleep(0.2)
        except asyncio.CancelledError:
            ends.append("broken off")
            raise
        ends.append("bound")
        return b"{}"

    async def receive() -> Message:
        return {"type": "http.request", "body": b"{}", "more_body": False}

    async def send(_message: Message) -> None:
        raise AssertionError

    app = extender_app(
        {"filter": ServedVerb(echo), "bind": ServedVerb(bind_pod, is_undisturbed=True)},
        Metrics("x"),
        max_body=10,
        body_timeout=5,
    )
    scope: dict[str, object] = {
        "type": "http",
        "http_version": "1.1",
        "method": "POST",
        "path": "/scheduler/bind",
        "headers": [(b"content-type", b"application/json"), (b"content-length", b"2")],
    }

    async def connected() -> None:
        await app(scope, receive, send)

    connection = asyncio.create_task(connected())
    await begun.wait()
    connection.cancel()
    with pytest.raises(asyncio.CancelledError):
        await connection
    assert ends == ["bound"]
