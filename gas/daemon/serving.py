"""Serve applications on sockets with Hypercorn, on the running event loop, until the program is to stop."""

import asyncio
import contextlib
import logging
import socket
import ssl
import traceback
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, cast
from weakref import ref

from hypercorn.app_wrappers import ASGIWrapper
from hypercorn.asyncio.worker_context import WorkerContext
from hypercorn.typing import ASGIFramework, LifespanState
from starlette.types import ASGIApp

from gas.daemon.connection import Accepted, Connection, PortConfig, note_complete_request
from gas.daemon.early_responses import EarlyResponses
from gas.daemon.listening import ListeningSocket
from gas.daemon.logs import LimitedLog

logger = logging.getLogger(__name__)

HANDSHAKE_TIMEOUT = 10.0  # seconds from a connection to the end of its TLS handshake
SHUTDOWN_TIMEOUT = 0.5  # seconds for a client to confirm the end of a TLS connection; RFC 8446, 6.1 allows none

LINGER = 0.5
"""Seconds after the begin of the shutdown before idle connections close. A request that arrives in that time is
completed, and its response ends the connection. Otherwise all requests that are on their way when the shutdown begins
would be lost, and Go does not repeat a POST."""

SCHEDULER_KEEP_ALIVE = 120.0  # seconds for the scheduler's port; see `Port`
PLAIN_KEEP_ALIVE = 15.0  # seconds for the plain port, which any client can connect to; see `Port`
PLACE_CHECK = 0.02  # seconds between two looks for a place for a further connection while there is none
ACCEPTED_AT_ONCE = 8  # connections accepted before the event loop turns to the open ones again
ACCEPT_AGAIN = 1.0  # seconds until connections are accepted again after a lack of file descriptors or memory


class Tls(Protocol):
    @property
    def context(self) -> ssl.SSLContext:
        """The context for the next connection."""

    def admits(self, certificate: Mapping[str, Any]) -> bool:
        """Return whether a verified client may call, from its certificate as ``getpeercert()`` returns it."""

    def handshake_failed(self, error: ssl.SSLError) -> None:
        """Note that a client was refused, or did no handshake."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Port:
    app: ASGIApp
    socket: ListeningSocket
    tls: Tls | None  # None for plain HTTP
    # seconds that a connection may be open without a complete request: until the headers of the first request, and
    # between two. kube-scheduler closes an idle connection after 90 s and must be the first to do so, because a request
    # that is sent into a closing connection is lost
    keep_alive: float


async def serve_with(
    ports: Sequence[Port],
    stopping: asyncio.Event,
    *,
    graceful_timeout: float,  # most seconds for requests in progress, see `serve`
    background: Sequence[Coroutine[Any, Any, None]],
    # awaited after the last request, while the background work still runs
    finish: Callable[[], Awaitable[None]] | None = None,
) -> None:
    """Serve the ports and run background work until ``stopping`` is set; then finish requests and cancel the work.

    Background work never returns by itself. If it raises, serving ends and the exception is raised here.
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

    Open connections are served for LINGER seconds more, and each response then ends its connection. Owns the sockets
    from now on. If a port fails before that, its exception is raised.
    """
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(partial(_report_broken_connection, LimitedLog(logger)))
    servers = [
        asyncio.create_task(_PortServer(port, handshake_timeout).run(stopping, graceful_timeout)) for port in ports
    ]
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


# Without it fail test_few_connections_are_accepted_before_… and test_a_silent_client_has_no_tls_object.
class _PortServer:
    """Accept the connections of a port, few at a time and only while there is place, and serve them.

    asyncio's own server accepts as many connections as wait, and makes 0.26 MB of TLS objects for each, also for a
    client that has sent nothing or has left. Before Python 3.13 it also leaves those of a failed handshake to the
    garbage collector: a gigabyte after some seconds of a flood, which the process never gives back.
    """

    def __init__(self, port: Port, handshake_timeout: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._listening = port.socket
        self._tls = port.tls
        self._timeout = handshake_timeout
        self._app = ASGIWrapper(cast(ASGIFramework, EarlyResponses(port.app, note_complete_request)))
        self._config = PortConfig()
        self._config.keep_alive_timeout = port.keep_alive
        self._context = WorkerContext(None)
        self._again: asyncio.TimerHandle | None = None
        self._handshakes: set[asyncio.Task[None]] = set()
        self._connections: dict[asyncio.Task[None], Connection] = {}

    async def run(self, stopping: asyncio.Event, graceful_timeout: float) -> None:
        self._start()
        try:
            await stopping.wait()
            self._stop_accepting()
            self._config.is_last_response = True
            if self._connections:
                await asyncio.wait(self._connections, timeout=min(LINGER, graceful_timeout))
            await self._context.terminated.set()
            for connection in self._connections.values():
                connection.idle_time.end()
            if self._connections:
                await asyncio.wait(self._connections, timeout=max(0.0, graceful_timeout - LINGER))
        finally:
            self._stop_accepting()
            for task in [*self._connections, *self._handshakes]:
                task.cancel()

    def _start(self) -> None:
        self._loop.add_reader(self._listening, self._accept)

    def _stop_accepting(self) -> None:
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
            self._handshakes.add(task)
            task.add_done_callback(self._handshakes.discard)

    def _pause(self, seconds: float) -> None:
        self._loop.remove_reader(self._listening)
        self._again = self._loop.call_later(seconds, self._start)

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

    async def _connected(self, accepted: Accepted, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._tls is not None and not self._tls.admits(writer.get_extra_info("peercert") or {}):
            writer.transport.abort()  # before one byte of a request is read
            return
        connection = Connection(
            *(self._app, self._loop, self._config, self._context, LifespanState(), reader, writer),
            listening=self._listening,
            accepted=accepted,
        )
        task = cast("asyncio.Task[None]", asyncio.current_task())
        self._connections[task] = connection
        task.add_done_callback(self._connections.pop)
        await connection


def _report_broken_connection(log: LimitedLog, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Log a connection that ended by an exception: its peer did not receive, for example."""
    if context.get("message") == "Unhandled exception in client_connected_cb":
        log.log(logging.WARNING, "closed a broken connection: %r", context.get("exception"))
    else:
        loop.default_exception_handler(context)
