"""Run days on one node, see `simulation.node_day`.

python -m simulation.days 100            # the days of 100 seeds
python -m simulation.days --planted      # plant faults in the product, and find them
"""

import sys
from contextlib import closing

from simulation.planted import NODE_DAY
from simulation.planting import PlantedFault
from simulation.workers import find, run_day, run_seeds


def main(arguments: list[str]) -> int:
    """Return the exit code: 1 if a law is broken, or a planted fault was not found."""
    if arguments == ["--planted"]:
        missed = [fault.name for fault in NODE_DAY if not _finds(fault)]
        print(f"{len(NODE_DAY) - len(missed)} of {len(NODE_DAY)} found")
        return bool(missed)
    is_broken = False
    with closing(run_seeds(range(1, 1 + int(arguments[0] if arguments else 20)), 2, run=run_day)) as outcomes:
        for each in outcomes:
            print(each.seed, each.law, each.sentence, dict(each.figures), flush=True)
            print("\n".join(each.trace if each.law else ()), end="")
            is_broken |= bool(each.law)
    return is_broken


def _finds(fault: PlantedFault) -> bool:
    found = find(fault, 1, run_day)
    result = "not found" if found is None else f"seed {found.seed}, {found.law}: {found.sentence}"
    print(f"{fault.name}: {result}", flush=True)
    return found is not None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
