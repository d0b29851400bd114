"""The scheduler's port: two verbs over HTTP, everything around them checked, nothing decided."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from time import perf_counter

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.routing import Route, Router
from starlette.types import ASGIApp, Receive, Scope, Send

from gas.daemon.early_responses import EarlyResponses
from gas.extender.metrics import Metrics
from gas.extender.readiness import NotReady
from gas.extender.request_body import BodyTooLarge, BodyTooSlow, ClientGone, read_body
from gas.extender.wire import BadRequest, Unreadable, encode_error

logger = logging.getLogger(__name__)

INTERNAL_ERROR = "internal error, see the extender's log"
LONGEST_CONTENT_LENGTH = 18
"""Digits; more of them are over every limit."""

Verb = Callable[[bytes], Awaitable[bytes]]
"""The body of a request -> the body of the response. May raise Unreadable, BadRequest or NotReady."""


def extender_app(
    *,
    filter_nodes: Verb,
    bind_pod: Verb,
    metrics: Metrics,
    max_body: int,
    body_timeout: float,
) -> ASGIApp:
    """What kube-scheduler talks to.

    filter_nodes, bind_pod  the verbs; each counts what came of a request that it was given
    max_body                bytes of the largest body that is read
    body_timeout            seconds from a request's headers to the end of its body

    A path that is none, prioritize too, and a content type that is not JSON are answered with 404, another
    method with 405, what is not JSON at all with 404, all else with 200 (contract E10.6 to E10.9).

    A verb that is not ready ends its connection with the answer (``Connection: close``): a Service chooses among the
    replicas for each new connection only, so the next request can reach the replica that leads. No other connection
    is touched, since a request may be in progress on it.
    """

    def route(name: str, verb: Verb) -> Route:
        return Route(f"/scheduler/{name}", _VerbEndpoint(name, verb, metrics, max_body, body_timeout))

    return EarlyResponses(
        Router(
            [route("filter", filter_nodes), route("bind", _to_its_end(bind_pod))],
            redirect_slashes=False,
            default=_unknown_path,
        ),
        patience=body_timeout,
    )


class _Answer(Response):
    media_type = "application/json"


class _VerbEndpoint:
    """From a request to a body for the verb, and from whatever comes of it to an answer."""

    def __init__(self, name: str, verb: Verb, metrics: Metrics, max_body: int, body_timeout: float) -> None:
        self._name = name
        self._verb = verb
        self._metrics = metrics
        self._max_body = max_body
        self._body_timeout = body_timeout

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = perf_counter()
        try:
            answer = await self._answer(scope, receive)
        except ClientGone:
            self._count("client-gone")
            return
        self._metrics.request_seconds.labels(self._name).observe(perf_counter() - started)
        await answer(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive) -> Response:
        headers = Headers(scope=scope)
        content_type = headers.get("content-type", "")
        if content_type.partition(";")[0].strip().lower() != "application/json":
            found = content_type[:80] or "none"
            return self._problem(404, "wrong-content-type", f"expected application/json, found {found}")
        if scope["method"] != "POST":
            answer = self._problem(405, "wrong-method", f"expected POST, found {scope['method']}")
            answer.headers["allow"] = "POST"
            return answer
        try:
            body = await read_body(
                receive,
                declared=_declared_length(headers),
                limit=self._max_body,
                patience=self._body_timeout,
            )
            return _Answer(await self._verb(body))
        except BodyTooLarge as error:
            return self._problem(413, "too-large", str(error))
        except BodyTooSlow as error:
            return self._problem(408, "too-slow", str(error))
        except Unreadable as error:
            return self._problem(404, "unreadable", str(error))
        except BadRequest as error:
            return self._problem(200, "bad-request", str(error))
        except NotReady as error:
            answer = self._problem(200, "not-ready", str(error))
            if scope["http_version"] != "2":  # HTTP/2 has no such header, and is not offered
                answer.headers["connection"] = "close"
            return answer
        except ClientGone:
            raise
        except Exception:
            logger.exception("%s failed, which is a bug", self._name)
            return self._problem(200, "internal-error", INTERNAL_ERROR)

    def _problem(self, status: int, result: str, sentence: str) -> Response:
        self._count(result)
        return _Answer(encode_error(sentence), status)

    def _count(self, result: str) -> None:
        self._metrics.requests.labels(self._name, result).inc()


def _to_its_end(verb: Verb) -> Verb:
    """A verb that, once begun, is not broken off because its connection breaks."""

    async def answer(body: bytes) -> bytes:
        running = asyncio.ensure_future(verb(body))
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            await asyncio.wait([running])
            if not running.cancelled() and (error := running.exception()) is not None:
                logger.warning("a request failed whose connection had broken: %s", error)
            raise

    return answer


async def _unknown_path(scope: Scope, receive: Receive, send: Send) -> None:
    sentence = "unknown path: expected /scheduler/filter or /scheduler/bind"
    await _Answer(encode_error(sentence), 404)(scope, receive, send)


def _declared_length(headers: Headers) -> int | None:
    text = headers.get("content-length", "")
    if not (text.isascii() and text.isdigit()):
        return None
    return int(text) if len(text) <= LONGEST_CONTENT_LENGTH else 10**LONGEST_CONTENT_LENGTH
