"""Run histories, add up their figures, and shorten those that break a law."""

from __future__ import annotations

import gc
import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace

from simulation.laws import LawBroken
from simulation.loop import Livelock
from simulation.plan import Plan, Step, make_plan
from simulation.world import World


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of one history.

    law       the name of the law that was broken; empty if all hold
    sentence  what was found
    figures   counts of what happened
    digest    of the whole history
    trace     its lines, if they were kept
    """

    seed: int
    law: str
    sentence: str
    figures: Mapping[str, float]
    digest: str
    trace: Sequence[str] = field(default=(), repr=False)


def run_plan(plan: Plan, *, keep_trace: bool = False) -> Outcome:
    """Run one history."""
    logger = logging.getLogger("gas")
    level, propagates = logger.level, logger.propagate
    logger.setLevel(logging.ERROR)
    logger.propagate = False
    # When objects are collected depends on all that ran before; a history must not.
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        world = World(plan, keep_trace=keep_trace)
        law = sentence = ""
        try:
            world.run()
        except LawBroken as broken:
            law, sentence = broken.law, broken.sentence
        except Livelock as endless:
            law, sentence = "time passes", str(endless)
        return Outcome(plan.seed, law, sentence, world.all_figures(), world.digest.hexdigest(), world.trace_lines or ())
    finally:
        gc.enable()
        logger.setLevel(level)
        logger.propagate = propagates


def run_seed(seed: int) -> Outcome:
    """Run the history of a seed."""
    return run_plan(make_plan(seed))


def run_seeds(seeds: Iterable[int], workers: int | None = None) -> Iterator[Outcome]:
    """Run the histories of many seeds in several processes, and yield their outcomes as they come, in order."""
    workers = workers or os.cpu_count() or 1
    if workers == 1:
        yield from map(run_seed, seeds)
        return
    with ProcessPoolExecutor(workers) as pool:
        yield from pool.map(run_seed, seeds, chunksize=4)


def shorten(plan: Plan, fails: Callable[[Plan], bool], patience: float = 300.0) -> Plan:
    """Return a plan with as few steps as possible that still fails, after at most ``patience`` seconds.

    Parts of the plan are left out, halves at first and single steps at the end.
    """
    until = time.monotonic() + patience
    steps: tuple[Step, ...] = plan.steps
    size = max(len(steps) // 2, 1)
    while True:
        at = 0
        shorter = False
        while at < len(steps) and time.monotonic() < until:
            tried = steps[:at] + steps[at + size :]
            if fails(replace(plan, steps=tried)):
                steps, shorter = tried, True
            else:
                at += size
        if time.monotonic() >= until or (size == 1 and not shorter):
            return replace(plan, steps=steps)
        if size > 1:
            size //= 2


def shorten_failure(seed: int) -> tuple[Plan, Outcome]:
    """Return the shortest plan found that breaks the same law as the history of a seed, and its outcome."""
    plan = make_plan(seed)
    law = run_plan(plan).law
    short = shorten(plan, lambda tried: run_plan(tried).law == law)
    return short, run_plan(short, keep_trace=True)
