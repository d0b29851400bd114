"""The time that kubelet waits for the device plugin, compared with a bare one on the same stack, and its idle cost."""

import asyncio
import os
import random
import signal
import ssl
import statistics
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from itertools import chain, count
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import urlsplit

from benchmarks.plugin_kubelet import (
    CONTAINER,
    NAMESPACE,
    NODE,
    PATIENCE,
    RESOURCE,
    Kubelet,
    PluginConnection,
    Timed,
    create_running,
    waiting_pod,
)
from benchmarks.processes import MB, cpu_seconds, resident_bytes
from benchmarks.results import Figure, Goal, Results
from gas.cluster.credentials import HOST, PORT
from gas.plugin.devices.device_ids import known_ids
from gas.plugin.receipts.receipt_writer import RECENT
from gas.values.cards import Card
from sandbox.api.kinds import NODES, PODS
from sandbox.api.server import ApiServer
from sandbox.certificates import Authority
from sandbox.hardware.fake_sysfs import FLEX_170, fake_gpus, write_tree

TIME_GOAL = Goal(3)
MEMORY_GOAL = Goal(80)
IDLE_GOAL = Goal(1)
PREFERENCE = "GetPreferredAllocation"


@dataclass(frozen=True, slots=True)
class Case:
    """The pods that wait for devices when kubelet calls the plugin.

    waiting  pods with equal needs, of which kubelet has admitted one
    cards    each of them asks for
    decided  whether the extender has placed them
    """

    what: str
    waiting: int = 1
    cards: int = 1
    decided: bool = True


@dataclass(slots=True)
class Times:
    """The seconds of each call."""

    ours: list[float] = field(default_factory=list)
    bare: list[float] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Result:
    """The times of one method in one case."""

    method: str
    case: Case
    times: Times


@dataclass(frozen=True, slots=True)
class Weight:
    """The cost of a process.

    memory  resident, MB
    idle    percent of one core while nothing happens
    """

    memory: float
    idle: float


def figures(results: Sequence[Result], ours: Weight, bare: Weight) -> Iterator[Figure]:
    """Yield medians of preferences in each case, the 99th percentile of each method, and the cost of the processes."""
    for result in results:
        if result.method == PREFERENCE:
            what = f"{result.method}, {result.case.what}, median"
            yield Figure.medians(what, result.times.ours, result.times.bare, TIME_GOAL)
    for method in dict.fromkeys(result.method for result in results):
        times = [each.times for each in results if each.method == method]
        seconds = [_p99([*chain(*of)]) for of in ([each.ours for each in times], [each.bare for each in times])]
        yield Figure(f"{method}, 99th percentile", 1e3 * seconds[0], 1e3 * seconds[1], goal=TIME_GOAL)
    yield Figure("resident memory", ours.memory, unit="MB", goal=MEMORY_GOAL)
    yield Figure("idle, of a core", ours.idle, unit="%", goal=IDLE_GOAL)
    yield Figure("the bare plugin's memory", bare.memory, unit="MB")
    yield Figure("the bare plugin idle, of a core", bare.idle, unit="%")


def _p99(times: Sequence[float]) -> float:
    return statistics.quantiles(times, n=100, method="inclusive")[-1]


CARDS = 8
SHARES = 40
"""Containers that may share one card: 250 pods fit, with places to choose from."""

PODS_ON_NODE = 250
ROUNDS = 250
WARM_UP = 10
SETTLE = 0.02
"""Seconds until a new pod has reached the plugin."""

IDLE = 30.0
"""Seconds for which the idle plugins are measured."""

CASES = (
    Case("a pod with a decision"),
    Case("one of 8 equal pods with decisions", waiting=8),
    Case("a pod with a decision for 4 cards", cards=4),
    Case("a pod without decision", decided=False),
)


class Bench:
    """A node with a kubelet, both plugins and 250 pods."""

    def __init__(self, server: ApiServer, kubelet: Kubelet, bare: PluginConnection) -> None:
        self._server = server
        self._kubelet = kubelet
        self._bare = bare
        self._names = (f"waiting-{number}" for number in count())
        self._chance = random.Random(1)
        self._free: list[str] = []

    def fill(self) -> None:
        """Create the pods that run there, before any plugin is called."""
        for number in range(PODS_ON_NODE):
            self._create_running(number)

    async def measure(self, case: Case) -> list[Result]:
        taken = {_id_of(number) for number in range(PODS_ON_NODE)}
        self._free = [id_ for id_ in self._kubelet.devices if id_ not in taken]
        for number in range(case.waiting):  # they replace some that ran, so that the number stays
            self._delete(f"running-{number}")
        waiting = [self._create(case) for _ in range(case.waiting)]
        prefers, allocates = Times(), Times()
        for turn in range(WARM_UP + ROUNDS):
            await asyncio.sleep(SETTLE)
            name, cards = waiting.pop(self._chance.randrange(len(waiting)))
            self._kubelet.show(NAMESPACE, name, {CONTAINER: []})
            await asyncio.to_thread(self._ask, case, cards, prefers, allocates)
            self._delete(name)
            waiting.append(self._create(case))
            if turn < WARM_UP:
                prefers, allocates = Times(), Times()
        for name, _ in waiting:
            self._server.api.delete(PODS, NAMESPACE, name, {"gracePeriodSeconds": 0})
        for number in range(case.waiting):
            self._create_running(number)
        return [Result("GetPreferredAllocation", case, prefers), Result("Allocate", case, allocates)]

    def _ask(self, case: Case, cards: Sequence[Card], prefers: Times, allocates: Times) -> None:
        """Call both plugins one after the other, in random order, so that a slow moment affects both."""
        offered = self._chance.sample(self._free, len(self._free))
        both = [(self._kubelet.plugin, prefers.ours, allocates.ours), (self._bare, prefers.bare, allocates.bare)]
        self._chance.shuffle(both)
        for plugin, prefer_times, allocate_times in both:
            preferred = plugin.prefer(offered, case.cards)
            given = plugin.allocate(list(preferred.ids))
            prefer_times.append(preferred.seconds)
            allocate_times.append(given.seconds)
            if plugin is not self._bare:
                _check(case, cards, given)

    def _create_running(self, number: int) -> None:
        name, id_ = f"running-{number}", _id_of(number)
        create_running(self._server.api, name, known_ids([id_])[0].card)
        self._kubelet.show(NAMESPACE, name, {CONTAINER: [id_]})

    def _create(self, case: Case) -> tuple[str, list[Card]]:
        name = next(self._names)
        cards = [Card(number) for number in self._chance.sample(range(CARDS), case.cards)]
        self._server.api.create(PODS, NAMESPACE, waiting_pod(name, case.cards, cards if case.decided else ()))
        return name, cards

    def _delete(self, name: str) -> None:
        self._server.api.delete(PODS, NAMESPACE, name, {"gracePeriodSeconds": 0})
        self._kubelet.drop(NAMESPACE, name)


def _id_of(number: int) -> str:
    return f"card{number % CARDS}-{number // CARDS}"


def _check(case: Case, cards: Sequence[Card], given: Timed) -> None:
    """Raise RuntimeError if a plugin gave wrong devices, because its times are then worthless."""
    found = {path for path in given.ids if path.startswith("/dev/dri/card")}
    expected = {f"/dev/dri/{card}" for card in cards}
    if len(found) != case.cards or (case.decided and found != expected):
        raise RuntimeError(f"{case.what}: expected {sorted(expected)}, found {sorted(found)}")


def plugin() -> Results:
    """Measure all figures of the plugin, on one node in one run."""
    results, (ours, bare) = asyncio.run(_measure())
    calls = len(CASES) * ROUNDS
    title = f"{PODS_ON_NODE} pods on {CARDS} cards; {calls:,} calls of each method to each plugin, in turn"
    return Results("plugin", title, list(figures(results, ours, bare)), other="bare plugin")


async def _measure() -> tuple[list[Result], list[Weight]]:
    """Return the results of each call, and memory and idle cost of our process and the bare one."""
    with TemporaryDirectory(prefix="gas-") as name:
        directory = Path(name)
        write_tree(directory / "tree", fake_gpus(FLEX_170, CARDS))
        kubelet = Kubelet(directory / "kubelet", RESOURCE)
        async with AsyncExitStack() as stack:
            server = await stack.enter_async_context(ApiServer())
            server.api.create(NODES, None, {"metadata": {"name": NODE}})
            stack.enter_context(kubelet.serving())
            bare_process = await stack.enter_async_context(bare_plugin(directory))
            bare = await asyncio.to_thread(PluginConnection, directory / "bare.sock")
            stack.callback(bare.channel.close)
            bench = Bench(server, kubelet, bare)
            bench.fill()
            plugin = await stack.enter_async_context(running_plugin(directory, server.url))
            stack.callback(kubelet.hang_up)
            if not await asyncio.to_thread(kubelet.watched.wait, PATIENCE):
                log = (directory / "plugin.log").read_text(encoding="utf-8")
                raise RuntimeError(f"the plugin has not registered after {PATIENCE:g} s. It wrote:\n{log}")
            results = [result for case in CASES for result in await bench.measure(case)]
            await asyncio.sleep(RECENT + 5)  # until then, the plugin is not idle yet
            both = plugin.pid, bare_process.pid
            idle = await _idle(both, IDLE)
            return results, [Weight(resident_bytes(pid) / MB, each) for pid, each in zip(both, idle, strict=True)]


def _flags(directory: Path) -> list[str]:
    return [
        f"--prefix={directory}/tree",
        f"--kubelet-dir={directory}/kubelet",
        f"--node-name={NODE}",
        f"--shared-dev-num={SHARES}",
        "--metrics-address=127.0.0.1",
        "--metrics-port=0",
        "--v=0",
    ]


@asynccontextmanager
async def _process(log: Path, *module: str, **environ: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run ``python -m`` with arguments and additional variables while the block runs."""
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", *module, env=os.environ | environ, stdout=output, stderr=output
        )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
        await process.wait()


def bare_plugin(directory: Path) -> AbstractAsyncContextManager[asyncio.subprocess.Process]:
    """Run the bare plugin while the block runs."""
    return _process(directory / "bare.log", "benchmarks.plugin_bare", f"{directory}/bare.sock")


@asynccontextmanager
async def running_plugin(directory: Path, api_url: str, *flags: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run the plugin with a service account while the block runs."""
    account = directory / "account"
    account.mkdir(exist_ok=True)
    (account / "token").write_text("plugin", encoding="ascii")
    async with tls_before(api_url, account) as port:
        variables = {HOST: "127.0.0.1", PORT: str(port)}
        log = directory / "plugin.log"
        arguments = [str(account), *_flags(directory), *flags]
        async with _process(log, "benchmarks.plugin_pod", *arguments, **variables) as process:
            yield process


@asynccontextmanager
async def tls_before(url: str, directory: Path) -> AsyncIterator[int]:
    """Serve a port of 127.0.0.1 that forwards to the server at ``url``; write its authority to ``ca.crt``."""
    files = Authority(directory).server()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(files.certificate, files.key)
    behind = urlsplit(url)

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inner_reader, inner_writer = await asyncio.open_connection(behind.hostname, behind.port)
        with suppress(asyncio.CancelledError):
            await asyncio.gather(_copy(reader, inner_writer), _copy(inner_reader, writer))

    server = await asyncio.start_server(connected, "127.0.0.1", 0, ssl=context)
    try:
        port: int = server.sockets[0].getsockname()[1]
        yield port
    finally:
        server.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while chunk := await reader.read(2**16):
            writer.write(chunk)
            await writer.drain()
    writer.close()


async def _idle(pids: Sequence[int], seconds: float) -> list[float]:
    """Return the percentage of one core that each process uses, over the same time."""
    before = [cpu_seconds(pid) for pid in pids]
    await asyncio.sleep(seconds)
    return [100 * (cpu_seconds(pid) - start) / seconds for pid, start in zip(pids, before, strict=True)]
