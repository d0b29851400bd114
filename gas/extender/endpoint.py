"""Check and limit requests with a JSON body, count them, and turn their errors into responses."""

import abc
import asyncio
import logging
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass
from time import perf_counter
from typing import ClassVar, TypeVar

from prometheus_client import Counter, Histogram
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from gas.extender.readiness import NotReady
from gas.values.errors import GasError

logger = logging.getLogger(__name__)

T = TypeVar("T")

LARGE = 64 * 1024
MOST_LARGE = 8  # bodies over LARGE bytes that are read at a time on one port, so that they take little memory
INTERNAL_ERROR = "internal error, see the extender's log"


class Problem(GasError):
    """An error that becomes the response. The request is counted by ``result``."""

    def __init__(self, status: int, result: str, sentence: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(sentence)
        self.status = status
        self.result = result
        self.headers = headers or {}


class ClientGone(Exception):
    """The client closed the connection, so there is no response."""


@dataclass(eq=False)
class JsonEndpoint(abc.ABC):
    """An endpoint that takes a JSON body by POST."""

    method_is_checked_first: ClassVar[bool]
    """Whether a wrong method is reported rather than a wrong content type, if both are wrong."""
    wrong_content_type: ClassVar[int]
    not_ready: ClassVar[int]
    internal_error: ClassVar[int]
    """Status of the response to a request that meets a bug; the others likewise."""
    when_too_large: ClassVar[str] = ""  # what to do about a body that is too large
    waits_if_many_are_large: ClassVar[bool]  # else a request with a further large body is refused

    name: str
    requests: Counter  # of all requests, by endpoint and result
    seconds: Histogram  # of each request that gets a response
    largest: int  # bytes of the largest body that is read
    timeout: float  # seconds from a request's headers to the end of its body
    large: asyncio.Semaphore  # held while a body over LARGE bytes is read

    @property
    def what(self) -> str:
        """The endpoint, for the log."""
        return self.name

    @abc.abstractmethod
    async def respond(self, body: bytes) -> Response:
        """Return the response to a body. Raises Problem and NotReady."""

    @abc.abstractmethod
    def problem_response(self, problem: Problem) -> Response: ...

    def count(self, result: str) -> None:
        self.requests.labels(self.name, result).inc()

    async def read(self, receive: Receive, declared: int | None) -> bytes:
        """Read the body of a request, among few large ones. Raises Problem and ClientGone."""
        if declared is not None and not LARGE < declared <= self.largest:
            return await self._read(receive, declared)
        if self.large.locked() and not self.waits_if_many_are_large:
            sentence = f"{MOST_LARGE} requests over {LARGE} bytes are being read already; try again"
            raise Problem(503, "too-many-large", sentence)
        async with self.large:
            return await self._read(receive, declared)

    async def _read(self, receive: Receive, declared: int | None) -> bytes:
        """Read the body of a request. Raises Problem and ClientGone.

        declared  Content-Length, None if there is none; a body that is declared too large is not read at all
        """
        too_large = Problem(
            413, "too-large", f"the request body is larger than {self.largest} bytes{self.when_too_large}"
        )
        if declared is not None and declared > self.largest:
            raise too_large
        pieces: list[bytes] = []
        size = 0
        try:
            async with asyncio.timeout(self.timeout):
                while True:
                    message = await receive()
                    if message["type"] != "http.request":
                        raise ClientGone
                    piece = message.get("body", b"")
                    size += len(piece)
                    if size > self.largest:
                        raise too_large
                    pieces.append(piece)
                    if not message.get("more_body", False):
                        return b"".join(pieces)
        except TimeoutError:
            sentence = f"the request body was not complete after {self.timeout:g} s"
            raise Problem(408, "too-slow", sentence) from None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = perf_counter()
        try:
            response = await self._respond(scope, receive)
        except ClientGone:
            self.count("client-gone")
            return
        self.seconds.observe(perf_counter() - started)
        await response(scope, receive, send)

    async def _respond(self, scope: Scope, receive: Receive) -> Response:
        headers = Headers(scope=scope)
        try:
            self._check_headers(scope["method"], headers)
            declared = headers.get("content-length", "")
            is_number = declared.isascii() and declared.isdigit()
            return await self.respond(await self.read(receive, int(declared) if is_number else None))
        except Problem as error:
            problem = error
        except NotReady as error:
            problem = Problem(self.not_ready, "not-ready", str(error))
        except ClientGone:
            raise
        except Exception:
            logger.exception("%s failed, which is a bug", self.what)
            problem = Problem(self.internal_error, "internal-error", INTERNAL_ERROR)
        self.count(problem.result)
        response = self.problem_response(problem)
        response.headers.update(problem.headers)
        if problem.result == "not-ready":
            response.headers["connection"] = "close"  # a Service chooses a replica for each new connection
        return response

    def _check_headers(self, method: str, headers: Headers) -> None:
        content_type = headers.get("content-type", "")
        is_json = content_type.partition(";")[0].strip().lower() == "application/json"
        if method != "POST" and (is_json or self.method_is_checked_first):
            raise Problem(405, "wrong-method", f"expected POST, found {method}", {"allow": "POST"})
        if not is_json:
            found = content_type[:80] or "none"
            raise Problem(self.wrong_content_type, "wrong-content-type", f"expected application/json, found {found}")


def by_path(endpoints: Mapping[str, ASGIApp], unknown: ASGIApp) -> ASGIApp:
    """Return an application that passes each request to the endpoint of its path, else to ``unknown``."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await endpoints.get(scope["path"], unknown)(scope, receive, send)

    return app


async def to_its_end(work: Awaitable[T]) -> T:
    """Return the result of work that, once begun, is not cancelled when its connection breaks."""
    running = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait([running])
        if not running.cancelled() and (error := running.exception()) is not None:
            logger.warning("a request failed after its connection was lost: %s", error)
        raise
