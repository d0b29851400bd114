"""``python -m simulation``: histories of the whole system in virtual time; see docs/simulation.md."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter

DEFAULT_SEEDS = 300
"""Histories of a run without arguments."""


def main() -> int:
    """Run what the command line asks for. Return 1 if a law was broken or a planted fault was not found."""
    parser = argparse.ArgumentParser(prog="python -m simulation", description="Seeded histories of the whole system.")
    parser.add_argument("--seeds", type=int, default=DEFAULT_SEEDS, metavar="N", help="run N histories")
    parser.add_argument("--first", type=int, default=1, metavar="SEED", help="the first seed; 1 by default")
    parser.add_argument("--seed", type=int, metavar="SEED", help="run one history, and shorten it if it breaks a law")
    parser.add_argument("--trace", action="store_true", help="with --seed: print the history")
    parser.add_argument("--workers", type=int, metavar="N", help="processes; as many as processors by default")
    parser.add_argument("--plant", metavar="NAME", help="plant a fault in the product, and stop when it is found")
    parser.add_argument("--planted", nargs="*", metavar="NAME", help="find planted faults, all of them by default")
    parser.add_argument("--terse", action="store_true", help="print only seeds that break a law")
    arguments = parser.parse_args()
    if arguments.plant:
        from simulation.planted import plant

        plant(arguments.plant)
    if arguments.planted is not None:
        return _find_planted(arguments.planted)
    if arguments.seed is not None:
        return _one(arguments.seed, trace=arguments.trace)
    seeds = range(arguments.first, arguments.first + arguments.seeds)
    return _many(seeds, arguments.workers, stop=bool(arguments.plant), terse=arguments.terse)


def _one(seed: int, *, trace: bool) -> int:
    from simulation.plan import make_plan
    from simulation.run import run_plan, shorten_failure

    outcome = run_plan(make_plan(seed), keep_trace=True)
    if trace:
        print("\n".join(outcome.trace))
    print(f"seed {seed}: history {outcome.digest}")
    if not outcome.law:
        return 0
    print(f"broken {seed} {outcome.law}: {outcome.sentence}")
    if not trace:
        plan, short = shorten_failure(seed)
        print(f"the shortest history found that breaks the same law has {len(plan.steps)} steps:\n")
        print("\n".join(short.trace))
    return 1


def _many(seeds: range, workers: int | None, *, stop: bool, terse: bool) -> int:
    from simulation.run import run_seeds

    figures: Counter[str] = Counter()
    broken = 0
    started = time.monotonic()
    for count, outcome in enumerate(run_seeds(seeds, workers), 1):
        figures.update(outcome.figures)
        if outcome.law:
            broken += 1
            print(f"broken {outcome.seed} {outcome.law}: {outcome.sentence}", flush=True)
            if stop:
                return 1
        if not terse and count % 500 == 0:
            print(f"{count} histories after {time.monotonic() - started:.0f} s", flush=True)
    if not terse:
        seconds = time.monotonic() - started
        processes = workers or os.cpu_count()
        print(f"{len(seeds)} histories, {broken} of them broken, in {seconds:.0f} s with {processes} processes")
        for name, amount in figures.items():
            print(f"{amount:>16,.0f} {name}")
        print(f"{figures['virtual seconds'] / 3600:>16,.1f} virtual hours")
    return 1 if broken else 0


def _find_planted(names: list[str]) -> int:
    from simulation.planted import PLANTED, find

    missed = 0
    for fault in PLANTED:
        if names and fault.name not in names:
            continue
        found = find(fault)
        missed += found is None
        seeds, law = found if found is not None else ("not found", "")
        print(f"| {fault.name} | {seeds} | {fault.within} | {law.partition(':')[0]} |", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
