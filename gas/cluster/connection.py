"""The connection to the API server: bytes out, bytes in, and errors that say what is known afterwards."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from urllib.parse import urlencode

import aiohttp
from yarl import URL

from gas.cluster.credentials import Credentials, find_credentials
from gas.cluster.errors import ApiRefused, ApiUnavailable, Forbidden, OutcomeUnknown, answer_error
from gas.cluster.rate_limit import RateLimit, rate_limit

DEFAULT_TIMEOUT = 30.0
_CONNECT_TIMEOUT = 5.0
_LARGEST_ERROR = 64 * 1024
_RETRY_AFTER_LIMIT = 10.0
_READS = ("GET", "HEAD")
_WITHOUT_ROLES = 10.0
"""Seconds since a connection failed or broke in which an API server that forbids is taken to be starting: it answers
before it has read its roles, and forbids everything for a moment."""


async def connect(
    kubeconfig: str | None,
    *,
    explicit: bool = False,
    qps: float | None = None,
    burst: int | None = None,
    user_agent: str = "gas",
) -> ApiServer:
    """Find the cluster and prepare to talk to it; nothing is sent yet.

    kubeconfig  path; ``explicit`` makes it win over the service account and $KUBECONFIG
    qps, burst  limit on requests, as `gas.cluster.rate_limit.rate_limit` reads them

    Raises NoCluster. See `gas.cluster.credentials.find_credentials` for what is looked at in which order.
    """
    credentials = await find_credentials(kubeconfig, explicit=explicit)
    return ApiServer(credentials, limit=rate_limit(qps, burst), user_agent=user_agent)


class ApiServer:
    """One API server, over as many connections as there are requests under way.

    Made inside a running event loop.
    """

    def __init__(self, credentials: Credentials, *, limit: RateLimit | None = None, user_agent: str = "gas") -> None:
        self._credentials = credentials
        self._limit = limit
        self._user_agent = user_agent
        self._broken_at = -math.inf
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0),
            cookie_jar=aiohttp.DummyCookieJar(),
            read_bufsize=2**20,
        )

    @property
    def url(self) -> str:
        """Where the API server is, for people."""
        return self._credentials.address.url

    async def close(self) -> None:
        await self._session.close()

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = "application/json",
        timeout: float = DEFAULT_TIMEOUT,
        urgent: bool = False,
    ) -> bytes:
        """Send one request and give back the body of its answer.

        path     quoted, see `gas.cluster.paths`
        timeout  seconds for everything from connecting to the last byte, without the wait for the rate limit
        urgent   not held back by the rate limit: what must not wait behind a queue of writes

        Credentials that are refused are read again once. "Too many requests" is tried again after the time
        that the server asks for, while ``timeout`` lasts.
        Raises ApiRefused, Forbidden, ApiUnavailable, OutcomeUnknown.
        """
        if self._limit is not None and not urgent:
            await self._limit.wait()
        deadline = time.monotonic() + timeout
        renewed = False
        while True:
            left = aiohttp.ClientTimeout(total=max(deadline - time.monotonic(), 0.001), sock_connect=_CONNECT_TIMEOUT)
            async with self._exchange(
                method, path, query, timeout=left, body=body, content_type=content_type
            ) as response:
                if 200 <= response.status < 300:
                    return await response.read()
                error = await self._error_of(response, method, path)
                pause = _retry_after(response)
            if not isinstance(error, ApiRefused):
                raise error
            if error.status == 401 and not renewed:
                renewed = True
                if await self._credentials.renew():
                    continue
            if error.status != 429 or time.monotonic() + pause >= deadline:
                raise error
            await asyncio.sleep(pause)

    @asynccontextmanager
    async def stream(
        self, path: str, *, query: Mapping[str, str] | None = None, silence: float
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """The body of an answer without end, in chunks as they come: ``async with api.stream(…) as chunks``.

        silence  seconds without a single byte after which the connection counts as dead

        Raises as `request`, at the start and while reading. A stream that the server ends, or that falls
        silent, just stops.
        """
        if self._limit is not None:
            await self._limit.wait()
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
            # Within a cluster, packing and unpacking costs both sides more than the bytes.
            "Accept-Encoding": "identity",
            "User-Agent": self._user_agent,
        }
        if body is not None:
            headers["Content-Type"] = content_type
        if (authorization := await self._credentials.authorization()) is not None:
            headers["Authorization"] = authorization
        address = self._credentials.address
        what = f"{method} {path}"
        unanswered = ApiUnavailable if method in _READS else OutcomeUnknown
        try:
            async with self._session.request(
                method,
                URL(f"{address.url}{path}" + (f"?{urlencode(query)}" if query else ""), encoded=True),
                data=body,
                headers=headers,
                ssl=address.tls,
                server_hostname=address.server_hostname,
                proxy=address.proxy,
                allow_redirects=False,
                timeout=timeout,
            ) as response:
                yield response
        except aiohttp.ClientSSLError as error:
            await self._credentials.renew()
            raise ApiUnavailable(f"cannot talk TLS with the API server at {address.url}: {error}") from error
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            self._broken_at = time.monotonic()
            raise ApiUnavailable(f"cannot connect to the API server at {address.url}: {_words(error)}") from error
        except TimeoutError as error:
            raise unanswered(f"no answer from the API server at {address.url} in time to {what}") from error
        except (aiohttp.ClientError, OSError) as error:
            self._broken_at = time.monotonic()
            raise unanswered(
                f"the connection to the API server at {address.url} broke during {what}: {_words(error)}"
            ) from error

    async def _error_of(self, response: aiohttp.ClientResponse, method: str, path: str) -> ApiRefused | ApiUnavailable:
        body = await response.content.read(_LARGEST_ERROR)
        error = answer_error(response.status, body, request=f"{method} {path}", is_write=method not in _READS)
        if isinstance(error, Forbidden) and time.monotonic() - self._broken_at < _WITHOUT_ROLES:
            return ApiUnavailable(f"the API server may not have read its roles yet: {error}")
        return error


def _words(error: Exception) -> str:
    """The part of aiohttp's message that a person can use."""
    if isinstance(error, aiohttp.ClientConnectorError):
        return str(error.os_error)
    if isinstance(error, aiohttp.ConnectionTimeoutError):
        return f"no connection in {_CONNECT_TIMEOUT} s"
    if isinstance(error, aiohttp.ClientPayloadError):
        return "the answer stopped before its end"
    return str(error) or type(error).__name__


async def _until_silent(content: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    while True:
        try:
            chunk = await content.readany()
        except TimeoutError:
            return
        if not chunk:
            return
        yield chunk


def _retry_after(response: aiohttp.ClientResponse) -> float:
    """Seconds; 1 when the server does not say, never more than a human would wait."""
    text = response.headers.get("Retry-After", "")
    seconds = float(text) if text.isascii() and text.isdigit() else 1.0
    return min(seconds, _RETRY_AFTER_LIMIT)
