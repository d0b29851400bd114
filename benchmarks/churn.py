"""Memory during an hour's worth of pods that come and go, and filters while the watch sends 1,000 events a second."""

import json
import threading
import time

from benchmarks.clusters import Size, node_names
from benchmarks.drivers import Driver, ask_filter
from benchmarks.feed import event
from benchmarks.filter import FULL_CARD, placed, question
from benchmarks.processes import MB, cpu_seconds, resident_bytes
from benchmarks.results import Figure, Goal, Results
from benchmarks.stage import Stage, stage

SIZE = Size(nodes=5000, pods=20_000)
LIVES = 36_000
"""Pods that come and go: ten a second for an hour, four events each."""

PARTS = 12
RATE = 1000.0
SECONDS_AT_RATE = 15
PAUSE = 0.02
"""Seconds between two filters, whether or not the watch sends events."""

PATIENCE = 300.0
MARKED = "node-00000"


def churn() -> Results:
    with stage(SIZE) as running:
        figures = [*_at_rate(running), *_memory(running)]
    title = f"Pods that come, are bound, run and go: {SIZE.nodes:,} nodes, {SIZE.pods:,} placed pods"
    return Results("churn", title, figures, other="compared with")


def _at_rate(running: Stage) -> list[Figure]:
    """Compare filters while the watch sends 1,000 events a second with filters while it sends none."""
    pair = running.pair()
    body = question(node_names(SIZE))
    ask_filter(pair.ours, body)
    quiet = []
    for _ in range(50):
        quiet.append(ask_filter(pair.ours, body))
        ask_filter(pair.bare, body)
        time.sleep(PAUSE)
    lives = int(RATE * SECONDS_AT_RATE / 4)
    took: list[float] = []
    telling = threading.Thread(target=lambda: took.append(running.churn(lives, RATE)))
    before = cpu_seconds(running.ours.program.pid)
    started = time.perf_counter()
    telling.start()
    ours, bare = [], []
    while telling.is_alive():
        ours.append(ask_filter(pair.ours, body))
        bare.append(ask_filter(pair.bare, body))
        time.sleep(PAUSE)
    told = time.perf_counter()
    _wait_until_taken(running, pair.ours)
    late = time.perf_counter() - told
    used = (cpu_seconds(running.ours.program.pid) - before) / (told - started)
    pair.close()
    return [
        Figure.medians("`filter` of 5,000 names at 1,000 pod events a second, against the bare extender", ours, bare),
        Figure.medians("the same against ours while the watch is quiet", ours, quiet),
        Figure("pod events a second meanwhile", 4 * lives / took[0], None, "/s"),
        Figure("ledger complete after the last event", 1e3 * late, None),
        Figure("share of one processor, filters included", 100 * used, None, "%"),
    ]


def _memory(running: Stage) -> list[Figure]:
    """Measure memory after each twelfth of an hour, with filters in between so that remembered verdicts count."""
    pair = running.pair()
    seen = []
    seconds = 0.0
    for part in range(PARTS):
        began = time.perf_counter()
        running.churn(LIVES // PARTS)
        _wait_until_taken(running, pair.ours)
        seconds += time.perf_counter() - began
        ask_filter(pair.ours, question(node_names(SIZE), {"i915": 1, "millicores": 100 + part}))
        seen.append(resident_bytes(running.ours.program.pid) / MB)
    pair.close()
    # The first twelfths fill what has a limit: pods that are gone, needs, the reserve of the memory allocator.
    return [
        Figure(f"{4 * LIVES:,} pod events, as many a second as are taken", 4 * LIVES / seconds, None, "/s"),
        Figure(
            "resident memory after an hour's worth, against half an hour's",
            seen[-1],
            seen[PARTS // 2 - 1],
            "MB",
            Goal(1.02),
        ),
    ]


def _wait_until_taken(running: Stage, ours: Driver) -> None:
    """Wait until all events are taken in: until a pod that fills a node has come and gone again."""
    marking = placed(
        time.monotonic_ns(), MARKED, 10**9
    )  # another pod each time, since one that is gone never comes back
    for kind, room in (("ADDED", False), ("DELETED", True)):
        running.send("pods", [event(kind, marking)])
        deadline = time.monotonic() + PATIENCE
        while _has_room(ours) != room:
            if time.monotonic() > deadline:
                raise TimeoutError("the extender does not take in what the watch says")
            time.sleep(0.005)


def _has_room(ours: Driver) -> bool:
    """Return whether the marked node has a whole card free. A filter is fast; /metrics lists 40,000 cards."""
    _, text = ours.ask("filter", question([MARKED], FULL_CARD))
    return bool(json.loads(text)["NodeNames"])
