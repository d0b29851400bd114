"""The scheduler's port: two verbs over HTTP. Checks everything around them and decides nothing."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from time import perf_counter
from typing import TypeVar

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.routing import Route, Router
from starlette.types import ASGIApp, Receive, Scope, Send

from gas.daemon.early_responses import EarlyResponses
from gas.errors import GasError
from gas.extender.metrics import Metrics
from gas.extender.readiness import NotReady
from gas.extender.wire import BadRequest, Unreadable, encode_error, encode_preempt_result

logger = logging.getLogger(__name__)

T = TypeVar("T")

INTERNAL_ERROR = "internal error, see the extender's log"
LONGEST_CONTENT_LENGTH = 18
"""Digits; a number with more is over every limit."""

Verb = Callable[[bytes], Awaitable[bytes]]
"""The body of a request -> the body of the response. May raise Unreadable, BadRequest or NotReady."""


class BodyTooLarge(GasError):
    """The body is too large (status 413); the rest of it is not read."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"the request body is larger than {limit} bytes")


class BodyTooSlow(GasError):
    """The body did not come in time (status 408)."""

    def __init__(self, patience: float) -> None:
        super().__init__(f"the request body was not complete after {patience:g} s")


class ClientGone(Exception):
    """The client closed the connection and waits for no response."""


def extender_app(
    *,
    filter_nodes: Verb,
    bind_pod: Verb,
    preempt: Verb | None = None,
    prioritize: Verb | None = None,
    metrics: Metrics,
    max_body: int,
    body_timeout: float,
) -> ASGIApp:
    """Return the application that kube-scheduler calls.

    filter_nodes, bind_pod  the verbs; each counts the results of its requests
    preempt                 likewise; None if it is not served
    prioritize              likewise; None if nodes are not scored
    max_body                bytes of the largest body that is read
    body_timeout            seconds from a request's headers to the end of its body

    The status is 404 for an unknown path (prioritize is one, unless nodes are scored), for a content type other than
    JSON and for a body that is not JSON, 405 for another method, 408 for a body that is not complete in time, 413 for
    one that is too large, and 200 for everything else (contract E10.6 to E10.10).

    The response of preempt has no field for an error. While nothing can be decided it is one without victims, since
    with ``ignorable: true`` kube-scheduler would take an error as leave to evict by the sums of the node. An invalid
    request gets the status 400.

    A verb that is not ready ends its connection with the response (``Connection: close``): a Service chooses among the
    replicas for each new connection only, so the next request can reach the replica that leads. No other connection
    is touched, since a request may be in progress on it.
    """

    def route(name: str, verb: Verb, *, undecided: bytes | None = None) -> Route:
        endpoint = _VerbEndpoint(name, verb, metrics, max_body=max_body, body_timeout=body_timeout, undecided=undecided)
        return Route(f"/scheduler/{name}", endpoint)

    routes = [route("filter", filter_nodes), route("bind", _undisturbed(bind_pod))]
    if preempt is not None:
        routes.append(route("preempt", preempt, undecided=encode_preempt_result({})))
    if prioritize is not None:
        routes.append(route("prioritize", prioritize))
    return EarlyResponses(
        Router(
            routes,
            redirect_slashes=False,
            default=_unknown_path,
        ),
        patience=body_timeout,
    )


class _Json(Response):
    media_type = "application/json"


class _VerbEndpoint:
    """Turn a request into a body for the verb, and its result or error into a response.

    undecided  the body of a response to a valid request that cannot be decided, if the verb's has no field for an error
    """

    def __init__(
        self,
        name: str,
        verb: Verb,
        metrics: Metrics,
        *,
        max_body: int,
        body_timeout: float,
        undecided: bytes | None,
    ) -> None:
        self._name = name
        self._verb = verb
        self._metrics = metrics
        self._max_body = max_body
        self._body_timeout = body_timeout
        self._undecided = undecided

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = perf_counter()
        try:
            response = await self._respond(scope, receive)
        except ClientGone:
            self._count("client-gone")
            return
        self._metrics.request_seconds.labels(self._name).observe(perf_counter() - started)
        await response(scope, receive, send)

    async def _respond(self, scope: Scope, receive: Receive) -> Response:
        headers = Headers(scope=scope)
        content_type = headers.get("content-type", "")
        if content_type.partition(";")[0].strip().lower() != "application/json":
            found = content_type[:80] or "none"
            return self._problem(404, "wrong-content-type", f"expected application/json, found {found}")
        if scope["method"] != "POST":
            response = self._problem(405, "wrong-method", f"expected POST, found {scope['method']}")
            response.headers["allow"] = "POST"
            return response
        try:
            body = await read_body(
                receive,
                declared=declared_length(headers),
                limit=self._max_body,
                patience=self._body_timeout,
            )
            return _Json(await self._verb(body))
        except BodyTooLarge as error:
            return self._problem(413, "too-large", f"{error}; raise --max-request-bytes")
        except BodyTooSlow as error:
            return self._problem(408, "too-slow", str(error))
        except Unreadable as error:
            return self._problem(404, "unreadable", str(error))
        except BadRequest as error:
            return self._problem(200 if self._undecided is None else 400, "bad-request", str(error))
        except NotReady as error:
            response = self._problem(200, "not-ready", str(error))
            if scope["http_version"] != "2":  # HTTP/2 has no such header, and is not offered
                response.headers["connection"] = "close"
            return response
        except ClientGone:
            raise
        except Exception:
            logger.exception("%s failed, which is a bug", self._name)
            return self._problem(200, "internal-error", INTERNAL_ERROR)

    def _problem(self, status: int, result: str, sentence: str) -> Response:
        self._count(result)
        if status == 200 and self._undecided is not None:
            logger.warning("%s: nothing was decided: %s", self._name, sentence)
            return _Json(self._undecided)
        return _Json(encode_error(sentence), status)

    def _count(self, result: str) -> None:
        self._metrics.requests.labels(self._name, result).inc()


def _undisturbed(verb: Verb) -> Verb:
    return lambda body: to_its_end(verb(body))


async def to_its_end(work: Awaitable[T]) -> T:
    """Do work that, once begun, is not cancelled when its connection breaks, and return its result."""
    running = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait([running])
        if not running.cancelled() and (error := running.exception()) is not None:
            logger.warning("a request failed after its connection was lost: %s", error)
        raise


async def _unknown_path(scope: Scope, receive: Receive, send: Send) -> None:
    sentence = "unknown path: expected /scheduler/filter or /scheduler/bind"
    await _Json(encode_error(sentence), 404)(scope, receive, send)


def declared_length(headers: Headers) -> int | None:
    """Return Content-Length, None if there is none; a number over every limit if it has too many digits."""
    text = headers.get("content-length", "")
    if not (text.isascii() and text.isdigit()):
        return None
    return int(text) if len(text) <= LONGEST_CONTENT_LENGTH else 10**LONGEST_CONTENT_LENGTH


async def read_body(receive: Receive, *, declared: int | None, limit: int, patience: float) -> bytes:
    """Read the whole body of a request.

    declared  Content-Length, None if there is none; a body that is declared too large is not read at all
    limit     bytes
    patience  seconds from now until the end of the body

    Raises BodyTooLarge, BodyTooSlow, ClientGone.
    """
    if declared is not None and declared > limit:
        raise BodyTooLarge(limit)
    pieces: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(patience):
            while True:
                message = await receive()
                if message["type"] != "http.request":
                    raise ClientGone
                piece = message.get("body", b"")
                size += len(piece)
                if size > limit:
                    raise BodyTooLarge(limit)
                pieces.append(piece)
                if not message.get("more_body", False):
                    return b"".join(pieces)
    except TimeoutError:
        raise BodyTooSlow(patience) from None
