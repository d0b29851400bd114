"""``python -m benchmarks [NAME …] [--full] [--write]``: the benchmarks, as tables of ratios."""

import argparse
import time
from collections.abc import Callable, Iterable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from rich.console import Console

from benchmarks.fragmentation import Others, chosen_traces, fragmentation
from benchmarks.processes import seconds_of_others
from benchmarks.real_cluster import ComponentsMissing
from benchmarks.results import NoPlaceOnThePage, Results, write
from benchmarks.scheduler_replay import through_scheduler

_ALL = {
    "filter": "filter.warm",
    "prioritize": "filter.prioritize",
    "vocabularies": "filter.vocabularies",
    "shapes": "filter.shapes",
    "growth": "growth.growth",
    "start-growth": "growth.start_growth",
    "pod-groups": "pod_groups.pod_groups",
    "placement": "placement.placement",
    "churn": "churn.churn",
    "bind": "bind.bind",
    "bind-review": "bind_review.bind_review",
    "scheduling": "scheduling.scheduling",
    "ordinary": "scheduling.ordinary",
    "admission": "admission.admission",
    "cold-start": "cold_start.cold_start",
    "plugin": "plugin.plugin",
    "many-ids": "many_ids.many_ids",
    "usage": "usage.usage",
    "page": "inspection.page",
}
"""Name -> module and function of the measurement."""

BENCHMARKS = {name: place for name, place in _ALL.items() if find_spec(f"benchmarks.{place.partition('.')[0]}")}
"""Those whose module is there: the measurement of an optional part goes with the part."""

WITH_FULL_SIZE = {"scheduling", "cold-start"}

FRAGMENTATION = "fragmentation"
"""A measurement with results for each trace."""

SEEDS, FULL_SEEDS = 2, 10


def measured(name: str, *, full: bool) -> Results:
    """Return the results of one of BENCHMARKS, in its full size if it has one and it is asked for."""
    module, _, function = BENCHMARKS[name].partition(".")
    measure: Callable[..., Results] = getattr(import_module(f"benchmarks.{module}"), function)
    return measure(full=full) if name in WITH_FULL_SIZE else measure()


def _write(console: Console, results: Results) -> None:
    try:
        write(results)
    except NoPlaceOnThePage as error:  # a trace of the user's own
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
        started, others = time.monotonic(), seconds_of_others()
        try:
            if name == FRAGMENTATION:
                seeds = arguments.seeds or (FULL_SEEDS if arguments.full else SEEDS)
                all_results: Iterable[Results] = (
                    through_scheduler(trace, seeds=seeds)
                    if arguments.scheduler
                    else fragmentation(trace, seeds=seeds, others=arguments.others)
                    for trace in chosen_traces(arguments.traces, arguments.trace)
                )
            else:
                all_results = [measured(name, full=arguments.full)]
            for found in all_results:
                results = found.measured_beside((seconds_of_others() - others) / (time.monotonic() - started))
                console.print(results.table())
                if arguments.write:
                    _write(console, results)
        except ComponentsMissing as missing:
            console.print(f"{name}: {missing}\n", markup=False)
            continue
        console.print(f"{name} took {time.monotonic() - started:.0f} s\n")


if __name__ == "__main__":
    main()
