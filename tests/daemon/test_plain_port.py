"""The plain HTTP port of the daemons."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest
from prometheus_client import CollectorRegistry, Counter

from gas.daemon.plain_port import plain_app
from tests.extender.running import Running, running

NOT_READY: list[str] = []
NOT_HEALTHY: list[str] = []
SENTENCE = "the ledger is not complete yet"


async def series() -> AsyncIterator[str]:
    yield "# TYPE example_card_pods gauge\n"
    yield 'example_card_pods{card="card0"} 1\n'


@pytest.fixture
def plain() -> Iterator[Running]:
    registry = CollectorRegistry()
    Counter("example_requests_total", "Requests.", registry=registry)
    app = plain_app(
        why_not_ready=lambda: NOT_READY[0] if NOT_READY else None,
        why_not_healthy=lambda: NOT_HEALTHY[0] if NOT_HEALTHY else None,
        registry=registry,
        series=series,
        documents={"/debug/books": lambda: b'{"nodes":{}}', "/debug/refusals": lambda: b'{"u-1":{}}'},
    )
    with running(app) as served:
        yield served
    NOT_READY.clear()
    NOT_HEALTHY.clear()


@pytest.mark.parametrize(
    ("path", "sentences", "other"),
    [
        pytest.param("/readyz", NOT_READY, "/healthz", id="ready"),
        pytest.param("/healthz", NOT_HEALTHY, "/readyz", id="healthy"),
    ],
)
def test_a_probe_fails_alone_and_with_its_sentence(plain: Running, path: str, sentences: list[str], other: str) -> None:
    assert plain.ask("GET", path)[:2] == (200, b"ok\n")
    sentences.append(SENTENCE)
    assert plain.ask("GET", path)[:2] == (503, f"{SENTENCE}\n".encode())
    assert plain.ask("GET", other)[:2] == (200, b"ok\n")
    sentences.clear()
    assert plain.ask("GET", path)[0] == 200


@pytest.mark.parametrize(
    ("accept", "content_type", "end"),
    [
        pytest.param("", "text/plain", b"\n", id="prometheus"),
        pytest.param("*/*", "text/plain", b"\n", id="curl"),
        pytest.param(
            "application/openmetrics-text; version=1.0.0", "application/openmetrics-text", b"# EOF\n", id="open"
        ),
    ],
)
def test_metrics_in_the_requested_format(plain: Running, accept: str, content_type: str, end: bytes) -> None:
    status, content, headers = plain.ask("GET", "/metrics", headers={"Accept": accept})
    assert (status, headers.get_content_type()) == (200, content_type)
    assert content.startswith(b'# TYPE example_card_pods gauge\nexample_card_pods{card="card0"} 1\n')
    assert b"example_requests_total 0.0\n" in content
    assert content.endswith(end)


@pytest.mark.parametrize(("path", "content"), [("/debug/books", {"nodes": {}}), ("/debug/refusals", {"u-1": {}})])
def test_documents_are_json(plain: Running, path: str, content: object) -> None:
    status, found, headers = plain.ask("GET", path)
    assert (status, found, headers["content-type"]) == (200, content, "application/json")


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/metrics", "/debug/books", "/debug/refusals"])
def test_head_and_get_work_and_no_other_method(plain: Running, path: str) -> None:
    status, content, headers = plain.ask("HEAD", path)
    assert (status, content) == (200, b"")
    if path != "/metrics":  # sent in pieces, without a length
        assert int(headers["content-length"]) > 0
    assert plain.ask("POST", path, b"x" * 3_000_000)[0] == 405


@pytest.mark.parametrize("path", ["/", "/debug", "/healthz/", "/scheduler/filter", "/debug/../etc/passwd"])
def test_unknown_paths_are_404(plain: Running, path: str) -> None:
    assert plain.ask("GET", path)[0] == 404


def test_a_body_that_is_not_needed_is_not_waited_for_and_ends_the_connection(plain: Running) -> None:
    with plain.connect() as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n")
        answer = connection.recv(1000).lower()
    assert answer.startswith(b"http/1.1 200")
    assert b"\r\nconnection: close\r\n" in answer
