"""Growth of the extender's start, memory and verbs with nodes and placed pods, alone on a made-up API server."""

import json
import time
from collections.abc import Iterable, Mapping
from itertools import islice, repeat

from benchmarks.clusters import Size, node_names, pod
from benchmarks.extenders import ALL_VERBS_FLAGS
from benchmarks.feed import event
from benchmarks.filter import ONE_CARD, SETTLE, question
from benchmarks.growth import NODES, PODS, USUAL, grown, lines_of
from benchmarks.plot import Line, plot
from benchmarks.processes import MB, cpu_seconds, resident_bytes
from benchmarks.results import Figure, Results
from benchmarks.stage import Stage, stage

START, MEMORY = "start", "resident memory"
ASKED = 500
"""Names in a request of kube-scheduler, by default, where there are 5,000 nodes and more."""

ROUNDS = 200
"""Requests of each kind, whose processor time is known in steps of 10 ms."""


def start_growth() -> Results:
    by_nodes = {number: _measured(Size(number, 4 * number), verbs=True) for number in NODES}
    by_pods = {number: _measured(Size(USUAL.nodes, number)) for number in PODS}
    figures = []
    plots = {}
    for what, found in (("nodes", by_nodes), ("pods", by_pods)):
        lines = lines_of(found)
        figures += [grown(line, what, {START: "s", MEMORY: "MB"}.get(line.name, "ms")) for line in lines]
        start, memory, *verbs = lines
        if what == "pods":
            figures.append(Figure("start of a placed pod", 1e3 * slope(start), None))
            figures.append(Figure("memory of a placed pod", 1e3 * slope(memory), None, "kB"))
        plots[f"start-by-{what}"] = plot(f"Processor time until ready, by {what}", x=what, y="s", lines=[start])
        plots[f"memory-by-{what}"] = plot(f"Resident memory when ready, by {what}", x=what, y="MB", lines=[memory])
        if verbs:
            title = f"Processor time of a request, by {what}"
            plots[f"verbs-by-{what}"] = plot(title, x=what, y="ms", lines=verbs)
    title = (
        "Processor time until ready and of a request over HTTP and TLS, all verbs; by nodes with 4 placed pods each, by"
        f" placed pods on {USUAL.nodes:,} nodes"
    )
    return Results("start-growth", title, figures, ours="largest", other="smallest", plots=plots)


def slope(line: Line) -> float:
    """Return how much the last point of a line is above the first, a unit of x."""
    (first, low), (last, high) = line.points[0], line.points[-1]
    return (high - low) / (last - first)


def _measured(size: Size, *, verbs: bool = False) -> Mapping[str, float]:
    """Return the seconds and the MB of a start and, with ``verbs``, the milliseconds of each kind of request."""
    with stage(size, *ALL_VERBS_FLAGS, with_bare=False) as running:
        pid = running.ours.program.pid
        found = {START: cpu_seconds(pid), MEMORY: resident_bytes(pid) / MB}
        return found | (_of_verbs(running, size) if verbs else {})


def _of_verbs(running: Stage, size: Size) -> dict[str, float]:
    every = question(node_names(size))
    some = question(node_names(size)[:ASKED])
    kinds: dict[str, tuple[str, Iterable[bytes]]] = {
        "`filter` of all names": ("filter", repeat(every)),
        f"`filter` of {ASKED}": ("filter", repeat(some)),
        f"`prioritize` of {ASKED}": ("prioritize", repeat(some)),
        "`bind`": ("bind", _waiting(running, size)),
    }
    driver = running.driver(running.ours.endpoint.port)
    found = {}
    for what, (verb, bodies) in kinds.items():
        first, *others = islice(bodies, ROUNDS + 1)
        driver.ask(verb, first)  # a shape never seen
        before = cpu_seconds(running.ours.program.pid)
        for body in others:
            driver.ask(verb, body)
        found[what] = 1e3 * (cpu_seconds(running.ours.program.pid) - before) / ROUNDS
    driver.close()
    return found


def _waiting(running: Stage, size: Size) -> list[bytes]:
    """Let pods wait, and return the requests that bind each to a node of its own."""
    pods = [pod(f"waiting-{number}", ONE_CARD) for number in range(ROUNDS + 1)]
    for each in pods:
        each["metadata"]["uid"] = each["metadata"]["name"]
    running.send("pods", (event("ADDED", each) for each in pods))
    time.sleep(SETTLE)
    uids = [each["metadata"]["uid"] for each in pods]
    return [
        json.dumps({"PodName": uid, "PodNamespace": "default", "PodUID": uid, "Node": node}).encode()
        for uid, node in zip(uids, node_names(size), strict=False)
    ]
