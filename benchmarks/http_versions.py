"""The cost of a request over HTTP/1.1 and over HTTP/2 on the same server, when nothing is decided."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.clusters import Size, node_names
from benchmarks.drivers import Driver, Http1, Http2, client_context
from benchmarks.extenders import BareExtender
from benchmarks.filter import question
from benchmarks.processes import cpu_seconds
from benchmarks.results import Figure, Results
from tests.e2e.certificates import Authority

ROUNDS = 4
REQUESTS = 100
"""Requests of each version in a round: enough for the clock of processor time, which counts in 10 ms."""

NEW_CONNECTIONS = 200


def http_versions() -> Results:
    with TemporaryDirectory(prefix="gas-bench-") as name:
        authority = Authority(Path(name))
        client = authority.client("kube-scheduler")
        servers = [BareExtender(Path(name), authority, kubeconfig=None, http=http) for http in ("h2", "http/1.1")]

        def connect(side: int) -> Driver:
            return (Http2, Http1)[side](servers[side].port, client_context(authority, client))

        def spent(side: int) -> float:
            return cpu_seconds(servers[side].program.pid)

        try:
            for server in servers:
                server.start()
            figures = []
            drivers = (connect(0), connect(1))
            for what, number in (("a filter request with 1 name", 1), ("of 500 names", 500), ("of 5,000 names", 5000)):
                body = question(node_names(Size(number, 0)))
                seconds = [0.0, 0.0]
                for _ in range(ROUNDS):
                    for side in (0, 1):
                        before = spent(side)
                        for _ in range(REQUESTS):
                            drivers[side].ask("filter", body)
                        seconds[side] += spent(side) - before
                over_2, over_1 = (1e3 * each / (ROUNDS * REQUESTS) for each in seconds)
                figures.append(Figure(what, over_2, over_1))
            over_2, over_1 = _new(connect, spent)
            figures.append(Figure("a new connection and a filter request with 1 name", over_2, over_1))
        finally:
            for server in servers:
                server.stop()
    title = "Processor time of the bare extender for one request"
    notes = [
        "Over HTTP/1.1 a bind pays for a new connection only while more than two requests are under way.",
        "kube-scheduler's client asks for no session tickets, so no TLS session can be resumed.",
    ]
    return Results("http", title, figures, ours="HTTP/2", other="HTTP/1.1", notes=notes)


def _new(connect: Callable[[int], Driver], spent: Callable[[int], float]) -> list[float]:
    figures = []
    for side in (0, 1):
        before = spent(side)
        for _ in range(NEW_CONNECTIONS):
            driver = connect(side)
            driver.ask("filter", question(["node-00000"]))
            driver.close()
        figures.append(1e3 * (spent(side) - before) / NEW_CONNECTIONS)
    return figures
