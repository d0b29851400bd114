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
import time
import traceback
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, cast
from weakref import ReferenceType, WeakKeyDictionary, WeakSet, ref

from hypercorn.app_wrappers import ASGIWrapper
from hypercorn.asyncio.task_group import TaskGroup
from hypercorn.asyncio.tcp_server import MAX_RECV, TCPServer
from hypercorn.asyncio.worker_context import AsyncioSingleTask, WorkerContext
from hypercorn.config import Config
from hypercorn.events import Closed, Event, RawData, Updated
from hypercorn.typing import ASGIFramework, LifespanState
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gas.daemon.logs import LimitedLog
from gas.values.errors import GasError

logger = logging.getLogger(__name__)

BACKLOG = 1024

STALLED = 30_000
"""Milliseconds after which the kernel closes the connection of a peer that neither receives nor acknowledges."""

HANDSHAKE_TIMEOUT = 10.0
"""Seconds from a connection to the end of its TLS handshake."""

SHUTDOWN_TIMEOUT = 0.5
"""Seconds that a client has to confirm the end of a TLS connection; RFC 8446, 6.1 allows not to wait at all."""

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
"""Open connections of the admission port whose request is complete or responded to, and again as many others. Any
client may connect to it: a connection takes 0.3 MB once it has sent a byte, and more with a part of a request. The API
server opens one for each review that waits, and keeps few."""

MOST_SCHEDULER_CONNECTIONS = 2048
"""The same of kube-scheduler's port. kube-scheduler opens one for each bind in progress, and a connection that finds no
place is a bind that fails, so there are many more than it needs."""

LEAST_TIME = 0.5
"""Seconds that a connection has for its handshake and request before another may take its place."""

PLACE_CHECK = 0.02
"""Seconds between two looks for a place for a further connection while there is none."""

ACCEPTED_AT_ONCE = 8
"""Connections accepted before the event loop turns to the open ones again."""

ACCEPT_AGAIN = 1.0
"""Seconds until connections are accepted again after the process has run out of file descriptors or memory."""


class CannotListen(GasError):
    """A port is in use or not permitted, or its address is not this machine's. The message names the flag to change."""


class ListeningSocket(socket.socket):
    """A listening socket that keeps track of its open connections, and may limit them.

    A connection is *unproven* until all of a request has arrived, and again from the headers of the next request until
    that one is complete. Unproven connections have places of their own, so clients that send nothing, or slowly, take
    none from the others.

    most        connections with a complete request or between two requests. A further one takes the place of the one
                that has been idle for the longest time, and is closed if all have a request in progress. As many
                others may be unproven. A further one takes the place of the oldest, but waits in the kernel's
                queue until that has had its time. None: any number
    least_time  seconds, see LEAST_TIME
    """

    def __init__(self, opened: socket.socket, most: int | None = None, least_time: float = LEAST_TIME) -> None:
        super().__init__(opened.family, opened.type, opened.proto, fileno=opened.detach())
        self._most = most
        self._least_time = least_time
        self._unproven: WeakKeyDictionary[socket.socket, float] = WeakKeyDictionary()
        """Since when; the oldest are the first."""
        self._idle: WeakKeyDictionary[socket.socket, None] = WeakKeyDictionary()
        """Those that are idle for the longest time are the first."""
        self._busy: WeakSet[socket.socket] = WeakSet()

    def seconds_to_place(self) -> float:
        """Return how long a further connection has to wait before it may be accepted."""
        if self._most is None or len(self._unproven) < self._most:
            return 0.0
        return max(0.0, next(iter(self._unproven.values())) + self._least_time - time.monotonic())

    def accept(self) -> tuple[socket.socket, Any]:
        accepted, peer = super().accept()
        if self._most is not None and len(self._unproven) >= self._most:
            _drop_first(self._unproven)
        self._unproven[accepted] = time.monotonic()
        return accepted, peer

    def request_begins(self, accepted: socket.socket) -> None:
        """Take in that the headers of a request have arrived."""
        if self._idle.pop(accepted, False) is None:
            self._unproven[accepted] = time.monotonic()

    def request_is_complete(self, accepted: socket.socket) -> None:
        """Take in that all of a request has arrived. The connection is closed if there is no place for it."""
        if self._unproven.pop(accepted, None) is None:
            return
        if self._most is None or len(self._busy) + len(self._idle) < self._most or _drop_first(self._idle):
            self._busy.add(accepted)
        else:
            _shut_down(accepted)

    def request_ends(self, accepted: socket.socket) -> None:
        """Take in that a request has its response."""
        self.request_is_complete(accepted)
        if accepted in self._busy:
            self._busy.discard(accepted)
            self._idle[accepted] = None

    def break_off(self) -> None:
        """Shut down every open connection now, also those with a request in progress. Their owner closes them."""
        for accepted in [*self._unproven, *self._idle, *self._busy]:
            _shut_down(accepted)


def _drop_first(connections: WeakKeyDictionary[socket.socket, Any]) -> bool:
    """Shut down the first connection. Return whether there was one."""
    accepted = next(iter(connections), None)
    if accepted is None:
        return False
    del connections[accepted]
    _shut_down(accepted)
    return True


def _shut_down(accepted: socket.socket) -> None:
    with contextlib.suppress(OSError):  # it is closed already
        accepted.shutdown(socket.SHUT_RDWR)


def listen(
    address: str,
    port: int,
    *,
    flag: str,
    stalled: int = STALLED,
    most: int | None = None,
    least_time: float = LEAST_TIME,
) -> ListeningSocket:
    """Open a TCP socket. It accepts connections from now on; they wait until the socket is served.

    address  an IP address; empty is every address of the machine, IPv4 and IPv6 (only IPv4 where there is no IPv6)
    port     0 picks a free port
    flag     name of the flag that the error message names
    stalled  milliseconds, see STALLED
    most, least_time  see `ListeningSocket`

    Raises CannotListen.
    """
    try:
        opened = ListeningSocket(_open(address, port), most, least_time)
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


class Tls(Protocol):
    """The server's side of TLS."""

    @property
    def context(self) -> ssl.SSLContext:
        """The context for the next connection."""

    def admits(self, certificate: Mapping[str, Any]) -> bool:
        """Return whether a verified client may call, from its certificate as ``getpeercert()`` returns it."""

    def handshake_failed(self, error: ssl.SSLError) -> None:
        """Take in that a client was refused, or did no handshake."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Port:
    """One application on one socket.

    tls         None for plain HTTP
    keep_alive  seconds that a connection may be open without a complete request: until the headers of the first
                request, and between two. kube-scheduler closes an idle connection after 90 s and must be the first
                to do so, because a request that is sent into a closing connection is lost
    """

    app: ASGIApp
    socket: ListeningSocket
    tls: Tls | None
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
    loop.set_exception_handler(partial(_report_broken_connection, LimitedLog(logger)))
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
    app = ASGIWrapper(cast(ASGIFramework, _notice_complete_requests(port.app)))
    config = _PortConfig()
    config.keep_alive_timeout = port.keep_alive
    context = WorkerContext(None)
    connections: dict[asyncio.Task[None], _Connection] = {}

    async def connected(accepted: Accepted, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if port.tls is not None and not port.tls.admits(writer.get_extra_info("peercert") or {}):
            writer.transport.abort()  # before one byte of a request is read
            return
        task = cast("asyncio.Task[None]", asyncio.current_task())
        connection = _Connection(
            app, loop, config, context, LifespanState(), reader, writer, listening=port.socket, accepted=accepted
        )
        connections[task] = connection
        task.add_done_callback(connections.pop)
        await connection

    acceptor = _Acceptor(port, connected, handshake_timeout)
    acceptor.start()
    try:
        await stopping.wait()
        acceptor.close()
        config.is_last_response = True
        if connections:
            await asyncio.wait(connections, timeout=min(LINGER, graceful_timeout))
        await context.terminated.set()
        for connection in connections.values():
            connection.end_idle_time()
        if connections:
            await asyncio.wait(connections, timeout=max(0.0, graceful_timeout - LINGER))
    finally:
        acceptor.close()
        for task in [*connections, *acceptor.handshakes]:
            task.cancel()


Accepted = ReferenceType[socket.socket]
"""A connection's socket, which its transport alone owns and closes."""

Connected = Callable[[Accepted, asyncio.StreamReader, asyncio.StreamWriter], Coroutine[Any, Any, None]]


# Without it fail test_few_connections_are_accepted_before_… and test_a_silent_client_has_no_tls_object.
class _Acceptor:
    """Accept the connections of a port, few at a time and only while there is place, and do their TLS handshakes.

    asyncio's own server accepts as many connections as wait, and makes 0.26 MB of TLS objects for each, also for a
    client that has sent nothing or has left. Before Python 3.13 it also leaves those of a failed handshake to the
    garbage collector: a gigabyte after some seconds of a flood, which the process never gives back.
    """

    def __init__(self, port: Port, connected: Connected, handshake_timeout: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._listening = port.socket
        self._tls = port.tls
        self._connected = connected
        self._timeout = handshake_timeout
        self._again: asyncio.TimerHandle | None = None
        self.handshakes: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        self._loop.add_reader(self._listening, self._accept)

    def close(self) -> None:
        """Accept no more connections."""
        if self._again is not None:
            self._again.cancel()
        if self._listening.fileno() >= 0:
            self._loop.remove_reader(self._listening)
            self._listening.close()

    def _accept(self) -> None:
        for _ in range(ACCEPTED_AT_ONCE):
            if wait := self._listening.seconds_to_place():
                self._pause(min(wait, PLACE_CHECK))
                return
            try:
                accepted, _peer = self._listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                logger.warning("cannot accept connections: %s", error.strerror)
                self._pause(ACCEPT_AGAIN)
                return
            task = self._loop.create_task(self._open(accepted))
            self.handshakes.add(task)
            task.add_done_callback(self.handshakes.discard)

    def _pause(self, seconds: float) -> None:
        self._loop.remove_reader(self._listening)
        self._again = self._loop.call_later(seconds, self.start)

    async def _open(self, accepted: socket.socket) -> None:
        accepted.setblocking(False)
        has_begun = False
        try:
            with contextlib.suppress(OSError):
                has_begun = self._tls is None or await self._has_begun(accepted)
        finally:
            if not has_begun:
                accepted.close()
        if not has_begun:
            return
        reader = asyncio.StreamReader(loop=self._loop)
        protocol = asyncio.StreamReaderProtocol(reader, partial(self._connected, ref(accepted)), loop=self._loop)
        secure: dict[str, Any] = {}
        if self._tls is not None:
            secure = {"ssl": self._tls.context, "ssl_handshake_timeout": self._timeout}
            secure["ssl_shutdown_timeout"] = SHUTDOWN_TIMEOUT
        try:
            await self._loop.connect_accepted_socket(lambda: protocol, accepted, **secure)
        except OSError as error:
            if self._tls is not None and isinstance(error, ssl.SSLError):
                self._tls.handshake_failed(error)
            # The error refers to all that failed, which refers to the error.
            traceback.clear_frames(error.__traceback__)

    async def _has_begun(self, accepted: socket.socket) -> bool:
        """Wait for the first byte of a handshake. Return False if the client leaves. Raises OSError."""
        try:
            return bool(accepted.recv(1, socket.MSG_PEEK))
        except BlockingIOError:
            pass
        readable = self._loop.create_future()
        self._loop.add_reader(accepted, readable.set_result, None)
        try:
            async with asyncio.timeout(self._timeout):
                await readable
        finally:
            self._loop.remove_reader(accepted)
        return bool(accepted.recv(1, socket.MSG_PEEK))


_serving: ContextVar[_Connection] = ContextVar("_serving")
"""The connection of the present task's request."""


def _notice_complete_requests(app: ASGIApp) -> ASGIApp:
    """Return the application; the connection of each request learns when all of it has arrived."""

    async def noticing(scope: Scope, receive: Receive, send: Send) -> None:
        async def received() -> Message:
            message = await receive()
            if message["type"] == "http.request" and not message.get("more_body", False):
                _serving.get().request_is_complete()
            return message

        await app(scope, received, send)

    return noticing


# Without it fail test_an_idle_connection_has_a_single_task and test_a_client_that_leaves_before_its_request_is_read_….
class _IdleTimer:
    """The idle time of a connection, which ends after some seconds or when the server stops.

    It has the interface of Hypercorn's tasks, of which each request would create and cancel two.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, config: Config, context: WorkerContext) -> None:
        self._loop = loop
        self._config = config
        self._context = context
        self._handle: asyncio.TimerHandle | None = None
        self._end: Callable[[], None] | None = None

    async def restart(self, tasks: TaskGroup, action: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Begin an idle time, at whose end the action is run."""
        await self.stop()
        self._end = partial(tasks.spawn, action)
        seconds = 0.0 if self._context.terminated.is_set() else self._config.keep_alive_timeout
        self._handle = self._loop.call_later(seconds, self.end)

    async def stop(self) -> None:
        """End the idle time without the action."""
        if self._handle is not None:
            self._handle.cancel()
        self._handle = self._end = None

    def end(self) -> None:
        """End the idle time now, with the action, if the connection is idle."""
        if self._handle is not None and self._end is not None:
            self._handle.cancel()
            end, self._handle, self._end = self._end, None, None
            end()


class _Connection(TCPServer):
    """A connection that is over once its client has closed it, and that starts no request once it closes itself.

    Hypercorn keeps a connection that its client has closed for the rest of its keep-alive time, with 0.3 MB of buffers.
    kube-scheduler closes a third of its connections after one request, so that would be a gigabyte after some minutes.

    Hypercorn also starts a request that arrives while an idle connection is being closed. Its response cannot be sent
    any more: a pod would be bound, and the scheduler would not know.

    Hypercorn writes the head of a response, then the body. Each packet wakes the client, which on a busy machine runs
    in our place, only to find that it has to wait for the rest. So the head is held until what follows it, at once.

    Nothing that it consists of refers to it in a circle once it is over, so its memory is free at once.
    """

    _is_idle = True
    _is_closing = False
    _head = b""

    def __init__(self, *parts: Any, listening: ListeningSocket, accepted: Accepted) -> None:
        super().__init__(*parts)
        self._idle_time = _IdleTimer(self.loop, self.config, self.context)
        self.idle_task = cast(AsyncioSingleTask, self._idle_time)  # it has the same methods
        self._listening = listening
        self._accepted = accepted

    # Without it fails test_the_memory_of_a_connection_is_free_without_the_garbage_collector.
    async def run(self) -> None:
        _serving.set(self)
        try:
            await super().run()
        finally:
            for part in ("protocol", "_task_group", "reader", "writer"):
                self.__dict__.pop(part, None)

    def end_idle_time(self) -> None:
        """Close the connection now if it is idle."""
        self._idle_time.end()

    def request_is_complete(self) -> None:
        """Take in that all of the request in progress has arrived."""
        if (accepted := self._accepted()) is not None:
            self._listening.request_is_complete(accepted)

    # Without it fails test_the_head_of_a_response_leaves_with_its_body.
    async def protocol_send(self, event: Event) -> None:
        if isinstance(event, RawData) and not self._head and _is_head(event.data):
            self._head = event.data
            return
        if self._head:
            head, self._head = self._head, b""
            if isinstance(event, RawData):
                event = RawData(head + event.data)
            else:
                await super().protocol_send(RawData(head))
        if isinstance(event, Updated):
            self._is_idle = event.idle
            if (accepted := self._accepted()) is not None:  # None: the client has gone
                (self._listening.request_ends if event.idle else self._listening.request_begins)(accepted)
        await super().protocol_send(event)

    # Without it and the next two fails test_a_request_that_arrives_in_the_turn_of_closing_is_either_not_started_or_….
    async def _read_data(self) -> None:
        with contextlib.suppress(OSError):
            while not self.reader.at_eof():
                data = await self.reader.read(MAX_RECV)
                if self._is_closing:
                    break
                await self.protocol.handle(RawData(data))
        await self.protocol.handle(Closed())
        await self.idle_task.stop()

    async def _idle_timeout(self) -> None:
        await asyncio.shield(self._initiate_server_close())

    async def _initiate_server_close(self) -> None:
        if self._is_idle:  # no request has begun at the last moment
            self._is_closing = True
            await super()._initiate_server_close()


def _is_head(data: bytes) -> bool:
    return data.startswith(b"HTTP/1.1 200 ") and data.endswith(b"\r\n\r\n")


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


def _report_broken_connection(log: LimitedLog, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Log a connection that ended by an exception: its peer broke HTTP/2's rules, or did not receive."""
    if context.get("message") == "Unhandled exception in client_connected_cb":
        log.log(logging.WARNING, "closed a broken connection: %r", context.get("exception"))
    else:
        loop.default_exception_handler(context)
