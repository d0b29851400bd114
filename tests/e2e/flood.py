"""Programs of the network that keep the admission port busy, in a process of their own.

``python -m tests.e2e.flood KIND CLIENTS PORT AUTHORITY`` runs until it is killed. The clients of each kind send:

silent      nothing
unfinished  the begin of a handshake
slow        a request, the last bytes of which are late
idle        one request that is complete, and nothing afterwards
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gas.extender.admission.app import LARGE
from tests.e2e.programs import Program
from tests.e2e.waiting import wait_for

_HEAD = b"POST /bind HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
_FIRST = {"unfinished": b"\x16\x03\x01\x40", "slow": _HEAD % LARGE + b" " * (LARGE - 100), "idle": _HEAD % 2 + b"{}"}
_PAUSE = 0.5
"""Seconds between two bytes."""

_CONNECTED = "all have connected"


@contextmanager
def flood(kind: str, clients: int, port: int, authority: Path, log: Path) -> Iterator[None]:
    """Keep so many clients connected. Each whose connection is closed connects again at once."""
    command = [sys.executable, "-m", "tests.e2e.flood", kind, str(clients), str(port), str(authority)]
    program = Program(f"{kind}-clients", command, log=log)
    program.start()
    try:
        wait_for(f"{clients} {kind} clients", lambda: _CONNECTED in program.log_text(), seconds=300)
        yield
        assert program.is_running, program.log_tail()
    finally:
        program.kill()


async def _run(kind: str, clients: int, port: int, authority: str) -> None:
    tls = ssl.create_default_context(cafile=authority) if kind in ("slow", "idle") else None
    connected: set[int] = set()
    all_connected = asyncio.Event()

    async def once(number: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls)
        try:
            connected.add(number)
            if len(connected) == clients:
                all_connected.set()
            writer.write(_FIRST.get(kind, b""))
            while not reader.at_eof():
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(reader.read(1000), _PAUSE)
                if kind == "slow":
                    writer.write(b" ")
                    await writer.drain()
        finally:
            writer.transport.abort()

    async def client(number: int) -> None:
        while True:
            with contextlib.suppress(OSError):
                await once(number)

    async with asyncio.TaskGroup() as group:
        for number in range(clients):
            group.create_task(client(number))
        await all_connected.wait()
        print(_CONNECTED, flush=True)


if __name__ == "__main__":
    kind, clients, port, authority = sys.argv[1:]
    asyncio.run(_run(kind, int(clients), int(port), authority))
