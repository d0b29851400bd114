"""What the plugin's benchmark finds, and how it is shown."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from rich.table import Table

GOAL = 3.0
MEMORY_GOAL = 80.0
IDLE_GOAL = 1.0


@dataclass(frozen=True, slots=True)
class Case:
    """What waits for its devices when kubelet asks.

    waiting  pods with equal needs, of which kubelet has taken up one
    cards    each of them asks for
    decided  whether the extender has placed them
    """

    what: str
    waiting: int = 1
    cards: int = 1
    decided: bool = True


@dataclass(slots=True)
class Times:
    """Seconds of each call."""

    ours: list[float] = field(default_factory=list)
    bare: list[float] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Result:
    """One row: a method in a case."""

    method: str
    case: Case
    times: Times


@dataclass(frozen=True, slots=True)
class Pair:
    """A figure of both plugins."""

    ours: float
    bare: float


@dataclass(frozen=True, slots=True)
class Weight:
    """Of the processes.

    memory  resident, MB
    idle    percent of one core
    """

    memory: Pair
    idle: Pair


def times_table(results: Sequence[Result], title: str) -> Table:
    """One row for each method in each case, and one for all its calls."""
    rows = Table(title=title, title_justify="left")
    for heading in ("what", "gas", "bare plugin", "ratio", "gas p99", "bare p99", "ratio", "goal"):
        rows.add_column(heading, justify="left" if heading == "what" else "right")
    for result in [*results, *_together(results)]:
        cells: list[str] = []
        for figure in (statistics.median, _p99):
            ours, bare = figure(result.times.ours), figure(result.times.bare)
            cells += [f"{1e3 * ours:.2f} ms", f"{1e3 * bare:.2f} ms", f"{ours / bare:.2f}"]
        rows.add_row(f"{result.method}, {result.case.what}", *cells, f"≤ {GOAL:g}")
    return rows


def weight_table(weight: Weight, title: str) -> Table:
    """What they take while nothing happens."""
    rows = Table(title=title, title_justify="left")
    for heading in ("what", "gas", "bare plugin", "goal"):
        rows.add_column(heading, justify="left" if heading == "what" else "right")
    memory, idle = weight.memory, weight.idle
    rows.add_row("resident memory", f"{memory.ours:.1f} MB", f"{memory.bare:.1f} MB", f"≤ {MEMORY_GOAL:g} MB")
    rows.add_row("idle, of a core", f"{idle.ours:.2f} %", f"{idle.bare:.2f} %", f"< {IDLE_GOAL:g} %")
    return rows


def _together(results: Sequence[Result]) -> Iterator[Result]:
    """The calls of each method in all cases: enough for a 99th percentile."""
    for method in dict.fromkeys(result.method for result in results):
        times = [result.times for result in results if result.method == method]
        ours = [seconds for each in times for seconds in each.ours]
        bare = [seconds for each in times for seconds in each.bare]
        yield Result(method, Case(f"all {len(ours)} calls"), Times(ours, bare))


def _p99(times: Sequence[float]) -> float:
    return statistics.quantiles(times, n=100, method="inclusive")[-1]
