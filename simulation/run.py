"""Run histories, add up their figures, and shorten those that break a law."""

import gc
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from simulation.history import History
from simulation.loop import Livelock
from simulation.observed import LawBroken
from simulation.plan import Plan, Step
from simulation.plans import make_plan

PATIENCE = 300.0  # most seconds of the search for a shorter history
REPEATED = 10.0  # virtual seconds in which equal lines of a history are printed once


@dataclass(frozen=True, slots=True)
class Outcome:
    seed: int
    law: str  # the name of the law that was broken; empty if all hold
    sentence: str
    figures: Mapping[str, float]  # counts of what happened
    digest: str  # of the whole history
    trace: Sequence[str] = field(default=(), repr=False)  # its lines, if they were recorded


@contextmanager
def quietly() -> Iterator[None]:
    """Run a history without the product's log, and without the collection of garbage.

    When garbage is collected depends on all that ran before; a history must not depend on that.
    """
    logger = logging.getLogger("gas")
    level, propagates = logger.level, logger.propagate
    logger.setLevel(logging.ERROR)
    logger.propagate = False
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        logger.setLevel(level)
        logger.propagate = propagates


def run_plan(plan: Plan, *, keep_trace: bool = False) -> Outcome:
    with quietly():
        history = History(plan, keep_trace=keep_trace)
        law = sentence = ""
        try:
            history.run()
        except LawBroken as broken:
            law, sentence = broken.law, broken.sentence
        except Livelock as endless:
            law, sentence = "time passes", str(endless)
        world = history.world
        return Outcome(plan.seed, law, sentence, history.figures(), world.digest.hexdigest(), world.trace_lines or ())


def run_seed(seed: int) -> Outcome:
    return run_plan(make_plan(seed))


def shorten(plan: Plan, fails: Callable[[Plan], bool]) -> Plan:
    """Return a plan with as few steps as possible that still fails, after at most `PATIENCE`.

    Parts of the plan are left out, halves at first and single steps at the end.
    """
    until = time.monotonic() + PATIENCE
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


def shorten_failure(plan: Plan, law: str) -> tuple[Plan, Outcome]:
    """Return the shortest plan found that breaks the same law as a plan, and its outcome."""
    short = shorten(plan, lambda tried: run_plan(tried).law == law)
    return short, run_plan(short, keep_trace=True)


def readable(plan: Plan, trace: Sequence[str]) -> Iterator[str]:
    """Yield the lines of a history for people: what kind of cluster it is, then what happens.

    A line whose text came less than `REPEATED` seconds before is left out, such as renewals of the Lease.
    """
    nodes = (f"n{index} ({', '.join(f'card{card}' for card in cards)})" for index, cards in enumerate(plan.nodes))
    yield f"nodes: {', '.join(nodes)}"
    kinds = {
        "webhooks": plan.webhooks,
        "device plugins": plan.plugins,
        "pods of several systems": plan.mixed,
        "preemption": plan.preemption,
        f"pages of {plan.page} objects": plan.page,
        "a scheduler that tries refused pods again and again": plan.eager,
        f"the scenario {plan.scenario}": plan.scenario,
        **dict.fromkeys(sorted(plan.features), True),
    }
    yield f"with: {', '.join(kind for kind, holds in kinds.items() if holds) or 'nothing special'}"
    last: dict[str, float] = {}
    left_out = 0
    for line in trace:
        time, _, text = line.strip().partition(" ")
        if float(time) - last.get(text, -REPEATED) >= REPEATED:
            yield line
        else:
            left_out += 1
        last[text] = float(time)
    if left_out:
        yield f"{left_out} lines that say the same as one in the {REPEATED:.0f} s before are left out"
