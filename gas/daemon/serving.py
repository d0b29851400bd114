"""Running applications on sockets with Hypercorn, all on this event loop, until told to stop."""

from __future__ import annotations

import asyncio
import logging
import ssl
import sys
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from socket import socket
from typing import Any, cast

from hypercorn.asyncio import serve as hypercorn_serve
from hypercorn.config import Config, Sockets
from hypercorn.typing import Framework
from starlette.types import ASGIApp

from gas.daemon.listening import ListeningSocket

logger = logging.getLogger(__name__)

HANDSHAKE_TIMEOUT = 10.0
"""Seconds from a connection to the end of its TLS handshake."""

LONGEST_HEADERS = 16 * 1024
"""Bytes of the headers of one request."""


SCHEDULER_KEEP_ALIVE = 120.0
"""Seconds for the scheduler's port; see `Port`."""

PLAIN_KEEP_ALIVE = 15.0
"""Seconds for the plain port, where anybody may connect."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Port:
    """One application on one socket.

    tls         the context to serve with, None for plain HTTP
    keep_alive  seconds that a connection may be open without a complete request: until the headers of the
                first, and between two. kube-scheduler gives an idle connection up after 90 s and must be the
                first to do so, because a request that is sent into a closing connection is lost
    """

    app: ASGIApp
    socket: ListeningSocket
    tls: ssl.SSLContext | None
    keep_alive: float


async def serve(
    ports: Sequence[Port],
    shutdown: asyncio.Event,
    *,
    graceful_timeout: float,
    handshake_timeout: float = HANDSHAKE_TIMEOUT,
) -> None:
    """Serve until ``shutdown`` is set; then finish what is in hand, for at most ``graceful_timeout`` seconds.

    Owns the sockets from now on. Raises what made a port fail before that.
    """
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(_broken_connection)
    servers = [
        asyncio.create_task(
            hypercorn_serve(
                cast(Framework, port.app),
                _PortConfig(port, graceful_timeout, handshake_timeout),
                shutdown_trigger=shutdown.wait,
                mode="asgi",
            )
        )
        for port in ports
    ]
    stopped = asyncio.create_task(shutdown.wait())
    try:
        await asyncio.wait([*servers, stopped], return_when=asyncio.FIRST_COMPLETED)
        for server in servers:
            if server.done() and not stopped.done():
                server.result()
        # Hypercorn's own patience does not end a connection whose client takes nothing.
        await asyncio.wait(servers, timeout=graceful_timeout + 1)
        for port in ports:
            port.socket.break_off()
        await asyncio.wait(servers, timeout=1)
    finally:
        for task in (stopped, *servers):
            task.cancel()
        ended, _ = await asyncio.wait(servers, timeout=1)
        for server in ended:
            if shutdown.is_set() and not server.cancelled() and (error := server.exception()) is not None:
                logger.warning("a port did not stop in order: %r", error)
        loop.set_exception_handler(None)


async def until_served(serving: Coroutine[Any, Any, None], background: list[asyncio.Task[None]]) -> None:
    """Wait until nothing is served any more. A background task never ends by itself; if one does, that is raised."""
    served = asyncio.create_task(serving)
    done, _ = await asyncio.wait([served, *background], return_when=asyncio.FIRST_COMPLETED)
    if served not in done:
        served.cancel()
        await asyncio.wait([served])
    for task in done:
        task.result()


class _PortConfig(Config):
    """Hypercorn's settings for one port."""

    accesslog = None
    errorlog = logging.getLogger("hypercorn")
    include_server_header = False
    h11_max_incomplete_size = LONGEST_HEADERS
    keep_alive_max_requests = sys.maxsize  # on HTTP/2 the request that reaches it would get no answer

    def __init__(self, port: Port, graceful_timeout: float, handshake_timeout: float) -> None:
        self._port = port
        self.graceful_timeout = graceful_timeout
        self.keep_alive_timeout = port.keep_alive
        self.ssl_handshake_timeout = handshake_timeout

    @property
    def ssl_enabled(self) -> bool:
        return self._port.tls is not None

    def create_ssl_context(self) -> ssl.SSLContext | None:
        return self._port.tls

    def create_sockets(self) -> Sockets:
        sockets: list[socket] = [self._port.socket]
        return Sockets(sockets, [], []) if self.ssl_enabled else Sockets([], sockets, [])


def _broken_connection(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """A peer that breaks HTTP/2's rules, or takes nothing, ends its connection by an exception: no fault of ours."""
    if context.get("message") == "Unhandled exception in client_connected_cb":
        logger.warning("gave up a connection: %r", context.get("exception"))
    else:
        loop.default_exception_handler(context)
