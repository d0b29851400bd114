"""An API server that follows a test's script byte by byte, including broken responses."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import parse_qsl, urlsplit

from gas.cluster.connection import ApiServer, connect
from sandbox.programs import write_kubeconfig

Step = Callable[[asyncio.StreamWriter], Awaitable[None]]


@dataclass(frozen=True)
class Seen:
    """One request as it arrived."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> dict[str, object]:
        decoded: dict[str, object] = json.loads(self.body)
        return decoded


def answer(status: int = 200, body: object = None, **headers: str) -> Step:
    """Return a step that sends a whole response. A body that is not bytes is sent as JSON."""
    content = body if isinstance(body, bytes) else json.dumps(body if body is not None else {}).encode()

    async def step(writer: asyncio.StreamWriter) -> None:
        lines = [f"HTTP/1.1 {status} -", f"Content-Length: {len(content)}", "Connection: close"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        writer.write("\r\n".join([*lines, "", ""]).encode() + content)
        await writer.drain()

    return step


def refuse(status: int, reason: str = "", message: str = "", **headers: str) -> Step:
    """Return a step that sends a Status object."""
    return answer(status, status_object(status, reason, message), **headers)


def status_object(status: int, reason: str, message: str) -> dict[str, object]:
    return {"kind": "Status", "status": "Failure", "code": status, "reason": reason, "message": message}


def stream(*pieces: object, end: str = "hang") -> Step:
    """Return a step that sends a body in chunks: bytes as they are, anything else as a line of JSON.

    end  ``hang``: stays open and silent; ``clean``: ends as it should; ``cut``: the connection breaks
    """

    async def step(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        for piece in pieces:
            data = piece if isinstance(piece, bytes) else json.dumps(piece).encode() + b"\n"
            writer.write(b"%x\r\n%s\r\n" % (len(data), data))
            await writer.drain()
            await asyncio.sleep(0)
        if end == "hang":
            await asyncio.Event().wait()
        if end == "clean":
            writer.write(b"0\r\n\r\n")
            await writer.drain()

    return step


async def hang(writer: asyncio.StreamWriter) -> None:
    """Never answer."""
    await asyncio.Event().wait()


async def hang_up(writer: asyncio.StreamWriter) -> None:
    """Close the connection without a response."""


class ScriptedServer:
    """Respond to the first request with the first step and so on, and hangs after the last; or ``route`` chooses."""

    def __init__(
        self,
        *steps: Step,
        route: Callable[[Seen], Step] | None = None,
        tls: ssl.SSLContext | None = None,
        port: int = 0,
    ) -> None:
        self.port = port
        self.seen: list[Seen] = []
        self.steps = list(steps)
        self.open = 0
        self._route = route or self._next
        self._tls = tls
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: list[asyncio.StreamWriter] = []

    def _next(self, seen: Seen) -> Step:
        return self.steps.pop(0) if self.steps else hang

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", self.port, ssl=self._tls)
        self.port = self._server.sockets[0].getsockname()[1]
        self.url = f"{'https' if self._tls else 'http'}://127.0.0.1:{self.port}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for writer in self._writers:
            writer.transport.abort()
        # The loop closes the sockets in its next round.
        await asyncio.sleep(0)

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._serve(reader, writer))
        self._tasks.add(task)
        self._writers.append(writer)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.open += 1
        try:
            seen = await _read_request(reader)
            self.seen.append(seen)
            work = asyncio.ensure_future(self._route(seen)(writer))
            gone = asyncio.ensure_future(reader.read())
            try:
                await asyncio.wait((work, gone), return_when=asyncio.FIRST_COMPLETED)
            finally:
                for one in (work, gone):
                    one.cancel()
                await asyncio.gather(work, gone, return_exceptions=True)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self.open -= 1
            writer.close()


async def _read_request(reader: asyncio.StreamReader) -> Seen:
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    first, *lines = head.strip().split("\r\n")
    method, target, _ = first.split(" ")
    headers = {name.lower(): value.strip() for name, value in (line.split(":", 1) for line in lines)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    parts = urlsplit(target)
    return Seen(method, parts.path, dict(parse_qsl(parts.query, keep_blank_values=True)), headers, body)


@asynccontextmanager
async def connected(url: str, directory: Path, *, token: str = "secret") -> AsyncIterator[ApiServer]:
    """Connect a client to the API server at this address."""
    kubeconfig = write_kubeconfig(directory / "kubeconfig", url, token=token)
    api = await connect(str(kubeconfig))
    try:
        yield api
    finally:
        await api.close()
