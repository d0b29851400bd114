"""Serve webhooks on the port that the API server calls. Checks everything around a review and decides nothing."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry, Counter, Histogram
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp

from gas.daemon.logs import LimitedLog
from gas.extender.admission.review import BadReview, Review, ReviewResult, decode_review, encode_result
from gas.extender.endpoint import MOST_LARGE, JsonEndpoint, Problem, by_path
from gas.extender.metrics import REQUEST_SECONDS

logger = logging.getLogger(__name__)

LARGEST_REVIEW = 8 * 1024 * 1024
"""Bytes. The API server accepts objects of up to 3 MiB, and the review of an update has two of them."""

REVIEW_TIMEOUT = 5.0  # most seconds from a request's headers to the end of its body, which the API server sends at once

Reviewer = Callable[[Review], Awaitable[ReviewResult]]
"""Review -> result. May raise BadReview or NotReady. May be cancelled, when its connection breaks."""


class AdmissionMetrics:
    def __init__(self, registry: CollectorRegistry) -> None:
        self.reviews = Counter(
            "gas_extender_reviews_total",
            "Reviews of the API server, by webhook and result: allowed, warned, patched, refused, not-ready, "
            "bad-review, wrong-content-type, wrong-method, too-large, too-many-large, too-slow, client-gone, "
            "internal-error (a bug; the log has the traceback).",
            ["webhook", "result"],
            registry=registry,
        )
        self.review_seconds = Histogram(
            "gas_extender_review_seconds",
            "Seconds from the headers of a review to its response, including the transfer of its body.",
            ["webhook"],
            buckets=REQUEST_SECONDS,
            registry=registry,
        )


def admission_app(
    webhooks: Mapping[str, Reviewer],  # by name, which is the path as well: ``validate`` is served as ``/validate``
    metrics: AdmissionMetrics,
    *,
    largest: int = LARGEST_REVIEW,  # bytes of the largest review that is read
    timeout: float = REVIEW_TIMEOUT,  # seconds from a request's headers to the end of its body
) -> ASGIApp:
    """Return the application that the API server calls.

    Every review that can be read gets status 200. All other statuses make the API server apply the failure policy of
    the webhook: 400 for a body that is not a valid review, 404, 405, 408, 413 and 415 as HTTP has them, 500 for a bug,
    and 503 while this replica may not decide or reads too many large reviews. A replica that may not decide ends the
    connection with its response and sets ``Retry-After: 0``, so that the API server asks again at once, maybe another
    replica.
    """
    large = asyncio.Semaphore(MOST_LARGE)
    endpoints = {
        f"/{name}": _Webhook(
            name, metrics.reviews, metrics.review_seconds.labels(name), largest, timeout, large, reviewer
        )
        for name, reviewer in webhooks.items()
    }
    unknown = PlainTextResponse(f"unknown path: expected {' or '.join(endpoints)}\n", 404)
    return by_path(endpoints, unknown)


@dataclass(eq=False)
class _Webhook(JsonEndpoint):
    method_is_checked_first = True
    wrong_content_type = 415
    not_ready = 503
    internal_error = 500
    waits_if_many_are_large = False

    reviewer: Reviewer
    _log: LimitedLog = field(init=False, default_factory=lambda: LimitedLog(logger))

    @property
    def what(self) -> str:
        return f"the webhook /{self.name}"

    async def respond(self, body: bytes) -> Response:
        try:
            review = decode_review(body)
            result = await self.reviewer(review)
        except BadReview as error:
            raise Problem(400, "bad-review", str(error)) from None
        response = Response(encode_result(review, result), media_type="application/json")
        self.count(_outcome(result))
        if result.refusal:
            what = f"{review.operation} of {review.target}"
            extra = {"object": f"{review.namespace}/{review.name}"}
            self._log.log(logging.INFO, "refused %s: %s", what, result.refusal, extra=extra)
        return response

    def problem_response(self, problem: Problem) -> Response:
        self._log.log(logging.INFO if problem.status == 503 else logging.WARNING, "%s: %s", self.what, problem)
        response = PlainTextResponse(f"{problem}\n", problem.status)
        if problem.result == "not-ready":
            response.headers["retry-after"] = "0"  # else the API server does not ask another replica
        return response


def _outcome(result: ReviewResult) -> str:
    if result.refusal:
        return "refused"
    if result.patch:
        return "patched"
    return "warned" if result.warnings else "allowed"
