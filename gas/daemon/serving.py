"""Serve applications on sockets with Hypercorn, on the running event loop, until the program is to stop."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import socket
import ssl
import sys
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, cast
from weakref import WeakSet, WeakValueDictionary

from hypercorn.app_wrappers import ASGIWrapper
from hypercorn.asyncio.tcp_server import MAX_RECV, TCPServer
from hypercorn.asyncio.worker_context import WorkerContext
from hypercorn.config import Config
from hypercorn.events import Closed, Event, RawData, Updated
from hypercorn.typing import ASGIFramework, LifespanState
from starlette.types import ASGIApp

from gas.errors import GasError

logger = logging.getLogger(__name__)

BACKLOG = 1024

STALLED = 30_000
"""Milliseconds after which the kernel closes the connection of a peer that neither receives nor acknowledges."""

HANDSHAKE_TIMEOUT = 10.0
"""Seconds from a connection to the end of its TLS handshake."""

LONGEST_HEADERS = 16 * 1024
"""Most bytes of the headers of one request."""

LINGER = 0.5
"""Seconds after the begin of the shutdown before idle connections close.

A request that arrives in that time is completed, and its response ends the connection. Otherwise all requests that are
on their way when the shutdown begins would be lost, and Go does not repeat a POST.
"""

SCHEDULER_KEEP_ALIVE = 120.0
"""Seconds for the scheduler's port; see `Port`."""

PLAIN_KEEP_ALIVE = 15.0
"""Seconds for the plain port, which any client can connect to; see `Port`."""


MOST_ADMISSION_CONNECTIONS = 512
"""Open connections of the admission port, which any client may connect to: each takes 0.26 MB. The API server opens one
for each review that waits, and keeps few."""


class CannotListen(GasError):
    """A port is in use or not permitted, or its address is not this machine's. The message names the flag to change."""


class ListeningSocket(socket.socket):
    """A listening socket that keeps track of its open connections, and may limit them.

    most  open connections. One more takes the place of the one that has been idle for the longest time, and is refused
          if all have a request in progress. A handshake and headers that are still being sent are idle time. None: any
          number
    """

    def __init__(self, opened: socket.socket, most: int | None = None) -> None:
        super().__init__(opened.family, opened.type, opened.proto, fileno=opened.detach())
        self._most = most
        self._accepted: WeakValueDictionary[int, socket.socket] = WeakValueDictionary()
        """By file descriptor; those that are idle for the longest time are the first."""
        self._busy: WeakSet[socket.socket] = WeakSet()

    def accept(self) -> tuple[socket.socket, Any]:
        accepted, peer = super().accept()
        if self._most is not None and len(self._accepted) >= self._most and not self._drop_idlest():
            accepted.close()
            raise ConnectionAbortedError(f"all {self._most} connections have a request in progress")
        self._put_last(accepted.fileno(), accepted)
        return accepted, peer

    def set_busy(self, descriptor: int, *, is_busy: bool) -> None:
        """Take in that a request on a connection has begun or ended. One that is closed already is ignored."""
        if (accepted := self._accepted.get(descriptor)) is None:
            return
        if is_busy:
            self._busy.add(accepted)
        else:
            self._busy.discard(accepted)
            self._put_last(descriptor, accepted)

    def break_off(self) -> None:
        """Shut down every open connection now, also those with a request in progress. Their owner closes them."""
        for accepted in list(self._accepted.values()):
            _shut_down(accepted)

    def _put_last(self, descriptor: int, accepted: socket.socket) -> None:
        self._accepted.pop(descriptor, None)
        self._accepted[descriptor] = accepted

    def _drop_idlest(self) -> bool:
        """Shut down the connection that has been idle for the longest time. Return whether there was one."""
        for descriptor, accepted in list(self._accepted.items()):
            if accepted not in self._busy:
                del self._accepted[descriptor]
                _shut_down(accepted)
                return True
        return False


def _shut_down(accepted: socket.socket) -> None:
    with contextlib.suppress(OSError):  # it is closed already
        accepted.shutdown(socket.SHUT_RDWR)


def listen(address: str, port: int, *, flag: str, stalled: int = STALLED, most: int | None = None) -> ListeningSocket:
    """Open a TCP socket. It accepts connections from now on; they wait until the socket is served.

    address  an IP address; empty is every address of the machine, IPv4 and IPv6 (only IPv4 where there is no IPv6)
    port     0 picks a free port
    flag     name of the flag that the error message names
    stalled  milliseconds, see STALLED
    most     open connections, see `ListeningSocket`

    Raises CannotListen.
    """
    try:
        opened = ListeningSocket(_open(address, port), most)
    except OSError as error:
        where = f"port {port}" + (f" of {address}" if address else "")
        raise CannotListen(f"--{flag}: cannot listen on {where}: {_why(error)}") from None
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, stalled)
    # Connections inherit TCP_NODELAY. asyncio would set it only for sockets that were made with the protocol's number,
    # and without it the last piece of a response waits 40 ms for the client's acknowledgement of the first.
    opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    opened.setblocking(False)
    return opened


def _open(address: str, port: int) -> socket.socket:
    if address:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        return socket.create_server((address, port), family=family, backlog=BACKLOG)
    if socket.has_dualstack_ipv6():
        try:
            return socket.create_server(("::", port), family=socket.AF_INET6, backlog=BACKLOG, dualstack_ipv6=True)
        except OSError as error:
            if error.errno not in (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL):
                raise
    return socket.create_server(("0.0.0.0", port), backlog=BACKLOG)  # noqa: S104 -- every address is asked for


def _why(error: OSError) -> str:
    reasons = {
        errno.EADDRINUSE: "it is in use; stop the program that listens there, or choose another port",
        errno.EACCES: "it is not permitted; ports below 1024 need a privilege, choose another port",
        errno.EADDRNOTAVAIL: "this machine does not have that address",
    }
    code = error.errno or 0
    return reasons.get(code, os.strerror(code))


@dataclass(frozen=True, slots=True, kw_only=True)
class Port:
    """One application on one socket.

    tls         the context to serve with, None for plain HTTP
    keep_alive  seconds that a connection may be open without a complete request: until the headers of the first
                request, and between two. kube-scheduler closes an idle connection after 90 s and must be the first
                to do so, because a request that is sent into a closing connection is lost
    """

    app: ASGIApp
    socket: ListeningSocket
    tls: ssl.SSLContext | None
    keep_alive: float


async def serve_with(
    ports: Sequence[Port],
    stopping: asyncio.Event,
    *,
    graceful_timeout: float,
    background: Sequence[Coroutine[Any, Any, None]],
    finish: Callable[[], Awaitable[None]] | None = None,
) -> None:
    """Serve the ports and run background work until ``stopping`` is set; then finish requests and cancel the work.

    Background work never returns by itself. If it raises, serving ends and the exception is raised here.

    graceful_timeout  most seconds for requests in progress, see `serve`
    finish            awaited after the last request, while the background work still runs
    """
    tasks = [asyncio.ensure_future(work) for work in background]
    serving = asyncio.create_task(serve(ports, stopping, graceful_timeout=graceful_timeout))
    try:
        done, _ = await asyncio.wait([serving, *tasks], return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
        if finish is not None:
            await finish()
    finally:
        for task in (serving, *tasks):
            task.cancel()
        await asyncio.gather(serving, *tasks, return_exceptions=True)


async def serve(
    ports: Sequence[Port],
    stopping: asyncio.Event,
    *,
    graceful_timeout: float,
    handshake_timeout: float = HANDSHAKE_TIMEOUT,
) -> None:
    """Serve until ``stopping`` is set; then finish requests in progress, for at most ``graceful_timeout`` seconds.

    Open connections are served for LINGER seconds more, and each response then ends its connection.

    Owns the sockets from now on. If a port fails before that, its exception is raised.
    """
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(_report_broken_connection)
    servers = [asyncio.create_task(_serve_port(port, stopping, graceful_timeout, handshake_timeout)) for port in ports]
    stopped = asyncio.create_task(stopping.wait())
    try:
        await asyncio.wait([*servers, stopped], return_when=asyncio.FIRST_COMPLETED)
        for server in servers:
            if server.done() and not stopped.done():
                server.result()
        # Cancelling does not end a connection whose client does not receive.
        await asyncio.wait(servers, timeout=graceful_timeout + 1)
        for port in ports:
            port.socket.break_off()
        await asyncio.wait(servers, timeout=1)
    finally:
        for task in (stopped, *servers):
            task.cancel()
        ended, _ = await asyncio.wait(servers, timeout=1)
        for server in ended:
            if stopping.is_set() and not server.cancelled() and (error := server.exception()) is not None:
                logger.warning("a port did not stop cleanly: %r", error)
        loop.set_exception_handler(None)


async def _serve_port(port: Port, stopping: asyncio.Event, graceful_timeout: float, handshake_timeout: float) -> None:
    """Serve one port as `serve` does all of them. Hypercorn's own function for that would not use `_Connection`."""
    loop = asyncio.get_running_loop()
    app = ASGIWrapper(cast(ASGIFramework, port.app))
    config = _PortConfig()
    config.keep_alive_timeout = port.keep_alive
    context = WorkerContext(None)
    connections: set[asyncio.Task[None]] = set()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = cast("asyncio.Task[None]", asyncio.current_task())
        connections.add(task)
        task.add_done_callback(connections.discard)
        await _Connection(app, loop, config, context, LifespanState(), reader, writer, listening=port.socket)

    server = await asyncio.start_server(
        connected,
        sock=port.socket,
        backlog=BACKLOG,
        ssl=port.tls,
        ssl_handshake_timeout=handshake_timeout if port.tls is not None else None,
    )
    try:
        await stopping.wait()
        server.close()
        config.is_last_response = True
        if connections:
            await asyncio.wait(connections, timeout=min(LINGER, graceful_timeout))
        await context.terminated.set()  # idle connections close
        if connections:
            await asyncio.wait(connections, timeout=max(0.0, graceful_timeout - LINGER))
    finally:
        server.close()
        for connection in connections:
            connection.cancel()


class _Connection(TCPServer):
    """A connection that is over once its client has closed it, and that starts no request once it closes itself.

    Hypercorn keeps a connection that its client has closed for the rest of its keep-alive time, with 0.3 MB of buffers.
    kube-scheduler closes a third of its connections after one request, so that would be a gigabyte after some minutes.

    Hypercorn also starts a request that arrives while an idle connection is being closed. Its response cannot be sent
    any more: a pod would be bound, and the scheduler would not know.
    """

    _is_idle = True
    _is_closing = False

    def __init__(self, *parts: Any, listening: ListeningSocket) -> None:
        super().__init__(*parts)
        self._listening = listening

    async def protocol_send(self, event: Event) -> None:
        if isinstance(event, Updated):
            self._is_idle = event.idle
            self._listening.set_busy(self.writer.get_extra_info("socket").fileno(), is_busy=not event.idle)
        if not (isinstance(event, Updated) and self.reader.at_eof()):  # it begins no idle time any more
            await super().protocol_send(event)

    async def _read_data(self) -> None:
        with contextlib.suppress(OSError):
            while not self.reader.at_eof():
                data = await self.reader.read(MAX_RECV)
                if self._is_closing:
                    break
                await self.protocol.handle(RawData(data))
        await self.protocol.handle(Closed())
        await self.idle_task.stop()

    async def _initiate_server_close(self) -> None:
        if self._is_idle:  # no request has begun at the last moment
            self._is_closing = True
            await super()._initiate_server_close()


class _PortConfig(Config):
    """Hypercorn's settings for one port."""

    accesslog = None
    errorlog = logging.getLogger("hypercorn")
    include_server_header = False
    h11_max_incomplete_size = LONGEST_HEADERS
    keep_alive_max_requests = sys.maxsize  # on HTTP/2 the request that reaches it would get no response
    is_last_response = False
    """Whether each response on HTTP/1.1 says that its connection ends with it."""

    def response_headers(self, protocol: str) -> list[tuple[bytes, bytes]]:
        headers: list[tuple[bytes, bytes]] = super().response_headers(protocol)
        return [*headers, (b"connection", b"close")] if self.is_last_response and protocol == "h11" else headers


def _report_broken_connection(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Log a connection that ended by an exception: its peer broke HTTP/2's rules, or did not receive."""
    if context.get("message") == "Unhandled exception in client_connected_cb":
        logger.warning("closed a broken connection: %r", context.get("exception"))
    else:
        loop.default_exception_handler(context)
