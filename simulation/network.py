"""Connect processes by requests that are late, lost, refused or carried out after the client has gone."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from types import SimpleNamespace
from typing import Any, cast
from urllib.parse import urlsplit

import aiohttp

from sandbox.api.client import ApiRequests
from simulation.chance import Chance
from simulation.loop import Process, VirtualLoop

DELAY = 0.004  # mean seconds of a message

TIMED_OUT = (
    b'{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","reason":"Timeout","code":504,'
    b'"message":"Timeout: request did not complete within the allotted timeout"}'
)
"""kube-apiserver's response to a request that took too long. A write may be carried out all the same."""

LINGER = 0.5
"""Seconds after a client has hung up in which the API server may still carry out its write.

It cancels requests of a client that is gone, but a write that is on its way to etcd cannot be called back.
"""

LATEST_BINDING = 30.0
"""The same for a Binding: the API server may not notice that the client is gone during a webhook's review."""

LATEST_EVENT = 60.0  # most seconds by which an event of a watch is late, so that all have come when a history ends

BOOKMARK = b'{"type":"BOOKMARK"'
BOOKMARK_SECONDS = 5.0  # seconds between two bookmarks of a watch, a minute in reality: histories are short

App = Callable[[Any, Any, Any], Awaitable[None]]


@dataclass(eq=False)
class Server:
    """An application that is served by a process. While it is ``up``, it accepts connections."""

    name: str
    process: Process
    app: App
    up: bool = True
    open: list[Exchange] = field(default_factory=list)

    def stop(self) -> None:
        self.up = False
        for exchange in list(self.open):
            exchange.break_off()


@dataclass(slots=True)
class Condition:
    """A state of the network between some clients and servers, for a while.

    clients, servers  beginnings of their names; "" for all
    method, path      the method, and part of the paths; "" for all
    delay             mean seconds that are added to each message
    lost              probability that a response is lost: the connection breaks after the request was carried out
    silent            probability that a response never comes, so that the client has to give up
    failed            probability that the response says that the server had too little time; the request is carried out
    cut               probability that no connection can be made
    hold              seconds by which each response is late
    """

    clients: str = ""
    servers: str = ""
    method: str = ""
    path: str = ""
    delay: float = 0.0
    lost: float = 0.0
    silent: float = 0.0
    failed: float = 0.0
    cut: float = 0.0
    hold: float = 0.0

    def holds_for(self, client: str, server: str, method: str, target: str) -> bool:
        return (
            client.startswith(self.clients)
            and server.startswith(self.servers)
            and self.method in ("", method)
            and self.path in target
        )

    @property
    def is_bad(self) -> bool:
        """True if a client does not get the response."""
        return bool(self.lost or self.silent or self.failed)


class Exchange:
    """One request and its response, from the side of the client. Probabilities of its ``fate`` are 0 or 1."""

    def __init__(self, network: Network, client: Process, server: Server, fate: Condition) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.finished = False
        self.broken = False
        self.refused = False
        self.hung_up: float | None = None
        self.task: asyncio.Task[None] | None = None
        self.stream = False
        self.client = client
        self._network = network
        self._server = server
        self._fate = fate
        self._chunks: deque[bytes] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._arrival = 0.0

    @property
    def loop(self) -> VirtualLoop:
        return self._network.loop

    def later(self, action: Callable[..., None], *args: Any) -> None:
        """Let something arrive at the client after the network's delay, and after all that was sent before."""
        delay = self._fate.hold + self._network.delay(self._fate.delay)
        self._arrival = max(self._arrival + 1e-6, self.loop.time() + delay)
        self.loop.call_at(self._arrival, action, *args, context=self._network.process.context)

    def started(self, status: int, headers: dict[str, str]) -> None:
        if self._fate.lost:
            self.break_off()
        elif not self._fate.silent:
            self.later(partial(self._becomes, status=504 if self._fate.failed else status, headers=headers))

    def sent(self, chunk: bytes) -> None:
        if chunk and not self._fate.is_bad:
            if self.stream and (late := self._network.watch_delays.get(self.client.name)):
                delay = min(self._network.delay(late), LATEST_EVENT)
                self._arrival = max(self._arrival, self.loop.time() + delay)
            if self.stream and chunk.startswith(BOOKMARK) and self.client.name in self._network.no_bookmarks:
                return
            for _ in range(2 if self.stream and self._network.repeats_event(self.client.name) else 1):
                at = self._network.split(len(chunk)) if self.stream else 0
                for part in filter(None, (chunk[:at], chunk[at:])):
                    self.later(self._add, part)

    def ended(self) -> None:
        if self in self._server.open:
            self._server.open.remove(self)
        if self._fate.failed and not self._fate.lost and not self._fate.silent:
            self.later(self._add, TIMED_OUT)
        if not self._fate.silent:
            self.later(partial(self._becomes, finished=True))

    def break_off(self) -> None:
        """Break the connection; the client notices it after a delay."""
        if self in self._server.open:
            self._server.open.remove(self)
        self.later(partial(self._becomes, broken=True))

    def refuse(self) -> None:
        self.later(partial(self._becomes, refused=True))

    def hang_up(self) -> None:
        """Note that the client does not wait any more."""
        if self.hung_up is None:
            self.hung_up = self.loop.time()
            if self.stream and self.task is not None:
                self.loop.call_later(self._network.delay(0.0), self.task.cancel, context=self._network.process.context)

    async def head(self) -> None:
        """Wait for the status. Raises aiohttp's errors."""
        while not self.status:
            self._check()
            await self._news()

    async def chunk(self) -> bytes:
        """Return the next part of the body, empty at its end. Raises aiohttp's errors."""
        while not self._chunks:
            self._check()
            if self.finished:
                return b""
            await self._news()
        everything = b"".join(self._chunks)
        self._chunks.clear()
        return everything

    async def parts(self) -> AsyncIterator[bytes]:
        """Yield the parts of the body as they arrive. Raises aiohttp's errors."""
        while part := await self.chunk():
            yield part

    def _check(self) -> None:
        if self.refused:
            key = SimpleNamespace(host=self._server.name, port=443, ssl=True, is_ssl=True)
            raise aiohttp.ClientConnectorError(cast(Any, key), OSError(111, "Connection refused"))
        if self.broken:
            raise aiohttp.ServerDisconnectedError

    async def _news(self) -> None:
        self._waiter = self.loop.create_future()
        await self._waiter

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _becomes(self, **fields: Any) -> None:
        for name, value in fields.items():
            setattr(self, name, value)
        self._wake()

    def _add(self, chunk: bytes) -> None:
        self._chunks.append(chunk)
        self._wake()


class Network:
    """All connections.

    late          returns the seconds by which a server carries out a request later than it arrived
    on_send       called with client, method and target before each request; returns False if the request is not sent,
                  because the client was killed right before
    """

    def __init__(self, loop: VirtualLoop, chance: Chance) -> None:
        self.loop = loop
        self.process = Process("network")
        self.conditions: list[Condition] = []
        self.closed = False
        self.watch_delays: dict[str, float] = {}  # by client, the mean seconds by which events of its watches are late
        self.repeats: dict[str, float] = {}  # by client, the probability that an event of its watches comes twice
        self.no_bookmarks: set[str] = set()  # clients whose watches get no bookmarks
        self.requests = 0
        self.lost_responses = 0
        self._chance = chance
        self._splits = chance.stream("splits")
        self._open: list[tuple[Process, Exchange]] = []
        self.on_send: Callable[[Process, str, str], bool] = lambda _client, _method, _target: True
        self.on_sent: Callable[[Process], object] = lambda _client: None
        self.late: Callable[[str, str], float] = lambda _method, _path: 0.0

    def delay(self, mean: float) -> float:
        """Return the seconds of one message; never zero."""
        return 0.0005 + self._chance.delay(DELAY) + (self._chance.delay(mean) if mean else 0.0)

    def repeats_event(self, client: str) -> bool:
        return client in self.repeats and self._chance.happens(self.repeats[client])

    def split(self, length: int) -> int:
        """Return the position at which a part of a response is cut in two on its way; 0 if it arrives whole."""
        return self._splits.whole(1, length - 1) if length > 1 and self._splits.happens(0.1) else 0

    def client_gone(self, client: Process) -> None:
        """Hang up for a killed process: its operating system closes its connections."""
        for owner, exchange in list(self._open):
            if owner is client:
                exchange.hang_up()

    @asynccontextmanager
    async def exchange(
        self,
        client: Process,
        server: Server,
        method: str,
        target: str,
        *,
        headers: Mapping[str, str],
        body: bytes = b"",
    ) -> AsyncIterator[Exchange]:
        """Send a request. At the end of the block the client hangs up."""
        if self.closed:
            raise aiohttp.ServerDisconnectedError
        sent = client.alive and self.on_send(client, method, target)
        held = [each for each in self.conditions if each.holds_for(client.name, server.name, method, target)]

        def happens(kind: str) -> bool:
            return any(self._chance.happens(getattr(each, kind)) for each in held)

        fate = Condition(
            delay=sum(each.delay for each in held),
            hold=max((each.hold for each in held), default=0.0),
            lost=happens("lost"),
            silent=happens("silent"),
            cut=happens("cut"),
            failed="watch=" not in target and happens("failed"),
        )
        exchange = Exchange(self, client, server, fate)
        exchange.stream = "watch=" in target
        self.requests += 1
        self.lost_responses += fate.is_bad
        if sent:
            if fate.cut:
                exchange.refuse()
            else:
                args = (exchange, server, method, target, headers, body)
                self.loop.call_later(self.delay(fate.delay), self._arrive, *args, context=self.process.context)
            self.on_sent(client)
        self._open.append((client, exchange))
        try:
            yield exchange
        finally:
            self._open.remove((client, exchange))
            if not exchange.finished:
                exchange.hang_up()

    def _arrive(
        self, exchange: Exchange, server: Server, method: str, target: str, headers: Mapping[str, str], body: bytes
    ) -> None:
        if not server.up or not server.process.alive:
            exchange.refuse()
            return
        server.open.append(exchange)
        exchange.task = self.loop.start(server.process, self._serve(exchange, server, method, target, headers, body))

    async def _serve(
        self, exchange: Exchange, server: Server, method: str, target: str, headers: Mapping[str, str], body: bytes
    ) -> None:
        parts = urlsplit(target)
        if method != "GET" and (late := self.late(method, parts.path)):
            await asyncio.sleep(late)
        lingers = LATEST_BINDING if parts.path.endswith("/binding") else LINGER
        if exchange.hung_up is not None and self.loop.time() - exchange.hung_up > lingers:
            exchange.ended()
            return
        sent = {**headers, "content-length": str(len(body))}
        scope = {
            "type": "http",
            "http_version": "1.1",
            "method": method,
            "path": parts.path,
            "query_string": parts.query.encode(),
            "headers": [(name.lower().encode(), value.encode()) for name, value in sent.items()],
            "client": ("client", 1),
        }
        received = False

        async def receive() -> dict[str, Any]:
            nonlocal received
            if not received:
                received = True
                return {"type": "http.request", "body": body, "more_body": False}
            await self.loop.create_future()  # a disconnect is never reported
            raise AssertionError

        async def send(message: dict[str, Any]) -> None:
            if message["type"] == "http.response.start":
                exchange.started(message["status"], {k.decode(): v.decode() for k, v in message.get("headers", [])})
            else:
                exchange.sent(bytes(message.get("body", b"")))

        try:
            await server.app(scope, receive, send)
        finally:
            exchange.ended()


class _Response:
    """The part of aiohttp's response that `gas.cluster.connection` reads."""

    def __init__(self, exchange: Exchange, deadline: float | None, silence: float | None) -> None:
        self.status = exchange.status
        self.headers = exchange.headers
        self.content = self
        self._exchange = exchange
        self._deadline = deadline
        self._silence = silence

    async def read(self, _most: int = -1) -> bytes:
        async with asyncio.timeout_at(self._deadline):
            return b"".join([part async for part in self._exchange.parts()])

    async def readany(self) -> bytes:
        async with asyncio.timeout_at(self._deadline), asyncio.timeout(self._silence):
            return await self._exchange.chunk()


class Transport:
    """The transport of `gas.cluster.connection.ApiServer` for one process."""

    def __init__(self, network: Network, client: Process, server: Server) -> None:
        self._network = network
        self._client = client
        self._server = server

    @asynccontextmanager
    async def request(self, method: str, url: Any, /, **options: Any) -> AsyncIterator[Any]:
        timeout: aiohttp.ClientTimeout = options["timeout"]
        deadline = None if timeout.total is None else self._network.loop.time() + timeout.total
        target = url.raw_path_qs
        async with self._network.exchange(
            self._client,
            self._server,
            method,
            target,
            headers=dict(options["headers"]),
            body=options.get("data") or b"",
        ) as exchange:
            async with asyncio.timeout_at(deadline), asyncio.timeout(timeout.sock_read):
                await exchange.head()
            yield _Response(exchange, deadline, timeout.sock_read)

    async def close(self) -> None:
        """Do nothing: nothing is kept open."""


class Client(ApiRequests):
    """A client for the parts of the world that are not the product's. ``patience`` is in seconds for a response."""

    def __init__(self, network: Network, process: Process, server: Server, *, patience: float = 10.0) -> None:
        self._network = network
        self._process = process
        self._server = server
        self._patience = patience

    async def exchange(self, method: str, path: str, body: bytes, content_type: str) -> tuple[int, bytes]:
        headers = {**self._login, "Content-Type": content_type}
        async with (
            self._network.exchange(self._process, self._server, method, path, headers=headers, body=body) as exchange,
            asyncio.timeout(self._patience),
        ):
            await exchange.head()
            parts = [part async for part in exchange.parts()]
        return exchange.status, b"".join(parts)

    @asynccontextmanager
    async def stream(self, path: str) -> AsyncIterator[tuple[int, AsyncIterator[bytes]]]:
        async with self._network.exchange(self._process, self._server, "GET", path, headers=self._login) as exchange:
            async with asyncio.timeout(self._patience):
                await exchange.head()
            yield exchange.status, exchange.parts()

    @property
    def _login(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self._process.name}"}
