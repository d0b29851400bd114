"""Run histories of the whole system in virtual time: ``python -m simulation``; see docs/simulation.md."""

import argparse
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing

from gas.daemon.command import INTERRUPTED, interrupt_on_signals, quiet_end_on_signals
from gas.values.errors import GasError
from simulation.planted import PLANTED, planted_fault
from simulation.planting import PlantedFault, plant

PROGRAM = "python -m simulation"

DEFAULT_SEEDS = 600

UNREAD = 128 + signal.SIGPIPE  # exit code of a program whose reader has gone away, as with ``| head``

_DESCRIPTION = """\
Run histories of the whole system in virtual time, and check laws after every step. All that is left to chance in a
history comes from its seed. See docs/simulation.md."""

_EPILOG = f"""\
examples:
  {PROGRAM}                              # {DEFAULT_SEEDS} histories, from seed 1 on
  {PROGRAM} --first 301 --seeds 10000    # other ones
  {PROGRAM} --seed 24                    # one; if it breaks a law, the shortest one found that does
  {PROGRAM} --seed 24 --trace            # print the history
  {PROGRAM} --seed 1 --large             # 15,000 nodes with 60,000 GPU pods
  {PROGRAM} --plant "no receipts" --seed 78
  {PROGRAM} --planted                    # find each planted fault
  {PROGRAM} --planted "no receipts" "book in filter"

exit codes: 0 all laws hold, or each planted fault was found; 1 a law is broken, a planted fault was not found, or the
run failed; 2 wrong usage; 130 interrupted; 141 the reader of the output ended."""


class _CannotWrite(Exception):
    """Standard output cannot be written."""


def main(argv: Sequence[str] | None = None) -> int:
    arguments = _parsed(argv)
    with interrupt_on_signals(signal.SIGINT, signal.SIGTERM):
        try:
            return _run(arguments)
        except KeyboardInterrupt as interrupt:
            reached = f" after {interrupt}" if str(interrupt) else ""
            sys.stderr.write(f"{PROGRAM}: interrupted{reached}\n")
            return INTERRUPTED
        except GasError as error:
            sys.stderr.write(f"{PROGRAM}: {error}\n")
            return error.exit_code
        except _CannotWrite as error:
            if isinstance(error.__cause__, BrokenPipeError):
                return UNREAD
            sys.stderr.write(f"{PROGRAM}: cannot write to standard output: {error}; the run ends here\n")
            return 1


def _parsed(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog=PROGRAM,
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--seeds", type=_count, metavar="N", help=f"run N histories; {DEFAULT_SEEDS} by default")
    parser.add_argument("--first", type=_seed, metavar="SEED", help="the first seed; 1 by default")
    parser.add_argument("--workers", type=_count, metavar="N", help="processes; as many as processors by default")
    parser.add_argument(
        "--terse", action="store_true", help="print only seeds that break a law, no progress and no figures"
    )
    parser.add_argument("--seed", type=_seed, metavar="SEED", help="run one history, and shorten it if it breaks a law")
    parser.add_argument("--trace", action="store_true", help="with --seed: print the history, and do not shorten it")
    parser.add_argument(
        "--large", action="store_true", help="with --seed: 15,000 nodes with 60,000 GPU pods, which takes minutes"
    )
    parser.add_argument(
        "--plant", type=_fault, metavar="NAME", help="plant a fault in the product, and stop when it is found"
    )
    parser.add_argument(
        "--planted", type=_fault, nargs="*", metavar="NAME", help="find planted faults, all of them by default"
    )
    arguments = parser.parse_args(argv)
    many = _given(arguments, "--seeds", "--first", "--workers", "--terse")
    if arguments.planted is not None and (others := [*many, *_given(arguments, "--seed", "--trace", "--plant")]):
        parser.error(f"--planted knows its seeds; leave out {' and '.join(others)}")
    if arguments.seed is not None and many:
        parser.error(f"--seed runs one history; leave out {' and '.join(many)}")
    if arguments.seed is None and (single := _given(arguments, "--trace", "--large")):
        parser.error(f"{' and '.join(single)}: only for one history; add --seed")
    return arguments


def _given(arguments: argparse.Namespace, *options: str) -> list[str]:
    """Return which of the options are on the command line."""
    values = ((each, getattr(arguments, each[2:])) for each in options)
    return [each for each, value in values if value is not None and value is not False]


def _count(text: str) -> int:
    return _whole(text, "a whole number from 1 on", 1)


def _seed(text: str) -> int:
    return _whole(text, "a whole number from 0 on", 0)


def _whole(text: str, expected: str, least: int) -> int:
    if not (text.isascii() and text.isdigit() and int(text) >= least):
        raise argparse.ArgumentTypeError(f"expected {expected}, found {text!r}")
    return int(text)


def _fault(name: str) -> PlantedFault:
    try:
        return planted_fault(name)
    except GasError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _run(arguments: argparse.Namespace) -> int:
    if arguments.planted is not None:
        return _find_planted(arguments.planted or PLANTED)
    if arguments.seed is not None:
        # An interrupt is an exception, and a history that it passes through may never end.
        with quiet_end_on_signals():
            return _one(arguments.seed, arguments.plant, trace=arguments.trace, large=arguments.large)
    first = 1 if arguments.first is None else arguments.first
    seeds = range(first, first + (arguments.seeds or DEFAULT_SEEDS))
    return _many(seeds, arguments.workers or os.cpu_count() or 1, arguments.plant, terse=arguments.terse)


def _print(*lines: str) -> None:
    """Write lines to standard output at once. Raises _CannotWrite."""
    try:
        print("\n".join(lines), flush=True)
    except OSError as error:
        # What is left in the buffer would fail a second time at the end of the program.
        sys.stdout = open(os.devnull, "w")  # noqa: PTH123, SIM115 -- it is for the rest of the program
        raise _CannotWrite(error.strerror or str(error)) from error


def _figures(figures: Mapping[str, float]) -> Iterator[str]:
    return (f"{amount:>16,.0f} {name}" for name, amount in figures.items())


def _one(seed: int, planted: PlantedFault | None, *, trace: bool, large: bool) -> int:
    if planted is not None:
        plant(planted)
    from simulation.plans import make_large_plan, make_plan
    from simulation.run import PATIENCE, readable, run_plan, shorten_failure

    plan = make_large_plan(seed) if large else make_plan(seed)
    outcome = run_plan(plan, keep_trace=trace)
    if trace:
        _print(*readable(plan, outcome.trace))
    _print(f"seed {seed}: history {outcome.digest}", *(_figures(outcome.figures) if large else ()))
    if not outcome.law:
        return 0
    _print(f"broken {seed} {outcome.law}: {outcome.sentence}")
    if not (trace or large):
        _print(f"looking for a shorter history that breaks the same law, for {PATIENCE:.0f} s at most")
        plan, short = shorten_failure(plan, outcome.law)
        steps = "1 step" if len(plan.steps) == 1 else f"{len(plan.steps)} steps"
        _print(f"the shortest history found that breaks the same law has {steps}:\n", *readable(plan, short.trace))
    return 1


def _many(seeds: range, workers: int, planted: PlantedFault | None, *, terse: bool) -> int:
    from simulation.workers import run_seeds

    figures: Counter[str] = Counter()
    count = broken = example = 0
    started = time.monotonic()

    def summary() -> str:
        return f"{count} histories, {broken} of them broken, in {time.monotonic() - started:.0f} s"

    with closing(run_seeds(seeds, workers, planted)) as outcomes:
        try:
            for count, outcome in enumerate(outcomes, 1):
                figures.update(outcome.figures)
                if outcome.law:
                    broken, example = broken + 1, outcome.seed
                    _print(f"broken {outcome.seed} {outcome.law}: {outcome.sentence}")
                    if planted is not None:
                        return 1
                if not terse and count % 500 == 0:
                    _print(summary())
        except KeyboardInterrupt:
            raise KeyboardInterrupt(summary()) from None
    if not terse:
        _print(f"{summary()} with {'1 process' if workers == 1 else f'{workers} processes'}")
        _print(*_figures(figures))
        _print(f"{figures['virtual seconds'] / 3600:>16,.1f} virtual hours")
        if broken:
            _print(f'for the shortest history that breaks the law: make simulate ARGS="--seed {example}"')
    return 1 if broken else 0


def _find_planted(faults: Sequence[PlantedFault]) -> int:
    from simulation.workers import find

    missed = 0
    _print("| planted fault | found by seed | within | broken law |", "|---|---:|---:|---|")
    for fault in faults:
        found = find(fault, os.cpu_count() or 1)
        missed += found is None
        seed, law = (found.seed, found.law) if found is not None else ("not found", "")
        _print(f"| {fault.name} | {seed} | {fault.within} | {law} |")
    if missed:
        sys.stderr.write(
            f"{PROGRAM}: {missed} of {len(faults)} planted faults were not found within the seeds that "
            "simulation/planted.py states; make histories that show them, or state more seeds there\n"
        )
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
