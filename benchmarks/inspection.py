"""The page and the commands of ``kubectl gas`` on a large cluster, and filters of an extender whose page is open.

``python -m benchmarks.inspection KUBECONFIG`` prints the processor seconds of each step of a command.
"""

import asyncio
import gc
import http.client
import json
import os
import resource
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from signal import SIGCONT, SIGSTOP
from statistics import median
from typing import Any, TypeVar

from benchmarks.clusters import Size, node_names
from benchmarks.drivers import Driver, ask_filter
from benchmarks.filter import question
from benchmarks.processes import cpu_seconds
from benchmarks.results import Figure, Goal, Results
from benchmarks.stage import Stage, stage
from gas.cluster import paths
from gas.cluster.listing import Lister
from gas.inspection.cluster import Cluster, matters
from gas.inspection.connection import Where
from gas.inspection.following import connected
from gas.inspection.objects import InspectedNode, InspectedPod
from gas.inspection.output import Look, written
from gas.inspection.rows import card_report
from tests.e2e.ports import free_port
from tests.e2e.programs import Program
from tests.e2e.waiting import wait_for

T = TypeVar("T")

SIZE = Size(nodes=5000, pods=25_000)
"""A fifth of the pods finds no room, so 20,000 are placed."""

ROUNDS = 5
EVENTS = 2000
"""Pod events in one round, at `RATE` a second."""

RATE = 1000.0
PAUSE = 0.02
"""Seconds between two filters."""

FILES = ("/", "/page.css", "/page.js", "/icon.svg")
GOALS = {"top": Goal(1, unit="s"), "top -o yaml": Goal(2, unit="s")}


def page() -> Results:
    """Measure an extender with a page beside one without, each on a made-up API server of its own."""
    port = free_port()
    with (
        stage(SIZE, with_bare=False, use=True) as without,
        stage(SIZE, with_bare=False, use=True) as shown,
        _running_page(shown, port) as process,
    ):
        viewer = _Viewer(port)
        wait_for("the whole map", viewer.has_all, seconds=120, every=0.2)
        until_whole = cpu_seconds(process)
        steps = [_steps(without.kubeconfig) for _ in range(ROUNDS)]
        of_step = {name: median(each[name] for each in steps) for name in steps[0]}
        whole_top = median(_command_seconds(without.kubeconfig) for _ in range(ROUNDS))
        firsts = [viewer.first_content() for _ in range(ROUNDS)]
        watching = threading.Thread(target=viewer.watch, daemon=True)
        watching.start()
        sides = [_Side(without), _Side(shown)]
        began = viewer.received
        for _ in range(ROUNDS):
            for side, signal in zip(sides, (SIGSTOP, SIGCONT), strict=True):
                os.kill(process, signal)
                side.ask()
        figures = [
            Figure(
                "`filter` of 5,000 names, the page open, against no page",
                1e3 * median(sides[1].filters),
                1e3 * median(sides[0].filters),
                goal=Goal(1.05),
            ),
            Figure("the extender's processor time meanwhile", sides[1].used, sides[0].used, "s"),
            Figure("first content of the page", 1e3 * median(took for took, _ in firsts), goal=Goal(1000, unit="ms")),
            Figure("sent at first", median(size for _, size in firsts) / 1e3, unit="kB", goal=Goal(1000, unit="kB")),
            Figure(
                "sent a second at 1,000 pod events a second",
                (viewer.received - began) / 1e3 / sides[1].seconds,
                unit="kB/s",
                goal=Goal(50, unit="kB/s"),
            ),
            Figure("processor time until the page has the whole map", until_whole, of_step["lists"], "s"),
            *(
                Figure(
                    f"`kubectl gas {name}`: processor time after the lists arrived", seconds, None, "s", GOALS.get(name)
                )
                for name, seconds in of_step.items()
                if name != "lists"
            ),
            Figure("`kubectl gas top`: the whole command, with measured use", whole_top, of_step["lists"], "s"),
        ]
        viewer.stop()
    return Results(
        "page",
        f"The page and the commands: {SIZE.nodes:,} nodes of 8 cards, 20,000 placed pods; medians",
        figures,
        other="compared with",
        notes=[
            "The page and whole commands are compared with listing the nodes and pods, in processor time.",
            f"Filters are asked at {RATE:,.0f} pod events a second. The page's process is paused while the other"
            " extender is asked.",
        ],
    )


class _Side:
    """One of the two extenders, asked in turn so that a slow moment of the machine affects both.

    filters  seconds of each
    used     processor seconds of the extender
    """

    def __init__(self, running: Stage) -> None:
        self._running = running
        self._driver: Driver = running.driver(running.ours.endpoint.port)
        self._body = question(node_names(SIZE))
        ask_filter(self._driver, self._body)
        self.filters: list[float] = []
        self.used = self.seconds = 0.0

    def ask(self) -> None:
        """Ask filters while the watch sends events."""
        events = threading.Thread(target=self._running.churn, args=(EVENTS // 4, RATE))
        before, started = cpu_seconds(self._running.ours.program.pid), time.perf_counter()
        events.start()
        while events.is_alive():
            self.filters.append(ask_filter(self._driver, self._body))
            time.sleep(PAUSE)
        self.used += cpu_seconds(self._running.ours.program.pid) - before
        self.seconds += time.perf_counter() - started


class _Viewer:
    """A browser that shows the map, as far as the network sees it.

    received  bytes of the stream of changes
    """

    def __init__(self, port: int) -> None:
        self._port = port
        self._stopped = False
        self.received = 0

    def has_all(self) -> bool:
        try:
            return len(self._map()["nodes"]) == SIZE.nodes
        except (OSError, http.client.HTTPException, ValueError):
            return False

    def first_content(self) -> tuple[float, int]:
        """Return the seconds and bytes of everything that a new browser loads before it draws the map."""
        started = time.perf_counter()
        size = sum(len(self._raw(path)) for path in (*FILES, "/data/cluster"))
        return time.perf_counter() - started, size

    def watch(self) -> None:
        """Receive the changes until `stop`."""
        now = self._map()
        with closing(self._connected(f"/data/changes?after={now['board']}@{now['version']}")) as opened:
            while not self._stopped and (part := opened.recv(2**16)):
                self.received += len(part)

    def stop(self) -> None:
        self._stopped = True

    def _map(self) -> Any:
        with closing(http.client.HTTPConnection("127.0.0.1", self._port, timeout=60)) as connection:
            connection.request("GET", "/data/cluster")
            return json.loads(connection.getresponse().read())

    def _raw(self, path: str) -> bytes:
        """Return a whole response with its headers, as it is on the wire."""
        with closing(self._connected(path)) as opened:
            return b"".join(iter(lambda: opened.recv(2**16), b""))

    def _connected(self, path: str) -> socket.socket:
        opened = socket.create_connection(("127.0.0.1", self._port), timeout=60)
        head = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAccept-Encoding: gzip\r\nConnection: close\r\n\r\n"
        opened.sendall(head.encode())
        return opened


@contextmanager
def _running_page(running: Stage, port: int) -> Iterator[int]:
    """Run the page of an extender while the block runs, and return its process id."""
    plain = f"http://127.0.0.1:{running.ours.endpoint.readiness_port}"
    flags = [f"--page-port={port}", f"--kubeConfig={running.kubeconfig}", f"--extender={plain}", "--extender-flags="]
    command = [sys.executable, "-m", "gas.inspection.page", *flags]
    program = Program("page", command, log=running.kubeconfig.with_name("page.log"))
    program.start()
    try:
        yield program.pid
    finally:
        program.kill()


def _steps(kubeconfig: Path) -> dict[str, float]:
    """Return what this module prints in a process of its own, so that nothing is remembered from before."""
    command = [sys.executable, "-m", "benchmarks.inspection", str(kubeconfig)]
    found: dict[str, float] = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    return found


def _command_seconds(kubeconfig: Path) -> float:
    """Return the processor seconds of a whole command."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-m", "gas", "top", f"--kubeconfig={kubeconfig}"]
    subprocess.run(command, check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


async def _print_steps(kubeconfig: str) -> None:
    """Do what ``top`` does, and print the processor seconds of each step."""
    gc.disable()  # as the commands do
    async with connected(Where(kubeconfig=kubeconfig)) as api:
        before = time.process_time()
        nodes = (await Lister(api, paths.NODES, InspectedNode).fetch()).objects
        pods = (await Lister(api, paths.PODS, InspectedPod, keep=matters).fetch()).objects
        found = {"lists": time.process_time() - before}
    cluster, seconds = _timed(lambda: Cluster.of(nodes, pods))
    cards, made = _timed(lambda: card_report(cluster))
    for name, form in (("top", "table"), ("top -o yaml", "yaml")):
        found[name] = seconds + made + _timed(lambda form=form: written(cards, form, Look()))[1]  # type: ignore[misc]
    print(json.dumps(found))


def _timed(work: Callable[[], T]) -> tuple[T, float]:
    before = time.process_time()
    return work(), time.process_time() - before


if __name__ == "__main__":
    asyncio.run(_print_steps(sys.argv[1]))
