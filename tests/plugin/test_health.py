"""The plugin's plain port."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gas.plugin.health import plain_app
from gas.plugin.metrics import Metrics
from tests.extender.running import Running, running

Troubles = list[str]


@pytest.fixture
def troubles() -> Troubles:
    """Holds the sentence while the plugin is not ready."""
    return []


@pytest.fixture
def plain(troubles: Troubles) -> Iterator[Running]:
    app = plain_app(why_not_ready=lambda: troubles[0] if troubles else None, registry=Metrics("1.2.3").registry)
    with running(app) as served:
        yield served


def test_alive_also_when_not_ready(plain: Running, troubles: Troubles) -> None:
    troubles.append("kubelet does not watch gpu.intel.com/i915 yet")
    assert plain.ask("GET", "/healthz")[:2] == (200, b"ok\n")


def test_ready_and_not_ready_with_the_sentence_why(plain: Running, troubles: Troubles) -> None:
    assert plain.ask("GET", "/readyz")[:2] == (200, b"ok\n")
    troubles.append("kubelet does not watch gpu.intel.com/i915 yet")
    assert plain.ask("GET", "/readyz")[:2] == (503, b"kubelet does not watch gpu.intel.com/i915 yet\n")


@pytest.mark.parametrize(
    ("accept", "content_type", "end"),
    [
        pytest.param("*/*", "text/plain", b"\n", id="prometheus"),
        pytest.param(
            "application/openmetrics-text; version=1.0.0", "application/openmetrics-text", b"# EOF\n", id="open"
        ),
    ],
)
def test_metrics_in_the_form_that_is_asked_for(plain: Running, accept: str, content_type: str, end: bytes) -> None:
    status, content, headers = plain.ask("GET", "/metrics", headers={"Accept": accept})
    assert (status, headers.get_content_type()) == (200, content_type)
    assert b'gas_plugin_build_info{version="1.2.3"} 1.0\n' in content
    assert content.endswith(end)


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/metrics"])
def test_it_only_reads(plain: Running, path: str) -> None:
    assert plain.ask("POST", path, b"{}")[0] == 405


@pytest.mark.parametrize("path", ["/", "/healthz/", "/debug"])
def test_there_is_nothing_else(plain: Running, path: str) -> None:
    assert plain.ask("GET", path)[0] == 404


def test_a_body_that_nobody_asked_for_is_not_waited_for_and_ends_the_connection(plain: Running) -> None:
    with plain.connect() as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n")
        answer = connection.recv(1000).lower()
    assert answer.startswith(b"http/1.1 200")
    assert b"\r\nconnection: close\r\n" in answer
