"""Extend Hypercorn's connection by what it lacks. Each override names the test that fails without it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import sys
from collections.abc import Callable, Coroutine
from contextvars import ContextVar
from functools import partial
from typing import Any, cast
from weakref import ReferenceType

from hypercorn.asyncio.task_group import TaskGroup
from hypercorn.asyncio.tcp_server import MAX_RECV, TCPServer
from hypercorn.asyncio.worker_context import AsyncioSingleTask, WorkerContext
from hypercorn.config import Config
from hypercorn.events import Closed, Event, RawData, Updated
from hypercorn.protocol import ProtocolWrapper
from hypercorn.protocol.h11 import H11Protocol
from hypercorn.typing import ConnectionState

from gas.daemon.listening import ListeningSocket

LONGEST_HEADERS = 16 * 1024  # most bytes of the headers of one request
Accepted = ReferenceType[socket.socket]  # a connection's socket, which its transport alone owns and closes
_serving: ContextVar[Connection] = ContextVar("_serving")  # the connection of the present task's request


# Without it fails test_a_request_in_progress_keeps_its_connection.
def note_complete_request() -> None:
    """Tell the connection of the present task that all of its request has arrived."""
    _serving.get().request_is_complete()


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


# Without it fails test_http_2_is_not_spoken.
class _Http1(H11Protocol):
    """HTTP/1.1, whatever a client offers.

    Hypercorn changes to HTTP/2 for any client that begins with it or asks for it, as kube-scheduler does not. A client
    that begins thousands of requests a second and takes them back would delay all others.
    """

    async def _check_protocol(self, event: Any) -> None:
        pass


class Connection(TCPServer):
    """A connection that is over once its client has closed it, and that starts no request once it closes itself.

    Hypercorn keeps a connection that its client has closed for the rest of its keep-alive time, with 0.3 MB of buffers.
    kube-scheduler closes a third of its connections after one request, so that would be a gigabyte after some minutes.

    Hypercorn also starts a request that arrives while an idle connection is being closed. Its response cannot be sent
    any more: a pod would be bound, and the scheduler would not know.

    Hypercorn writes the head of a response, then the body. Each packet wakes the client, which on a busy machine runs
    in our place, only to find that it has to wait for the rest. So the head is held until what follows it, at once, and
    empty pieces are dropped.

    Once it is over, no part of it refers to it in a circle, so its memory is free at once.
    """

    _is_idle = True
    _is_closing = False
    _head = b""

    def __init__(self, *parts: Any, listening: ListeningSocket, accepted: Accepted) -> None:
        super().__init__(*parts)
        self.idle_time = _IdleTimer(self.loop, self.config, self.context)
        self.idle_task = cast(AsyncioSingleTask, self.idle_time)  # it has the same methods
        self._listening = listening
        self._accepted = accepted

    # Without it fails test_the_memory_of_a_connection_is_free_without_the_garbage_collector.
    async def run(self) -> None:
        _serving.set(self)
        try:
            async with TaskGroup(self.loop) as self._task_group:
                parts = (self.app, self.config, self.context, self._task_group, ConnectionState(self.state))
                is_tls = self.writer.get_extra_info("ssl_object") is not None
                http1 = _Http1(*parts, is_tls, client=None, server=None, send=self.protocol_send)
                self.protocol = cast(ProtocolWrapper, http1)  # it has the same methods
                await self.idle_task.restart(self._task_group, self._idle_timeout)
                await self._read_data()
        except OSError:
            pass
        finally:
            await self._close()
            for part in ("protocol", "_task_group", "reader", "writer"):
                self.__dict__.pop(part, None)

    def request_is_complete(self) -> None:
        if (accepted := self._accepted()) is not None:
            self._listening.request_is_complete(accepted)

    # Without it fails test_the_head_of_a_response_leaves_with_its_body.
    async def protocol_send(self, event: Event) -> None:
        if isinstance(event, RawData) and not self._head and (not event.data or _is_head(event.data)):
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

    # Without it fails test_a_request_that_arrives_in_the_turn_of_closing_is_either_not_started_or_answered.
    async def _read_data(self) -> None:
        with contextlib.suppress(OSError):
            while not self.reader.at_eof():
                data = await self.reader.read(MAX_RECV)
                if self._is_closing:
                    break
                await self.protocol.handle(RawData(data))
        await self.protocol.handle(Closed())
        await self.idle_task.stop()

    # Without it fails test_a_silent_connection_ends_with_the_keep_alive.
    async def _idle_timeout(self) -> None:
        await asyncio.shield(self._initiate_server_close())

    # Without it fails test_a_request_that_arrives_in_the_turn_of_closing_is_either_not_started_or_answered.
    async def _initiate_server_close(self) -> None:
        if self._is_idle:  # no request has begun at the last moment
            self._is_closing = True
            await super()._initiate_server_close()


def _is_head(data: bytes) -> bool:
    return data.startswith(b"HTTP/1.1 200 ") and data.endswith(b"\r\n\r\n")


class PortConfig(Config):
    accesslog = None
    errorlog = logging.getLogger("hypercorn")
    include_server_header = False
    h11_max_incomplete_size = LONGEST_HEADERS
    keep_alive_max_requests = sys.maxsize
    is_last_response = False  # whether each response on HTTP/1.1 says that its connection ends with it

    # Without it fails test_a_request_just_after_the_signal_is_completed_and_ends_its_connection.
    def response_headers(self, protocol: str) -> list[tuple[bytes, bytes]]:
        headers: list[tuple[bytes, bytes]] = super().response_headers(protocol)
        return [*headers, (b"connection", b"close")] if self.is_last_response and protocol == "h11" else headers
