"""One address in front of several replicas, as a Service of Kubernetes is."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from dataclasses import dataclass

from tests.e2e.ports import free_port


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Ports on loopback of one replica: for the extender's protocol, and for ``/readyz`` in plain HTTP."""

    port: int
    readiness_port: int


class Service:
    """Forward each new TCP connection to an endpoint that is ready at that moment, or close it.

    Connections that exist stay with their endpoint when it stops being ready, as in a real cluster. It runs
    on a thread of its own; `endpoints` may be replaced at any time.
    """

    def __init__(self) -> None:
        self.port = free_port()
        self.endpoints: tuple[Endpoint, ...] = ()
        self._started = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), name="service", daemon=True)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping = asyncio.Event()

    def start(self) -> None:
        """Start. Raises TimeoutError if it does not listen within some seconds."""
        self._thread.start()
        if not self._started.wait(10):
            raise TimeoutError(f"the forwarder did not come up on port {self.port}")

    def stop(self) -> None:
        """Close every connection. Does nothing if it was not started."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._stopping.set)
            self._thread.join(10)

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        server = await asyncio.start_server(self._forward, "127.0.0.1", self.port)
        self._started.set()
        await self._stopping.wait()
        server.close()  # asyncio.run then cancels what is still being forwarded

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.closing(writer):
            endpoint = await self._ready_endpoint()
            if endpoint is None:
                return
            try:
                to_reader, to_writer = await asyncio.open_connection("127.0.0.1", endpoint.port)
            except OSError:  # it ended since it said that it was ready
                return
            with contextlib.closing(to_writer):
                pumps = {
                    asyncio.create_task(_pump(reader, to_writer)),
                    asyncio.create_task(_pump(to_reader, writer)),
                }
                try:
                    await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    for pump in pumps:
                        pump.cancel()

    async def _ready_endpoint(self) -> Endpoint | None:
        for endpoint in self.endpoints:
            if await _is_ready(endpoint):
                return endpoint
        return None


async def _is_ready(endpoint: Endpoint) -> bool:
    try:
        async with asyncio.timeout(2):
            reader, writer = await asyncio.open_connection("127.0.0.1", endpoint.readiness_port)
            with contextlib.closing(writer):
                writer.write(b"GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
                status_line = await reader.readline()
    except (OSError, TimeoutError):
        return False
    return status_line.split()[1:2] == [b"200"]


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
