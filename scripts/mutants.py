"""Change the code in small ways and run its fast tests: ``python -m scripts.mutants --help``; see docs/development.md.

mutmut makes the mutants. Each is planted while its module is imported, in a process of its own, so no file changes.
"""

from __future__ import annotations

import argparse
import difflib
import hashlib
import math
import multiprocessing
import os
import resource
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib.machinery import SourceFileLoader
from itertools import chain, zip_longest
from multiprocessing.sharedctypes import Synchronized
from pathlib import Path
from types import CodeType
from typing import Any

EQUIVALENT = Path("tests/equivalent_mutants.txt")
PACKAGES = {
    "ledger": "gas/ledger/ledger.py tests/ledger/test_ledger.py",
    "placement": "gas/placement tests/placement"
    " --ignore=tests/placement/test_laws.py --ignore=tests/placement/test_pairs_of_rules.py",  # they take minutes
    "decider": "gas/extender/decider.py gas/extender/verdicts.py gas/extender/pods.py gas/extender/bind.py"
    " tests/extender/test_filter.py tests/extender/test_bind.py tests/extender/test_settling.py"
    " tests/extender/test_pods.py tests/extender/test_verdicts.py"
    " tests/extender/test_company.py tests/extender/test_ratios.py tests/extender/test_decisions.py"
    " tests/extender/binding_reviews tests/extender/preemption tests/extender/test_host_resources.py"
    " tests/extender/test_unknown_memory.py tests/extender/test_nodes.py tests/extender/scoring"
    " tests/extender/telemetry/test_descheduler.py"
    " tests/extender/test_assembly.py tests/vocabularies/kubeshare/test_extender.py",
    "reviews": "gas/extender/binding_reviews gas/extender/late_bindings.py"
    " tests/extender/binding_reviews tests/extender/test_late_bindings.py tests/extender/preemption/test_verb.py",
    "preemption": "gas/ledger/victims.py gas/ledger/eviction_cost.py gas/extender/preemption"
    " tests/ledger/test_victims.py tests/extender/preemption",
    "matching": "gas/plugin/matching tests/plugin/matching",
    "receipts": "gas/plugin/receipts tests/plugin/receipts",
    "vocabularies": "gas/vocabularies tests/vocabularies",
}
"""The code that is changed, and the tests that must find it."""

Mutant = tuple[str, Path, Callable[[], Any]]  # the package, the file, and a function that returns its changed module


def words_of(package: str, *, tests: bool) -> list[str]:
    """Return the files and folders of a package, or the arguments that run its tests."""
    return [word for word in PACKAGES[package].split() if word.startswith("gas/") != tests]


def mutants_of(package: str, seed: int) -> list[Mutant]:
    """Return all mutants of a package in the order of a seed."""
    import libcst
    from mutmut.mutation.file_mutation import create_mutations

    found: dict[str, Mutant] = {}
    for top in map(Path, words_of(package, tests=False)):
        for path in sorted(top.rglob("*.py")) or [top]:
            module, mutations, *_ = create_mutations(str(path), path.read_text())
            for at, each in enumerate(mutations):
                # Texts are tested with the documents, and `zip` is strict to find mistakes early.
                is_text = isinstance(each.original_node, libcst.BaseString | libcst.FormattedStringText)
                if not is_text and "strict=True" not in module.code_for_node(each.original_node):
                    order = hashlib.sha256(f"{seed} {path} {at}".encode()).hexdigest()
                    found[order] = package, path, partial(module.deep_replace, each.original_node, each.mutated_node)
    return [found[order] for order in sorted(found)]


def change_of(before: str, after: str) -> str:
    """Return the changed lines without their indentation: ``before -> after``."""
    lines = list(difflib.unified_diff(before.splitlines(), after.splitlines(), n=0))[2:]
    return " -> ".join(" ".join(line[1:].strip() for line in lines if line[0] == side) for side in "-+")


def seconds_to_pass(package: str, path: Path, code: str, most: float = 600.0) -> float:
    """Return the processor time in which the tests of a package pass with this code in the place of a file, else 0."""
    context = multiprocessing.get_context("forkserver")
    used = context.Value("d", 0.0)
    given = (str(path.resolve()), code, words_of(package, tests=True), math.ceil(most), used)
    run = context.Process(target=_test, args=given, daemon=True)
    run.start()
    run.join(20 * most)
    run.kill()
    return float(used.value)


def _test(path: str, code: str, tests: list[str], most: int, used: Synchronized[float]) -> None:
    import pytest

    get_code = SourceFileLoader.get_code

    def with_mutant(loader: SourceFileLoader, name: str) -> CodeType | None:
        return compile(code, path, "exec") if loader.path == path else get_code(loader, name)

    SourceFileLoader.get_code = with_mutant  # type: ignore[method-assign, assignment]
    resource.setrlimit(resource.RLIMIT_CPU, (most, most))
    os.environ["CI"] = "1"  # the same examples each time
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    os.dup2(1, 2)
    if pytest.main(["-x", "-n0", "--assert=plain", "-p", "no:cacheprovider", *tests]) == 0:
        used.value = time.process_time()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m scripts.mutants", description="Run tests on changed code.")
    parser.add_argument("--package", action="append", choices=PACKAGES, help="all by default")
    parser.add_argument("--seed", type=int, default=1, help="of the order in which mutants are tried; 1 by default")
    parser.add_argument("--minutes", type=float, default=10.0, help="10 by default; inf tries all, for hours")
    arguments = parser.parse_args()
    packages = arguments.package or list(PACKAGES)
    # Pytest is imported once. The code under test is not, because each mutant is another.
    multiprocessing.set_forkserver_preload(["pytest", "hypothesis.stateful", "pytest_asyncio.plugin", "xdist.plugin"])
    seconds = {package: seconds_to_pass(package, Path(), "") for package in packages}
    if not all(seconds.values()):
        sys.exit(f"tests fail without a mutant; seconds of each package: {seconds}")
    until = time.monotonic() + 60 * arguments.minutes
    equivalent = {line for line in EQUIVALENT.read_text().splitlines() if line.startswith("gas/")}
    counts = Counter[tuple[str, str]]()
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # all threads end at once

    def attempt(mutant: Mutant) -> None:
        if time.monotonic() >= until:
            return
        package, path, make = mutant
        change = f"{path}: {change_of(path.read_text(), code := make().code)}"
        if change in equivalent:
            counts[package, "equivalent"] += 1
        elif seconds_to_pass(package, path, code, 10.0 + 3 * seconds[package]):
            counts[package, "survived"] += 1
            sys.stdout.write(f"{change}\n")
        else:
            counts[package, "killed"] += 1

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        mutants = chain.from_iterable(zip_longest(*(mutants_of(each, arguments.seed) for each in packages)))
        list(pool.map(attempt, filter(None, mutants)))
    sys.stdout.write("| package | killed | survived | equivalent | score |\n|---|---:|---:|---:|---:|\n")
    for package in packages:
        killed, survived, same = (counts[package, each] for each in ("killed", "survived", "equivalent"))
        score = killed / max(killed + survived, 1)
        sys.stdout.write(f"| {package} | {killed} | {survived} | {same} | {score:.0%} |\n")


if __name__ == "__main__":
    main()
