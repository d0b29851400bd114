"""Served ports on an event loop in a thread of their own, so that tests may use blocking clients."""

from __future__ import annotations

import asyncio
import http.client
import json
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.message import Message
from typing import Any

from starlette.types import ASGIApp

from gas.daemon.listening import listen
from gas.daemon.serving import Port, Tls, serve

PATIENCE = 20.0
"""Seconds after which a test that waits for something gives up."""


@dataclass
class Running:
    """A served port. ``stop`` begins a graceful shutdown, ``ended`` waits for its end."""

    port: int
    client: ssl.SSLContext | None
    _loop: asyncio.AbstractEventLoop
    _shutdown: asyncio.Event
    _thread: threading.Thread
    failures: list[BaseException] = field(default_factory=list)

    def connect(self) -> socket.socket:
        raw = socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE)
        return raw if self.client is None else self.client.wrap_socket(raw, server_hostname="127.0.0.1")

    def http(self) -> http.client.HTTPConnection:
        if self.client is None:
            return http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        return http.client.HTTPSConnection("127.0.0.1", self.port, timeout=PATIENCE, context=self.client)

    def ask(
        self, method: str, path: str, body: bytes | None = None, headers: dict[str, str] | None = None
    ) -> tuple[int, Any, Message]:
        """Send one request on a connection of its own; return status, body (decoded if it is JSON) and headers."""
        connection = self.http()
        try:
            connection.request(method, path, body, headers or {})
            answer = connection.getresponse()
            content: Any = answer.read()
            if answer.headers.get_content_type() == "application/json" and content:
                content = json.loads(content)
            return answer.status, content, answer.headers
        finally:
            connection.close()

    def tasks(self) -> int:
        """Return how many tasks there are on the server's event loop."""
        return len(asyncio.all_tasks(self._loop))

    def stop(self) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._shutdown.set)

    def ended(self) -> None:
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()


@contextmanager
def running(
    app: ASGIApp,
    *,
    tls: Tls | None = None,
    client: ssl.SSLContext | None = None,
    keep_alive: float = 60.0,
    graceful_timeout: float = 5.0,
    handshake_timeout: float = 10.0,
    stalled: int = 30_000,
    most: int | None = None,
    least_time: float = 0.0,
    beside: Callable[[], Any] | None = None,
) -> Iterator[Running]:
    """Serve ``app`` on a free port of loopback; ``beside`` makes a coroutine that runs on the same loop."""
    opened = listen("127.0.0.1", 0, flag="port", stalled=stalled, most=most, least_time=least_time)
    started = threading.Event()
    made: list[Running] = []

    async def main() -> None:
        shutdown = asyncio.Event()
        made.append(
            Running(opened.getsockname()[1], client, asyncio.get_running_loop(), shutdown, threading.current_thread())
        )
        started.set()
        other = asyncio.create_task(beside()) if beside is not None else None
        port = Port(app=app, socket=opened, tls=tls, keep_alive=keep_alive)
        await serve([port], shutdown, graceful_timeout=graceful_timeout, handshake_timeout=handshake_timeout)
        if other is not None:
            other.cancel()

    def run() -> None:
        try:
            asyncio.run(main())
        except Exception as error:  # noqa: BLE001 -- raised at the end of the test
            made[0].failures.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    assert started.wait(PATIENCE)
    try:
        yield made[0]
    finally:
        made[0].stop()
        made[0].ended()
        assert not made[0].failures


def read_to_end(client: socket.socket) -> bytes:
    pieces = []
    try:
        while piece := client.recv(65536):
            pieces.append(piece)
    except (ConnectionResetError, ssl.SSLEOFError):
        pass
    return b"".join(pieces)


def trickle(client: socket.socket, drop: bytes) -> bytes:
    """Send ``drop`` again and again until the server ends the connection, and return its response."""
    client.settimeout(0.05)
    answer = b""
    deadline = time.monotonic() + 15
    while time.monotonic() < deadline:
        try:
            client.sendall(drop)
            piece = client.recv(65536)
        except TimeoutError:
            continue
        except OSError:
            return answer
        if not piece:
            return answer
        answer += piece
    raise AssertionError("the server goes on listening")


def wait_until(happened: object) -> None:
    assert callable(happened)
    deadline = time.monotonic() + 15
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.01)
