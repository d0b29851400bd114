"""Change functions in small ways and run their fast tests: ``python -m scripts.mutants --help``.

mutmut makes the mutants. A fork plants each one and runs the tests that enter its function; see docs/development.md.
"""

from __future__ import annotations

import argparse
import difflib
import gc
import hashlib
import importlib
import inspect
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from multiprocessing.connection import Connection
from pathlib import Path
from types import CodeType, FrameType, FunctionType

import libcst
import pytest
from hypothesis import Phase, settings
from mutmut.mutation.file_mutation import create_mutations

EQUIVALENT = Path("tests/equivalent_mutants.txt")
PACKAGES = {
    "ledger": "gas/ledger/ledger.py tests/ledger/test_ledger.py",
    "placement": "gas/placement tests/placement"
    " --ignore=tests/placement/test_laws.py --ignore=tests/placement/test_pairs_of_rules.py",  # they take minutes
    "decider": "gas/extender/decider.py gas/extender/verdicts.py gas/extender/pods.py gas/extender/bind.py"
    " tests/extender/test_filter.py tests/extender/test_bind.py tests/extender/test_settling.py"
    " tests/extender/test_pods.py tests/extender/test_verdicts.py tests/extender/test_company.py"
    " tests/extender/test_ratios.py tests/extender/test_decisions.py tests/extender/test_host_resources.py"
    " tests/extender/test_unknown_memory.py tests/extender/test_nodes.py tests/extender/test_assembly.py"
    " tests/extender/test_gauges.py tests/extender/test_pending_binds.py"
    " tests/extender/test_node_states.py tests/extender/pod_webhooks tests/extender/explanations"
    " tests/extender/binding_reviews tests/extender/preemption tests/extender/scoring"
    " tests/extender/telemetry/test_descheduler.py tests/vocabularies/kubeshare/test_extender.py"
    " tests/vocabularies/aliyun/test_extender.py",
    "bookings": "gas/extender/bookings.py gas/extender/promises.py gas/extender/late_bindings.py gas/extender/filter.py"
    " gas/extender/readiness.py gas/extender/selected_nodes.py"
    " tests/extender/test_bookings.py tests/extender/test_promises.py tests/extender/test_settling.py"
    " tests/extender/test_late_bindings.py tests/extender/test_pending_binds.py tests/extender/test_filter.py"
    " tests/extender/test_readiness.py tests/extender/test_assembly.py tests/extender/leadership"
    " tests/extender/preemption tests/extender/binding_reviews tests/extender/pod_groups",
    "pod_groups": "gas/extender/pod_groups tests/extender/pod_groups",
    "reviews": "gas/extender/binding_reviews tests/extender/binding_reviews tests/extender/preemption/test_verb.py",
    "preemption": "gas/ledger/victims.py gas/ledger/eviction_cost.py gas/extender/preemption"
    " tests/ledger/test_victims.py tests/extender/preemption",
    "matching": "gas/plugin/matching tests/plugin/matching",
    "receipts": "gas/plugin/receipts tests/plugin/receipts",
    "vocabularies": "gas/vocabularies tests/vocabularies tests/extender/sharepods/test_controller.py"
    " tests/plugin/devices/test_device_lists.py",
}
"""The code that is changed, and the tests that must find it."""

OPTIONS = "-n0 --assert=plain -p no:cacheprovider -p no:terminal --import-mode=importlib --hypothesis-profile=mutants"
Place = tuple[str, int]  # the file and first line of a function
Run = tuple[float, set[Place]]  # processor time, and the functions that were entered
Mutant = tuple[str, set[Place], list[tuple[FunctionType, CodeType]]]  # the change, its places, and functions' new code
FORK = multiprocessing.get_context("fork")


def change_of(before: str, after: str) -> str:
    """Return the changed lines without their indentation: ``before -> after``."""
    lines = list(difflib.unified_diff(before.splitlines(), after.splitlines(), n=0))[2:]
    return " -> ".join(" ".join(line[1:].strip() for line in lines if line[0] == side) for side in "-+")


def pairs_of(before: CodeType, after: CodeType) -> Iterator[tuple[CodeType, CodeType]]:
    """Yield a module and each function in it, with its changed form."""
    yield before, after
    inside = [[each for each in code.co_consts if isinstance(each, CodeType)] for code in (before, after)]
    if len(inside[0]) == len(inside[1]):
        for pair in zip(*inside, strict=True):
            yield from pairs_of(*pair)


class Trials:
    """A plugin for pytest that tries mutants where pytest would run the tests once."""

    def __init__(self, files: list[Path], seed: int, most: int) -> None:
        self.files, self.seed, self.most = files, seed, most
        self.results = defaultdict[str, list[str]](list)

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        for path in self.files:
            importlib.import_module(".".join(path.with_suffix("").parts))
        self.functions = defaultdict[CodeType, list[FunctionType]](list)
        for each in gc.get_objects():
            if isinstance(each, FunctionType) and str(each.__module__).startswith("gas."):
                self.functions[each.__code__].append(each)
        with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
            runs = zip(session.items, pool.map(lambda item: self.run([item]), session.items), strict=True)
            self.runs = {
                item: run or self.run([item]) or sys.exit(f"{item.nodeid} fails without a mutant") for item, run in runs
            }
            list(pool.map(self.attempt, islice(self.mutants(), self.most)))
        return True

    def pytest_runtest_makereport(self, call: pytest.CallInfo[object]) -> None:
        if call.excinfo and not call.excinfo.errisinstance(pytest.skip.Exception):
            os._exit(1)

    def mutants(self) -> Iterator[Mutant]:
        """Yield mutants of functions, unless known as equivalent, in the order of the seed."""
        found, equivalent = {}, EQUIVALENT.read_text().splitlines()
        for path in self.files:
            module, mutations, *_ = create_mutations(str(path), path.read_text())
            for at, each in enumerate(mutations):
                found[hashlib.sha256(f"{self.seed} {path} {at}".encode()).digest()] = path, module, each
        for _, (path, module, each) in sorted(found.items()):
            texts = path.read_text(), module.code_for_node(module.deep_replace(each.original_node, each.mutated_node))
            # Texts are tested with the documents, and how strict `zip` is matters only to mistakes.
            is_text = isinstance(each.original_node, libcst.BaseString | libcst.FormattedStringText)
            if is_text or any(texts[0].count(each) > texts[1].count(each) for each in ("strict=True", "strict=False")):
                continue
            pairs = list(pairs_of(*(compile(text, path.resolve(), "exec", dont_inherit=True) for text in texts)))
            # Functions that only begin on another line are not changed.
            alike = (pair for pair in pairs if pair[0].co_firstlineno == pair[1].co_firstlineno)
            changed = [old for old, new in alike if old != new and old.co_flags & inspect.CO_OPTIMIZED]
            codes = [(function, new) for old, new in pairs for function in self.functions[old]]
            can_plant = all(len(function.__code__.co_freevars) == len(new.co_freevars) for function, new in codes)
            if not (each.contained_by_top_level_function and changed and can_plant):
                self.results["outside functions"].append(str(path))
            elif (change := f"{path} {changed[0].co_qualname}: {change_of(*texts)}") in equivalent:
                self.results["equivalent"].append(change)
            else:
                yield change, {(old.co_filename, old.co_firstlineno) for old in changed}, codes

    def attempt(self, mutant: Mutant) -> None:
        items = [item for item, (_, entered) in self.runs.items() if entered & mutant[1]]
        passed = self.run(sorted(items, key=lambda item: self.runs[item][0]), mutant)
        self.results["survived" if passed else "killed"].append(mutant[0])

    def run(self, items: list[pytest.Item], mutant: Mutant | None = None) -> Run | None:
        """Run tests in a fork until one fails or takes much longer than without a mutant: then return None."""
        receiver, sender = FORK.Pipe(duplex=False)
        process = FORK.Process(target=self._run, args=(items, mutant, sender))
        process.start()
        sender.close()
        try:
            return receiver.recv()  # type: ignore[no-any-return]
        except EOFError:
            return None
        finally:
            process.kill()
            process.join()

    def _run(self, items: list[pytest.Item], mutant: Mutant | None, sender: Connection) -> None:
        entered: set[Place] = set()

        def enter(frame: FrameType, _event: str, _argument: object) -> None:
            entered.add((frame.f_code.co_filename, frame.f_code.co_firstlineno))

        if mutant:
            for function, code in mutant[2]:
                function.__code__ = code
        else:
            threading.settrace(enter)
            sys.settrace(enter)
        for item, following in zip(items, [*items[1:], None], strict=False):
            seconds = 5 + 5 * self.runs[item][0] if mutant else 600.0
            signal.setitimer(signal.ITIMER_PROF, seconds)
            signal.setitimer(signal.ITIMER_REAL, 20 * seconds)
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        sender.send((time.process_time(), entered))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m scripts.mutants", description="Run tests on changed functions.")
    parser.add_argument("--package", action="append", choices=PACKAGES, help="all by default")
    parser.add_argument("--seed", type=int, default=1, help="of the order in which mutants are tried; 1 by default")
    parser.add_argument("--most", type=int, default=25, help="mutants of each package; 25 by default")
    arguments = parser.parse_args()
    settings.register_profile("mutants", deadline=None, derandomize=True, phases=[Phase.explicit, Phase.generate])
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # all threads end at once
    for package in arguments.package or PACKAGES:
        words = PACKAGES[package].split()
        tops = [Path(word) for word in words if word.startswith("gas/")]
        files = [path for top in tops for path in sorted(top.rglob("*.py")) or [top]]
        trials = Trials(files, arguments.seed, arguments.most)
        if code := pytest.main([*OPTIONS.split(), "-o", "addopts=", *words[len(tops) :]], plugins=[trials]):
            sys.exit(code)
        kinds = ("killed", "survived", "equivalent", "outside functions")
        sys.stdout.write(f"{package}: {', '.join(f'{len(trials.results[kind])} {kind}' for kind in kinds)}\n")
        sys.stdout.writelines(f"  {change}\n" for change in trials.results["survived"])


if __name__ == "__main__":
    main()
