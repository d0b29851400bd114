"""Serve applications on ports, on the running event loop, until the program is to stop."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
import traceback
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any

from gas.daemon.connection import Connection, http_server
from gas.daemon.logs import LimitedLog
from gas.daemon.ports import Port

logger = logging.getLogger(__name__)

HANDSHAKE_TIMEOUT = 10.0
"""Seconds from a connection to the end of its TLS handshake."""

LINGER = 0.5
"""Seconds after the begin of the shutdown before idle connections close.

A request that arrives in that time is completed, and its response ends the connection. Otherwise all requests that are
on their way when the shutdown begins would be lost, and Go does not repeat a POST.
"""

PLACE_CHECK = 0.02
"""Seconds between two looks for a place for a further connection while there is none."""

ACCEPTED_AT_ONCE = 8
"""Connections accepted before the event loop turns to the open ones again."""

ACCEPT_AGAIN = 1.0
"""Seconds until connections are accepted again after the process has run out of file descriptors or memory."""

SHUTDOWN_TIMEOUT = 0.5
"""Seconds that a client has to confirm the end of a TLS connection; RFC 8446, 6.1 allows not to wait at all."""


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
    acceptors: list[_Acceptor] = []
    try:
        for port in ports:
            acceptors.append(_Acceptor(port, handshake_timeout))
            acceptors[-1].start()
        await stopping.wait()
        for acceptor in acceptors:
            acceptor.close()
        await _wait_for_ends(acceptors, min(LINGER, graceful_timeout))
        for acceptor in acceptors:
            acceptor.server.pre_shutdown()  # ends idle connections
        await _wait_for_ends(acceptors, max(0.0, graceful_timeout - LINGER))
    finally:
        for acceptor in acceptors:
            acceptor.break_off()
        await _wait_for_ends(acceptors, 1.0)


async def _wait_for_ends(acceptors: Sequence[_Acceptor], seconds: float) -> None:
    if ends := [connection.ended for acceptor in acceptors for connection in acceptor.connections]:
        await asyncio.wait(ends, timeout=seconds)


class _Acceptor:
    """Accept the connections of a port, few at a time and only while there is place, and do their TLS handshakes.

    asyncio's own server accepts as many connections as wait, and makes 0.26 MB of TLS objects for each, also for a
    client that has sent nothing or has left. Before Python 3.13 it also leaves those of a failed handshake to the
    garbage collector: a gigabyte after some seconds of a flood, which the process never gives back.
    """

    def __init__(self, port: Port, handshake_timeout: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._port = port
        self._listening = port.socket
        self._tls = port.tls
        self._timeout = handshake_timeout
        self._log = LimitedLog(logger)
        self._again: asyncio.TimerHandle | None = None
        self._is_closed = False
        self._handshakes: set[asyncio.Task[None]] = set()
        self.server = http_server(port.keep_alive)
        self.connections: set[Connection] = set()

    def start(self) -> None:
        self._loop.add_reader(self._listening, self._accept)

    def close(self) -> None:
        """Accept no more connections, and let each open one end with its next response."""
        self._is_closed = True
        if self._again is not None:
            self._again.cancel()
        if self._listening.fileno() >= 0:
            self._loop.remove_reader(self._listening)
            self._listening.close()
        for connection in self.connections:
            connection.is_last = True

    def break_off(self) -> None:
        """End all connections now, whatever is in progress."""
        self.close()
        for task in self._handshakes:
            task.cancel()
        for connection in self.connections:
            connection.abort()

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
        connection = Connection(self._port, accepted, self.server, self.connections, self._log)
        connection.is_last = self._is_closed
        secure: dict[str, Any] = {}
        if self._tls is not None:
            secure = {"ssl": self._tls.context, "ssl_handshake_timeout": self._timeout}
            secure["ssl_shutdown_timeout"] = SHUTDOWN_TIMEOUT
        try:
            await self._loop.connect_accepted_socket(lambda: connection, accepted, **secure)
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
