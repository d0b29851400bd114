"""The figures of the plugin's benchmark."""

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain

from benchmarks.results import Figure, Goal

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
