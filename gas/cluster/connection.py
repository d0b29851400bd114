"""Send requests to the API server. Errors say whether a write may have happened."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import Any, Protocol, Self, cast
from urllib.parse import urlencode

import aiohttp
from yarl import URL

from gas.cluster.credentials import Credentials, find_credentials
from gas.cluster.errors import LARGEST_RESPONSE, ApiRefused, ApiUnavailable, Forbidden, OutcomeUnknown, response_error
from gas.values.timing import SYSTEM_TIMING, Timing

DEFAULT_TIMEOUT = 30.0
_CONNECT_TIMEOUT = 5.0
_LARGEST_ERROR = 64 * 1024
_RETRY_AFTER_LIMIT = 10.0
_READS = ("GET", "HEAD")
_WITHOUT_ROLES = 10.0
"""Seconds after a connection failed or broke. A 403 in that time is taken to come from an API server that is starting:
it responds before it has read its roles, and forbids everything for a moment."""


class RateLimit:
    """A token bucket: ``burst`` requests at once, then ``qps`` a second, first come first served."""

    def __init__(self, qps: float, burst: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._interval = 1 / qps
        self._ahead = (burst - 1) * self._interval
        self._clock = clock
        self._due = clock() - self._ahead

    def reserve(self) -> float:
        """Take the next place and return in how many seconds it is due. A caller that gives up has used its place."""
        now = self._clock()
        self._due = max(self._due, now - self._ahead)
        delay = max(0.0, self._due - now)
        self._due += self._interval
        return delay


async def connect(
    kubeconfig: str | None, *, qps: float | None = None, burst: int | None = None, user_agent: str = "gas"
) -> ApiServer:
    """Find the cluster and its credentials, see `find_credentials`. Nothing is sent yet. Raises NoCluster.

    qps, burst  limit on requests, see `RateLimit`; both None for no limit, because the API server has its own
    """
    credentials = await find_credentials(kubeconfig)
    limit = None if qps is None or burst is None else RateLimit(qps, burst)
    return ApiServer(credentials, limit=limit, user_agent=user_agent)


class Transport(Protocol):
    """A way to send requests to the API server: `aiohttp.ClientSession`, or anything with its responses and errors."""

    def request(
        self, method: str, url: URL, /, **options: Any
    ) -> AbstractAsyncContextManager[aiohttp.ClientResponse]: ...
    async def close(self) -> None: ...


class ApiServer:
    """One API server, with as many connections as there are requests in progress.

    Construct it inside a running event loop. ``transport`` is closed by `close`; None for HTTP over TCP.
    """

    def __init__(
        self,
        credentials: Credentials,
        *,
        limit: RateLimit | None = None,
        user_agent: str = "gas",
        transport: Transport | None = None,
        timing: Timing = SYSTEM_TIMING,
    ) -> None:
        self._clock = timing.monotonic
        self._credentials = credentials
        self._limit = limit
        self._user_agent = user_agent
        self._broken_at = -math.inf
        if transport is None:
            connector, no_cookies = aiohttp.TCPConnector(limit=0), aiohttp.DummyCookieJar()
            session = aiohttp.ClientSession(connector=connector, cookie_jar=no_cookies, read_bufsize=2**20)
            transport = cast(Transport, session)
        self._transport = transport

    @property
    def url(self) -> str:
        return self._credentials.address.url

    @property
    def authority(self) -> str | bytes | None:
        """The authorities that verify the API server, their file or its content; None if those of the system do."""
        return self._credentials.address.authority

    async def close(self) -> None:
        await self._transport.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self.close()

    async def request(
        self,
        method: str,
        path: str,  # quoted, see `gas.cluster.paths`
        *,
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = "application/json",
        # seconds for everything from connecting to the last byte, without the wait for the rate limit
        timeout: float = DEFAULT_TIMEOUT,
        repeat_within: float = math.inf,  # seconds after which the request is not sent again, whatever the timeout
        urgent: bool = False,  # skip the rate limit, for a request that must not wait behind a queue of writes
    ) -> bytes:
        """Send one request and return the body of the response.

        On 401 the credentials are read again once. On 429 the request is repeated after the time that the server
        asks for, within ``timeout``. Raises ApiRefused, Forbidden, ApiUnavailable, OutcomeUnknown.
        """
        if self._limit is not None and not urgent:
            await asyncio.sleep(self._limit.reserve())
        deadline = self._clock() + timeout
        last_send = self._clock() + min(timeout, repeat_within)
        renewed = False
        while True:
            left = aiohttp.ClientTimeout(total=max(deadline - self._clock(), 0.001), sock_connect=_CONNECT_TIMEOUT)
            async with self._exchange(
                method, path, query, timeout=left, body=body, content_type=content_type
            ) as response:
                if 200 <= response.status < 300:
                    return await read_body(response.content, LARGEST_RESPONSE)
                error = await self._error_of(response, method, path)
                pause = _retry_after(response)
            if not isinstance(error, ApiRefused):
                raise error
            if error.status == 401 and not renewed and await self._credentials.renew():
                renewed = True
            elif error.status == 429 and self._clock() + pause < last_send:
                await asyncio.sleep(pause)
            else:
                raise error
            if self._clock() >= last_send:  # the process stood still meanwhile
                raise error

    @asynccontextmanager
    async def stream(
        self, path: str, *, query: Mapping[str, str] | None = None, silence: float
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """Stream the body of a response in chunks as they arrive: ``async with api.stream(…) as chunks``.

        silence  seconds without a single byte after which the connection counts as dead

        Raises as `request` does, at the start and while reading. The iteration ends when the server ends the stream,
        and after ``silence``.
        """
        if self._limit is not None:
            await asyncio.sleep(self._limit.reserve())
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_TIMEOUT, sock_read=silence)
        async with self._exchange("GET", path, query, timeout=timeout) as response:
            if response.status != 200:
                error = await self._error_of(response, "GET", path)
                if response.status == 401:
                    await self._credentials.renew()
                raise error
            yield _until_silent(response.content)

    @asynccontextmanager
    async def _exchange(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None,
        *,
        timeout: aiohttp.ClientTimeout,
        body: bytes | None = None,
        content_type: str = "",
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        headers = {
            "Accept": "application/json",
            # Within a cluster, compressing costs both sides more than sending the bytes.
            "Accept-Encoding": "identity",
            "User-Agent": self._user_agent,
        }
        if body is not None:
            headers["Content-Type"] = content_type
        if (authorization := await self._credentials.authorization()) is not None:
            headers["Authorization"] = authorization
        address = self._credentials.address
        request = f"{method} {path}"
        no_response = ApiUnavailable if method in _READS else OutcomeUnknown
        try:
            async with self._transport.request(
                method,
                URL(f"{address.url}{path}" + (f"?{urlencode(query)}" if query else ""), encoded=True),
                data=body,
                headers=[*headers.items(), *self._credentials.impersonation],
                ssl=address.tls,
                server_hostname=address.server_hostname,
                proxy=address.proxy,
                allow_redirects=False,
                timeout=timeout,
            ) as response:
                yield response
        except aiohttp.ClientSSLError as error:
            await self._credentials.renew()
            raise ApiUnavailable(f"cannot talk TLS with the API server at {address.url}: {_reason(error)}") from error
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            self._broken_at = self._clock()
            raise ApiUnavailable(f"cannot connect to the API server at {address.url}: {_reason(error)}") from error
        except TimeoutError as error:
            raise no_response(f"no response from the API server at {address.url} in time to {request}") from error
        except (aiohttp.ClientError, OSError) as error:
            self._broken_at = self._clock()
            raise no_response(
                f"the connection to the API server at {address.url} broke during {request}: {_reason(error)}"
            ) from error

    async def _error_of(self, response: aiohttp.ClientResponse, method: str, path: str) -> ApiRefused | ApiUnavailable:
        body = await response.content.read(_LARGEST_ERROR)
        error = response_error(response.status, body, request=f"{method} {path}", is_write=method not in _READS)
        if isinstance(error, Forbidden) and self._clock() - self._broken_at < _WITHOUT_ROLES:
            return ApiUnavailable(f"the API server may not have read its roles yet: {error}")
        return error


def _reason(error: Exception) -> str:
    """Return the part of aiohttp's message that helps a person."""
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return str(error.certificate_error)
    if isinstance(error, aiohttp.ClientConnectorError):
        return str(error.os_error)
    if isinstance(error, aiohttp.ConnectionTimeoutError):
        return f"no connection in {_CONNECT_TIMEOUT} s"
    if isinstance(error, aiohttp.ClientPayloadError):
        return "the response ended early"
    return str(error) or "no details"


async def read_body(content: aiohttp.StreamReader, largest: int) -> bytes:
    """Return a whole body, as aiohttp's own `read` does for a body of any length. Raises aiohttp.ClientError."""
    pieces: list[bytes] = []
    size = 0
    while piece := await content.readany():
        size += len(piece)
        if size > largest:
            raise aiohttp.ClientError(f"the response has more than {largest} bytes")
        pieces.append(piece)
    return b"".join(pieces)


async def _until_silent(content: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    with suppress(TimeoutError):
        while chunk := await content.readany():
            yield chunk


def _retry_after(response: aiohttp.ClientResponse) -> float:
    """Return the seconds of the Retry-After header: 1 if there is none, at most 10."""
    text = response.headers.get("Retry-After", "")
    seconds = float(text) if text.isascii() and text.isdigit() else 1.0
    return min(seconds, _RETRY_AFTER_LIMIT)
