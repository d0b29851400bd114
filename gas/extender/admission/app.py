"""The port that the API server calls: one path for each webhook. Checks everything around a review, decides nothing."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from time import perf_counter

from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route, Router
from starlette.types import ASGIApp, Receive, Scope, Send

from gas.daemon.early_responses import EarlyResponses
from gas.errors import GasError
from gas.extender.admission.review import BadReview, Review, ReviewResult, decode_review, encode_result
from gas.extender.metrics import Metrics
from gas.extender.readiness import NotReady
from gas.extender.server import (
    INTERNAL_ERROR,
    BodyTooLarge,
    BodyTooSlow,
    ClientGone,
    declared_length,
    read_body,
    to_its_end,
)

logger = logging.getLogger(__name__)

LARGEST_REVIEW = 8 * 1024 * 1024
"""Bytes. The API server accepts objects of up to 3 MiB, and the review of an update has two of them."""

LARGE = 256 * 1024
MOST_LARGE = 8
"""Reviews over LARGE bytes that are read at a time. Callers may be unknown, so the memory that they take is limited."""

REVIEW_TIMEOUT = 5.0
"""Most seconds from the headers of a request to the end of its body, which the API server sends at once."""

Reviewer = Callable[[Review], Awaitable[ReviewResult]]
"""Review -> result. May raise BadReview or NotReady."""


def admission_app(
    webhooks: Mapping[str, Reviewer],
    metrics: Metrics,
    *,
    largest: int = LARGEST_REVIEW,
    timeout: float = REVIEW_TIMEOUT,
) -> ASGIApp:
    """Return the application that the API server calls.

    webhooks  by name, which is the path as well: ``validate`` is served as ``/validate``
    largest   bytes of the largest review that is read
    timeout   seconds from a request's headers to the end of its body

    Every review that can be read gets status 200. All other statuses make the API server apply the failure policy of
    the webhook: 400 for a body that is not a valid review, 404, 405, 408, 413 and 415 as HTTP has them, 500 for a bug,
    and 503 while this replica may not decide or reads too many large reviews. In the first case the response ends its
    connection and has ``Retry-After: 0``, so that the API server asks again at once, maybe another replica.
    """
    large = _LargeReviews()
    routes = [
        Route(f"/{name}", _Webhook(name, reviewer, metrics, large, largest=largest, timeout=timeout))
        for name, reviewer in webhooks.items()
    ]
    paths = " or ".join(f"/{name}" for name in webhooks)
    unknown = PlainTextResponse(f"unknown path: expected {paths}\n", 404)
    return EarlyResponses(Router(routes, redirect_slashes=False, default=unknown), patience=timeout)


class TooManyLarge(GasError):
    """Too many large reviews are being read (status 503)."""

    def __init__(self) -> None:
        super().__init__(f"{MOST_LARGE} reviews over {LARGE} bytes are being read already; try again")


class _LargeReviews:
    """Count the large reviews that are being read."""

    def __init__(self) -> None:
        self._reading = 0

    @contextmanager
    def reading(self, declared: int | None) -> Iterator[None]:
        """Read a review of this declared length, None if it has none. Raises TooManyLarge."""
        if declared is not None and declared <= LARGE:
            yield
            return
        if self._reading >= MOST_LARGE:
            raise TooManyLarge
        self._reading += 1
        try:
            yield
        finally:
            self._reading -= 1


class _Webhook:
    """Turn a request into a review, and its result or error into a response."""

    def __init__(
        self,
        name: str,
        reviewer: Reviewer,
        metrics: Metrics,
        large: _LargeReviews,
        *,
        largest: int,
        timeout: float,
    ) -> None:
        self._name = name
        self._reviewer = reviewer
        self._metrics = metrics
        self._large = large
        self._largest = largest
        self._timeout = timeout

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = perf_counter()
        try:
            response = await self._respond(scope, receive)
        except ClientGone:
            self._count("client-gone")
            return
        self._metrics.review_seconds.labels(self._name).observe(perf_counter() - started)
        await response(scope, receive, send)

    async def _respond(self, scope: Scope, receive: Receive) -> Response:
        headers = Headers(scope=scope)
        if scope["method"] != "POST":
            response = self._problem(405, "wrong-method", f"expected POST, found {scope['method']}")
            response.headers["allow"] = "POST"
            return response
        content_type = headers.get("content-type", "")
        if content_type.partition(";")[0].strip().lower() != "application/json":
            found = content_type[:80] or "none"
            return self._problem(415, "wrong-content-type", f"expected application/json, found {found}")
        try:
            declared = declared_length(headers)
            with self._large.reading(declared):
                body = await read_body(receive, declared=declared, limit=self._largest, patience=self._timeout)
            review = decode_review(body)
            result = await to_its_end(self._reviewer(review))
            response = Response(encode_result(review, result), media_type="application/json")
        except BodyTooLarge as error:
            return self._problem(413, "too-large", str(error))
        except BodyTooSlow as error:
            return self._problem(408, "too-slow", str(error))
        except TooManyLarge as error:
            return self._problem(503, "too-many-large", str(error))
        except BadReview as error:
            return self._problem(400, "bad-review", str(error))
        except NotReady as error:
            response = self._problem(503, "not-ready", str(error))
            if scope["http_version"] != "2":  # HTTP/2 has no such header, and is not offered
                response.headers["connection"] = "close"
            response.headers["retry-after"] = "0"  # else the API server does not ask another replica
            return response
        except ClientGone:
            raise
        except Exception:
            logger.exception("the webhook /%s failed, which is a bug", self._name)
            return self._problem(500, "internal-error", INTERNAL_ERROR)
        self._count(_outcome(result))
        if result.refusal:
            what = f"{review.operation} of {review.target}"
            logger.info("refused %s: %s", what, result.refusal, extra={"object": f"{review.namespace}/{review.name}"})
        return response

    def _problem(self, status: int, result: str, sentence: str) -> Response:
        self._count(result)
        logger.log(logging.INFO if status == 503 else logging.WARNING, "webhook /%s: %s", self._name, sentence)
        return PlainTextResponse(sentence + "\n", status)

    def _count(self, result: str) -> None:
        self._metrics.reviews.labels(self._name, result).inc()


def _outcome(result: ReviewResult) -> str:
    if result.refusal:
        return "refused"
    if result.patch:
        return "patched"
    return "warned" if result.warnings else "allowed"
