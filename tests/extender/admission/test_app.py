from __future__ import annotations

import json
import logging
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager

import pytest

from gas.daemon.logs import LIMITED_LINES
from gas.extender.admission.app import AdmissionMetrics, admission_app
from gas.extender.admission.review import BadReview, Review, ReviewResult
from gas.extender.endpoint import INTERNAL_ERROR, LARGE, MOST_LARGE
from gas.extender.metrics import Metrics
from gas.extender.readiness import NotReady
from gas.objects.json_patch import Operation
from tests.extender.admission.reviews import UID, review_json
from tests.extender.running import Running, read_to_end, running, wait_until

JSON = {"Content-Type": "application/json"}
LARGEST = 200_000
RESULTS = {
    "allowed": ReviewResult(),
    "warned": ReviewResult(warnings=("careful",)),
    "patched": ReviewResult(patch=(Operation("add", "/a", 1),), warnings=("careful",)),
    "refused": ReviewResult(refusal="no", warnings=("careful",)),
}


async def by_name(review: Review) -> ReviewResult:
    if review.name == "not-ready":
        raise NotReady("another replica leads")
    if review.name == "bad":
        raise BadReview("request.object: expected an object, found nothing")
    if review.name == "bug":
        raise ZeroDivisionError("secret detail")
    return RESULTS[review.name]


class Admission:
    """The application, served without TLS."""

    def __init__(self, served: Running, metrics: Metrics) -> None:
        self.served = served
        self.metrics = metrics

    def counted(self, result: str) -> float:
        labels = {"webhook": "validate", "result": result}
        return self.metrics.registry.get_sample_value("gas_extender_reviews_total", labels) or 0.0

    def post(self, body: bytes, path: str = "/validate") -> tuple[int, object]:
        status, content, _ = self.served.ask("POST", path, body, JSON)
        return status, content


@contextmanager
def serving(timeout: float = 10.0, largest: int = LARGEST) -> Iterator[Admission]:
    metrics = Metrics("test")
    app = admission_app(
        {"validate": by_name, "other": by_name}, AdmissionMetrics(metrics.registry), largest=largest, timeout=timeout
    )
    with running(app) as served:
        yield Admission(served, metrics)


@pytest.fixture(scope="module")
def admission() -> Iterator[Admission]:
    with serving() as served:
        yield served


def body_of(name: str) -> bytes:
    return json.dumps(review_json({}, name=name)).encode()


@pytest.mark.parametrize("outcome", RESULTS)
def test_a_review_gets_its_result_and_is_counted(admission: Admission, outcome: str) -> None:
    before = admission.counted(outcome)
    status, content = admission.post(body_of(outcome))
    assert status == 200
    assert isinstance(content, dict)
    assert content["response"]["uid"] == UID
    assert content["response"]["allowed"] == (outcome != "refused")
    assert admission.counted(outcome) == before + 1


@pytest.mark.parametrize(
    ("name", "status", "sentence", "result"),
    [
        ("not-ready", 503, b"another replica leads\n", "not-ready"),
        ("bad", 400, b"request.object: expected an object, found nothing\n", "bad-review"),
        ("bug", 500, f"{INTERNAL_ERROR}\n".encode(), "internal-error"),
    ],
)
def test_a_review_without_a_result_gets_a_status_that_leaves_it_to_the_failure_policy(
    admission: Admission, name: str, status: int, sentence: bytes, result: str
) -> None:
    before = admission.counted(result)
    assert admission.post(body_of(name)) == (status, sentence)
    assert admission.counted(result) == before + 1


def test_a_replica_that_may_not_decide_ends_the_connection_and_asks_for_another_try(admission: Admission) -> None:
    _, _, headers = admission.served.ask("POST", "/validate", body_of("not-ready"), JSON)
    assert (headers["Connection"], headers["Retry-After"]) == ("close", "0")
    _, _, headers = admission.served.ask("POST", "/validate", body_of("allowed"), JSON)
    assert (headers["Connection"], headers["Retry-After"]) == (None, None)


def test_a_bug_is_logged_without_detail_for_the_caller(admission: Admission, caplog: pytest.LogCaptureFixture) -> None:
    admission.post(body_of("bug"))
    assert "ZeroDivisionError: secret detail" in caplog.text


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        (b"x", "the webhook /validate: the AdmissionReview cannot be read"),
        (b'{"kind": "Pod"}', "the webhook /validate: expected kind AdmissionReview"),
        (b" " * (LARGEST + 1), f"the webhook /validate: the request body is larger than {LARGEST} bytes"),
        (body_of("not-ready"), "the webhook /validate: another replica leads"),
        (body_of("refused"), "refused CREATE of pods: no"),
    ],
    ids=("no-json", "another-kind", "too-large", "not-ready", "refused"),
)
def test_a_flood_of_reviews_without_a_result_does_not_fill_the_log(
    caplog: pytest.LogCaptureFixture, body: bytes, sentence: str
) -> None:
    caplog.set_level(logging.INFO, "gas.extender.admission.app")
    with serving() as admission:
        statuses = {admission.post(body)[0] for _ in range(LIMITED_LINES + 20)}
    assert len(statuses) == 1
    lines = [record.getMessage() for record in caplog.records if record.name == "gas.extender.admission.app"]
    assert len(lines) == LIMITED_LINES
    assert all(line.startswith(sentence) for line in lines)


def test_another_method_is_405(admission: Admission) -> None:
    status, content, headers = admission.served.ask("GET", "/validate", None, JSON)
    assert (status, content, headers["allow"]) == (405, b"expected POST, found GET\n", "POST")


@pytest.mark.parametrize("content_type", ["text/plain", "application/jsonx"])
def test_another_content_type_is_415(admission: Admission, content_type: str) -> None:
    headers = {"Content-Type": content_type}
    status, content, _ = admission.served.ask("POST", "/validate", body_of("allowed"), headers)
    assert (status, content) == (415, f"expected application/json, found {content_type}\n".encode())


@pytest.mark.parametrize("path", ["/", "/validate/", "/bind", "/scheduler/filter"])
def test_another_path_is_404(admission: Admission, path: str) -> None:
    assert admission.post(body_of("allowed"), path) == (404, b"unknown path: expected /validate or /other\n")


def test_a_review_of_exactly_the_limit_is_read(admission: Admission) -> None:
    body = body_of("allowed")
    assert admission.post(body + b" " * (LARGEST - len(body)))[0] == 200


def test_a_huge_review_is_413_and_not_read(admission: Admission) -> None:
    before = admission.counted("too-large")
    with admission.served.connect() as client:
        client.sendall(head(f"Content-Length: {10**19}"))
        response = read_to_end(client)
    assert response.startswith(b"HTTP/1.1 413 ")
    assert b"the request body is larger than 200000 bytes" in response
    assert admission.post(body_of("allowed") + b" " * LARGEST)[0] == 413
    assert admission.counted("too-large") == before + 2


def test_a_slow_review_is_408_and_delays_no_other() -> None:
    with serving(timeout=1.0) as admission, ThreadPoolExecutor(1) as pool, admission.served.connect() as client:
        client.sendall(head("Content-Length: 1000") + b"{")
        slow = pool.submit(read_to_end, client)
        assert admission.post(body_of("allowed"))[0] == 200
        assert not slow.done()
        assert slow.result(20).startswith(b"HTTP/1.1 408 ")
        assert admission.counted("too-slow") == 1


def test_large_reviews_take_a_limited_amount_of_memory_and_delay_no_small_one() -> None:
    with serving(largest=2 * LARGE) as admission, ExitStack() as opened:
        reading = [opened.enter_context(admission.served.connect()) for _ in range(MOST_LARGE)]
        large = body_of("allowed") + b" " * LARGE
        for at, client in enumerate(reading):
            length = "Transfer-Encoding: chunked" if at == 0 else f"Content-Length: {len(large)}"
            client.sendall(head(length))
        wait_until(lambda: admission.post(large)[0] == 503)
        assert admission.post(large) == (503, b"8 requests over 65536 bytes are being read already; try again\n")
        assert admission.counted("too-many-large") >= 2
        assert admission.post(body_of("allowed"))[0] == 200
        reading[1].sendall(large)
        assert b"HTTP/1.1 200" in reading[1].recv(1000)
        assert admission.post(large)[0] == 200


def test_a_truncated_review_is_counted_and_has_no_response() -> None:
    with serving() as admission, admission.served.connect() as client:
        client.sendall(head("Content-Length: 1000") + b"{")
        client.shutdown(socket.SHUT_WR)
        assert b"HTTP/1.1 200" not in read_to_end(client)


def head(*headers: str) -> bytes:
    lines = ["POST /validate HTTP/1.1", "Host: x", "Content-Type: application/json", *headers, "", ""]
    return "\r\n".join(lines).encode()
