"""``python -m benchmarks [NAME …] [--full] [--write]``: the benchmarks, as tables of ratios."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from rich.console import Console

from benchmarks import filter as filter_benchmark
from benchmarks import inspection, page
from benchmarks.admission import admission
from benchmarks.bind import bind
from benchmarks.bind_review import bind_review
from benchmarks.churn import churn
from benchmarks.cold_start import cold_start
from benchmarks.fragmentation import Others, chosen_traces, fragmentation
from benchmarks.growth import growth
from benchmarks.many_ids import many_ids
from benchmarks.placement import placement
from benchmarks.plugin import plugin
from benchmarks.real_cluster import ComponentsMissing
from benchmarks.results import Results
from benchmarks.scheduler_replay import through_scheduler
from benchmarks.scheduling import ordinary, scheduling
from benchmarks.start_growth import start_growth
from benchmarks.usage import usage

BENCHMARKS: Mapping[str, Callable[[bool], Results]] = {
    "filter": lambda _full: filter_benchmark.warm(),
    "prioritize": lambda _full: filter_benchmark.prioritize(),
    "vocabularies": lambda _full: filter_benchmark.vocabularies(),
    "shapes": lambda _full: filter_benchmark.shapes(),
    "growth": lambda _full: growth(),
    "start-growth": lambda _full: start_growth(),
    "placement": lambda _full: placement(),
    "churn": lambda _full: churn(),
    "bind": lambda _full: bind(),
    "bind-review": lambda _full: bind_review(),
    "scheduling": lambda full: scheduling(full=full),
    "ordinary": lambda _full: ordinary(),
    "admission": lambda _full: admission(),
    "cold-start": lambda full: cold_start(full=full),
    "plugin": lambda _full: plugin(),
    "many-ids": lambda _full: many_ids(),
    "usage": lambda _full: usage(),
    "page": lambda _full: inspection.page(),
}
"""Name -> the measurement; its argument is whether it shall have its full size."""

FRAGMENTATION = "fragmentation"
"""A measurement with results for each trace."""

SEEDS, FULL_SEEDS = 2, 10


def _write(console: Console, results: Results) -> None:
    try:
        page.write(results)
    except page.NoPlaceOnThePage as error:  # a trace of the user's own
        console.print(str(error), markup=False)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Timed results, as tables of ratios.")
    known = [*BENCHMARKS, FRAGMENTATION]
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(known)}; all of them by default")
    parser.add_argument(
        "--full", action="store_true", help="full sizes and every variant, where the default is smaller"
    )
    parser.add_argument("--traces", type=Path, metavar="DIR", help=f"folder of traces (CSV) for {FRAGMENTATION}")
    parser.add_argument("--trace", action="append", default=[], metavar="NAME", help="only this trace of the folder")
    parser.add_argument("--seeds", type=int, metavar="N", help=f"orders of arrival of each trace, {SEEDS} by default")
    parser.add_argument(
        "--others",
        type=Others,
        choices=list(Others),
        default=Others.RANDOM,
        help=f"how {FRAGMENTATION} places pods without GPUs where the extender is asked about GPU pods only",
    )
    parser.add_argument(
        "--in-process",
        action="store_true",
        help=f"let {FRAGMENTATION} call the extender's decider without HTTP: the same decisions in a third of the time",
    )
    parser.add_argument(
        "--scheduler",
        action="store_true",
        help=f"let the real kube-scheduler place the pods of {FRAGMENTATION}, in a small cluster of the same mix",
    )
    parser.add_argument("--write", action="store_true", help="also write the tables and plots into docs/performance.md")
    arguments = parser.parse_args()
    if unknown := [name for name in arguments.names if name not in known]:
        parser.error(f"no benchmark is called {unknown[0]!r}; there are {', '.join(known)}")
    console = Console(width=150, highlight=False)
    for name in arguments.names or known:
        started = time.monotonic()
        try:
            if name == FRAGMENTATION:
                seeds = arguments.seeds or (FULL_SEEDS if arguments.full else SEEDS)
                all_results: Iterable[Results] = (
                    through_scheduler(trace, seeds=seeds)
                    if arguments.scheduler
                    else fragmentation(trace, seeds=seeds, others=arguments.others, in_process=arguments.in_process)
                    for trace in chosen_traces(arguments.traces, arguments.trace)
                )
            else:
                all_results = [BENCHMARKS[name](arguments.full)]
            for results in all_results:
                console.print(results.table())
                if arguments.write:
                    _write(console, results)
        except ComponentsMissing as missing:
            console.print(f"{name}: {missing}\n", markup=False)
            continue
        console.print(f"{name} took {time.monotonic() - started:.0f} s\n")


if __name__ == "__main__":
    main()
