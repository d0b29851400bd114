"""Explore the model of the protocol: ``python -m simulation.protocol``; see docs/simulation.md."""

import argparse
import sys
import time

from simulation.protocol.explorer import Explorer, Result
from simulation.protocol.model import PLANTED, Rules


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m simulation.protocol",
        description="Visit every state of the protocol's model, and print the shortest trace that breaks a law.",
        epilog="exit codes: 0 all states keep the laws, or every planted fault breaks one; 1 otherwise",
    )
    for name, default in (("pods", 3), ("nodes", 1), ("replicas", 2)):
        parser.add_argument(f"--{name}", type=int, choices=range(1, 5), default=default, help=f"{default} by default")
    parser.add_argument("--planted", action="store_true", help="explore the planted faults")
    arguments = parser.parse_args()
    size = {"pods": arguments.pods, "nodes": arguments.nodes, "replicas": arguments.replicas}
    missed = False
    for name, rules in (PLANTED if arguments.planted else {"": Rules()}).items():
        started = time.monotonic()
        result = Explorer(rules, **size).explore()
        missed |= bool(result.law) != bool(name)
        print(*_report(name, result, time.monotonic() - started), sep="\n", flush=True)
    return 1 if missed else 0


def _report(name: str, result: Result, seconds: float) -> list[str]:
    title = f"{name}: " if name else ""
    end = f"broken law: {result.law}" if result.law else "all states keep the laws"
    counts = f"{result.states:,} states, {result.depth} steps deep, {seconds:.0f} s"
    return [f"{title}{end} ({counts})", *(f"    {step}" for step in result.trace)]


if __name__ == "__main__":
    sys.exit(main())
