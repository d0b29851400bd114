"""Growth with nodes, cards and placed pods: of a filter in one process; of an extender's start, memory and verbs."""

import asyncio
import json
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import count, islice, repeat
from statistics import median

import msgspec

from benchmarks.clusters import Size, node_names, nodes, placed_pods, pod
from benchmarks.extenders import ALL_VERBS_FLAGS
from benchmarks.feed import event
from benchmarks.filter import ONE_CARD, SETTLE, question
from benchmarks.plot import Line, plot
from benchmarks.processes import MB, cpu_seconds, resident_bytes
from benchmarks.results import Figure, Results
from benchmarks.stage import Stage, stage
from gas.extender.decider import Decider, Options
from gas.extender.filter import Filter, PendingBinds
from gas.extender.metrics import Metrics
from gas.objects.stored import Node, Pod
from gas.vocabularies.known import DEFAULT
from tests.listed import list_all

ROUNDS = 15
NODES = (500, 1000, 2000, 5000, 10_000, 15_000)
CARDS = (1, 2, 4, 8, 16)
PODS = (5000, 10_000, 20_000, 40_000)
USUAL = Size(nodes=5000, pods=20_000)
USUAL_CARDS = 8


def growth() -> Results:
    by_nodes = {number: asyncio.run(_times(Size(number, 4 * number), USUAL_CARDS)) for number in NODES}
    by_cards = {number: asyncio.run(_times(USUAL, number)) for number in CARDS}
    by_pods = {number: asyncio.run(_times(Size(USUAL.nodes, number), USUAL_CARDS)) for number in PODS}
    figures = []
    plots = {}
    for what, found in (("nodes", by_nodes), ("cards a node", by_cards), ("placed pods", by_pods)):
        lines = lines_of(found)
        figures += [grown(line, what) for line in lines]
        plots[f"filter-by-{what.split()[-1] if what != 'cards a node' else 'cards'}"] = plot(
            f"Processor time of a filter, by {what}", x=what, y="ms", lines=lines
        )
    title = (
        "How a `filter` of all nodes grows, without HTTP and TLS: processor time, medians;"
        f" {USUAL.nodes:,} nodes, {USUAL_CARDS} cards, {USUAL.pods:,} placed pods unless the row says otherwise"
    )
    return Results("growth", title, figures, ours="largest", other="smallest", plots=plots)


async def _times(size: Size, cards: int) -> Mapping[str, float]:
    """Return milliseconds of each kind of filter."""
    filter_nodes, decider = decider_of(size, cards)
    asked = node_names(size)
    amounts = {"i915": 1, "millicores": 100, "memory.max": 10**8}
    body = question(asked, amounts)
    changes = [
        msgspec.convert(nodes(Size(10, 0), cards=cards, less_memory=1 + turn), list[Node]) for turn in range(ROUNDS)
    ]
    unseen = (question(asked, amounts | {"memory.max": 10**8 + number}) for number in count(1))

    def after_ten_changes() -> bytes:
        for node in changes.pop():
            decider.nodes.changed(node)
        return body

    await _answered(filter_nodes, body)
    return {
        "warm": await _median(filter_nodes, lambda: body),
        "after 10 changed nodes": await _median(filter_nodes, after_ten_changes),
        "never seen": await _median(filter_nodes, lambda: next(unseen)),
    }


def decider_of(size: Size, cards: int) -> tuple[Filter, Decider]:
    """Return a decider that knows a cluster, and its filter."""
    decider = Decider(Options(vocabularies=DEFAULT))
    list_all(decider.nodes, msgspec.convert(nodes(size, cards=cards), list[Node]))
    placed = [
        each | {"metadata": each["metadata"] | {"uid": each["metadata"]["name"]}}
        for each in placed_pods(size, 1, cards=cards)
    ]
    list_all(decider.pods, msgspec.convert(placed, list[Pod]))
    filter_nodes = Filter(
        decider,
        PendingBinds(patience=0),
        Metrics("growth"),
        why_not_ready=lambda: None,
        on_refused=lambda _pod, _refusal: None,
    )
    return filter_nodes, decider


async def _median(filter_nodes: Filter, next_body: Callable[[], bytes]) -> float:
    times = []
    for _ in range(ROUNDS):
        body = next_body()
        started = time.process_time()
        await _answered(filter_nodes, body)
        times.append(time.process_time() - started)
    return 1e3 * median(times)


async def _answered(filter_nodes: Filter, body: bytes) -> None:
    answer = await filter_nodes(body)
    if b'"NodeNames":["' not in answer:
        raise RuntimeError(f"expected nodes to pass, found {answer[:300]!r}")


def lines_of(found: Mapping[int, Mapping[str, float]]) -> list[Line]:
    """Return a line for each name, from the values by number and name."""
    return [
        Line(name, [(number, values[name]) for number, values in found.items()]) for name in next(iter(found.values()))
    ]


def grown(line: Line, what: str, unit: str = "ms") -> Figure:
    """Compare the last point of a line with the first; ``what`` is counted by x."""
    (first, low), (last, high) = line.points[0], line.points[-1]
    return Figure(f"{line.name}: {first:,} to {last:,} {what}, exponent {exponent(line.points):.2f}", high, low, unit)


def exponent(points: Sequence[tuple[float, float]]) -> float:
    """Return the power of x that y grows with: the slope of the line through the logarithms."""
    xs = [math.log(x) for x, _ in points]
    ys = [math.log(y) for _, y in points]
    mean_x, mean_y = sum(xs) / len(xs), sum(ys) / len(ys)
    above = sum((x - mean_x) * (y - mean_y) for x, y in zip(xs, ys, strict=True))
    return above / sum((x - mean_x) ** 2 for x in xs)


START, MEMORY = "start", "resident memory"
ASKED = 500
"""Names in a request of kube-scheduler, by default, where there are 5,000 nodes and more."""

REQUESTS = 200
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
        first, *others = islice(bodies, REQUESTS + 1)
        driver.ask(verb, first)  # a shape never seen
        before = cpu_seconds(running.ours.program.pid)
        for body in others:
            driver.ask(verb, body)
        found[what] = 1e3 * (cpu_seconds(running.ours.program.pid) - before) / REQUESTS
    driver.close()
    return found


def _waiting(running: Stage, size: Size) -> list[bytes]:
    """Let pods wait, and return the requests that bind each to a node of its own."""
    pods = [pod(f"waiting-{number}", ONE_CARD) for number in range(REQUESTS + 1)]
    for each in pods:
        each["metadata"]["uid"] = each["metadata"]["name"]
    running.send("pods", (event("ADDED", each) for each in pods))
    time.sleep(SETTLE)
    uids = [each["metadata"]["uid"] for each in pods]
    return [
        json.dumps({"PodName": uid, "PodNamespace": "default", "PodUID": uid, "Node": node}).encode()
        for uid, node in zip(uids, node_names(size), strict=False)
    ]
