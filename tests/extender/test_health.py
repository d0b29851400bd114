from __future__ import annotations

from collections.abc import Iterator

import pytest

from gas.extender.card_books import CardBooks
from gas.extender.health import plain_app
from gas.extender.metrics import Metrics
from tests.extender.running import Running, running

NOT_READY: list[str] = []


@pytest.fixture
def plain() -> Iterator[Running]:
    metrics = Metrics("1.2.3")
    app = plain_app(
        why_not_ready=lambda: NOT_READY[0] if NOT_READY else None,
        registry=metrics.registry,
        cards=lambda: [CardBooks("n1", "card0", {"i915": 1}, {}, 0)],
        books=lambda: b'{"nodes":{}}',
        refusals=lambda: b'{"u-1":{}}',
    )
    with running(app) as served:
        yield served
    NOT_READY.clear()


def test_alive(plain: Running) -> None:
    NOT_READY.append("books are not complete")
    assert plain.ask("GET", "/healthz")[:2] == (200, b"ok\n")


def test_ready_and_not_ready_with_the_sentence_why(plain: Running) -> None:
    assert plain.ask("GET", "/readyz")[:2] == (200, b"ok\n")
    NOT_READY.append("books are not complete")
    assert plain.ask("GET", "/readyz")[:2] == (503, b"books are not complete\n")
    NOT_READY.clear()
    assert plain.ask("GET", "/readyz")[0] == 200


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
def test_metrics_in_the_form_that_is_asked_for(plain: Running, accept: str, content_type: str, end: bytes) -> None:
    status, content, headers = plain.ask("GET", "/metrics", headers={"Accept": accept})
    assert (status, headers.get_content_type()) == (200, content_type)
    assert b'gas_extender_card_capacity{node="n1",card="card0",resource="i915"} 1\n' in content
    assert b'gas_extender_build_info{version="1.2.3"} 1.0\n' in content
    assert content.endswith(end)


@pytest.mark.parametrize(("path", "content"), [("/debug/books", {"nodes": {}}), ("/debug/refusals", {"u-1": {}})])
def test_debug_answers_json(plain: Running, path: str, content: object) -> None:
    status, found, headers = plain.ask("GET", path)
    assert (status, found, headers["content-type"]) == (200, content, "application/json")


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/metrics", "/debug/books", "/debug/refusals"])
def test_head_works_and_nothing_but_reading_does(plain: Running, path: str) -> None:
    status, content, headers = plain.ask("HEAD", path)
    assert (status, content) == (200, b"")
    if path != "/metrics":  # sent in pieces, as long as they come
        assert int(headers["content-length"]) > 0
    assert plain.ask("POST", path, b"x" * 3_000_000)[0] == 405


@pytest.mark.parametrize("path", ["/", "/debug", "/healthz/", "/scheduler/filter", "/debug/../etc/passwd"])
def test_unknown_paths_are_404(plain: Running, path: str) -> None:
    assert plain.ask("GET", path)[0] == 404
