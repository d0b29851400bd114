"""Run the histories of many seeds in other processes."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Generator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing
from typing import TYPE_CHECKING

from gas.values.errors import GasError
from simulation.planting import PlantedFault, plant

if TYPE_CHECKING:
    from simulation.run import Outcome

SEEDS_AT_A_TIME = 4


class WorkerEnded(GasError):
    """A process that ran histories was ended from outside, for example because the memory was full."""

    def __init__(self, seed: int) -> None:
        super().__init__(
            f"a process that ran histories was killed, so those from seed {seed} on are unknown. If memory is short, "
            f"continue with fewer processes: --first {seed} --workers 1"
        )


def run_noted(seed: int) -> Outcome:
    """Run the history of a seed. The notes of an exception say which history raised it."""
    from simulation.run import run_seed

    try:
        return run_seed(seed)
    except Exception as error:
        error.add_note(f"in the history of seed {seed}")
        raise


def run_day(seed: int) -> Outcome:
    """Run the day of a seed on one node."""
    from simulation.node_day import run_day

    return run_day(seed)


def run_seeds(
    seeds: range, workers: int, planted: PlantedFault | None = None, *, run: Callable[[int], Outcome] = run_noted
) -> Generator[Outcome, None, None]:
    """Yield the outcomes of the histories of seeds, in their order. Raises WorkerEnded and CannotPlant.

    The processes end when the iterator is closed, or when this process ends in any way. ``planted`` is planted in each.
    """
    if planted is not None:
        planted.changed()
    others = set(multiprocessing.active_children())
    # A fault must be planted before the product is imported, so the processes are fresh ones, not forks of this one.
    pool = ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), initializer=_prepare, initargs=(planted,))
    next_seed = seeds.start
    try:
        # Ctrl-C reaches all processes of a terminal; those that are started here keep it blocked.
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            # Not `map`: when it is interrupted it cancels what is left, and a thread of the pool then fails.
            parts = [
                pool.submit(_run_all, run, seeds[at : at + SEEDS_AT_A_TIME])
                for at in range(0, len(seeds), SEEDS_AT_A_TIME)
            ]
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        for part in parts:
            for outcome in part.result():
                next_seed = outcome.seed + 1
                yield outcome
    except BrokenProcessPool as error:
        raise WorkerEnded(next_seed) from error
    finally:
        for process in set(multiprocessing.active_children()) - others:
            process.kill()
        pool.shutdown()


def _run_all(run: Callable[[int], Outcome], seeds: range) -> list[Outcome]:
    return [run(seed) for seed in seeds]


def find(fault: PlantedFault, workers: int, run: Callable[[int], Outcome] = run_noted) -> Outcome | None:
    """Return the first broken history with a fault; None if none of its seeds finds it. Raises as `run_seeds`."""
    with closing(run_seeds(range(1, 1 + fault.within), workers, fault, run=run)) as outcomes:
        return next((outcome for outcome in outcomes if outcome.law), None)


def _prepare(planted: PlantedFault | None) -> None:
    threading.Thread(target=_end_with_parent, daemon=True).start()
    if planted is not None:
        plant(planted)


def _end_with_parent() -> None:
    if (parent := multiprocessing.parent_process()) is not None:
        parent.join()
        os._exit(1)
