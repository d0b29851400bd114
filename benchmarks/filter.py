"""How long a filter takes, against an extender on the same stack that does nothing but decode and encode."""

from __future__ import annotations

import asyncio
import http.client
import json
import signal
import socket
import statistics
import sys
import time
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import count, cycle, islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple
from urllib.parse import urlsplit

from benchmarks.clusters import Size, node_names, nodes, placed_pods, pod
from gas.sandbox.api_client import ApiClient
from gas.sandbox.api_server import ApiServer
from gas.sandbox.extender_client import ExtenderAddress
from gas.sandbox.extender_process import running_extender
from gas.sandbox.kinds import NODES, PODS

SIZE = Size(nodes=5000, pods=20_000)
ROUNDS = 15
SETTLE = 0.3
"""Seconds until a change of nodes has reached the extender."""

DISABLED = "telemetry.aware.scheduling.benchmark/gas-disable-card7"
ONE_CARD = {"i915": 1, "millicores": 300, "memory.max": 10**9}


@dataclass(frozen=True, slots=True)
class Result:
    """Medians in seconds, and what the design holds the ratio against (None: nothing)."""

    what: str
    ours: float
    bare: float
    goal: float | None = None

    @property
    def ratio(self) -> float:
        return self.ours / self.bare


class Driver:
    """kube-scheduler's side: one connection that is kept alive."""

    def __init__(self, address: ExtenderAddress) -> None:
        where = urlsplit(address.url)
        self._connection = http.client.HTTPSConnection(
            where.hostname or "", where.port, context=address.ssl_context(), timeout=60
        )

    def ask(self, body: bytes) -> float:
        """Seconds from the first byte out to the last byte in."""
        started = time.perf_counter()
        self._connection.request("POST", "/scheduler/filter", body, {"Content-Type": "application/json"})
        answer = self._connection.getresponse()
        text = answer.read()
        took = time.perf_counter() - started
        if answer.status != http.HTTPStatus.OK or not json.loads(text).get("NodeNames"):
            raise RuntimeError(f"expected nodes to pass, found {answer.status}: {text[:300]!r}")
        return took


class Pair(NamedTuple):
    """What is compared."""

    ours: Driver
    bare: Driver


async def measure() -> list[Result]:
    """All figures of the filter, on one cluster in one run."""
    with TemporaryDirectory(prefix="gas-bench-") as name:
        directory = Path(name)
        async with ApiServer() as server, ApiClient(server.url) as client:
            for node in nodes(SIZE):
                server.api.create(NODES, None, node)
            for placed in placed_pods(SIZE, seed=1):
                server.api.create(PODS, "default", placed)
            async with (
                running_extender(directory, server.url, ()) as extender,
                _bare_extender(directory) as bare_port,
            ):
                return await _compare(client, Pair(Driver(extender.address), Driver(_at(extender.address, bare_port))))


async def _compare(client: ApiClient, pair: Pair) -> list[Result]:
    names = node_names(SIZE)
    results = []
    for number, goal in ((1, None), (100, None), (500, None), (5000, 2.0)):
        body = _body(ONE_CARD, names[:number])
        await asyncio.to_thread(pair.ours.ask, body)  # the first time is another figure
        results.append(await _paired(f"filter, {number:,} names, warm", pair, cycle([body]), goal))
    results.append(
        await _paired(
            "filter, 5,000 names, a shape never seen",
            pair,
            (_body(ONE_CARD | {"millicores": number}, names) for number in count(301)),
            100.0,
        )
    )
    body = _body(ONE_CARD, names)
    for changed, goal in ((1, None), (10, 2.5), (100, None)):
        results.append(await _in_churn(client, pair, body, changed, goal))
    full = _body({"i915": 1, "memory.max": 16 * 10**9}, names)
    await asyncio.to_thread(pair.ours.ask, full)
    results.append(await _paired("filter, 5,000 names, most cards too full, warm", pair, cycle([full]), None))
    return results


async def _paired(what: str, pair: Pair, bodies: Iterable[bytes], goal: float | None) -> Result:
    """In turn, so that a slow moment of the machine meets both."""
    times: tuple[list[float], list[float]] = ([], [])
    for body in islice(bodies, ROUNDS):
        times[0].append(await asyncio.to_thread(pair.ours.ask, body))
        times[1].append(await asyncio.to_thread(pair.bare.ask, body))
    return Result(what, statistics.median(times[0]), statistics.median(times[1]), goal)


async def _in_churn(client: ApiClient, pair: Pair, body: bytes, changed: int, goal: float | None) -> Result:
    times: tuple[list[float], list[float]] = ([], [])
    for turn in range(ROUNDS):
        value = None if turn % 2 else "yes"
        for number in range(changed):
            patch = {"metadata": {"labels": {DISABLED: value}}}
            await client.patch(f"/api/v1/nodes/node-{number:05}", patch)
        await asyncio.sleep(SETTLE)
        times[0].append(await asyncio.to_thread(pair.ours.ask, body))
        times[1].append(await asyncio.to_thread(pair.bare.ask, body))
    what = f"filter, 5,000 names, after {changed} changed node{'s' if changed > 1 else ''}"
    return Result(what, statistics.median(times[0]), statistics.median(times[1]), goal)


def _body(amounts: dict[str, int], names: Sequence[str]) -> bytes:
    asked = pod("asked", amounts)
    asked["metadata"]["uid"] = "benchmark"
    return json.dumps({"Pod": asked, "Nodes": None, "NodeNames": list(names)}).encode()


@asynccontextmanager
async def _bare_extender(directory: Path) -> AsyncIterator[int]:
    """Its port; certificates are those that are in the directory already."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
    paths = [str(directory / name) for name in ("server.crt", "server.key", "ca.crt")]
    command = [sys.executable, "-m", "benchmarks.bare_extender", str(port), *paths]
    process = await asyncio.create_subprocess_exec(*command)
    try:
        async with asyncio.timeout(30):
            while True:
                try:
                    _, writer = await asyncio.open_connection("127.0.0.1", port)
                except OSError:
                    await asyncio.sleep(0.05)
                    continue
                writer.close()
                break
        yield port
    finally:
        process.send_signal(signal.SIGTERM)
        await process.wait()


def _at(address: ExtenderAddress, port: int) -> ExtenderAddress:
    return ExtenderAddress(
        url=f"https://127.0.0.1:{port}",
        authority=address.authority,
        certificate=address.certificate,
        key=address.key,
    )
