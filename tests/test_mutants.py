"""The lists that `make mutants` reads are those of the code."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.mutants import EQUIVALENT, PACKAGES, change_of

ROOT = Path(__file__).parents[1]
LISTED = (ROOT / EQUIVALENT).read_text().splitlines()


@pytest.mark.parametrize("package", PACKAGES)
def test_files_and_tests_of_a_package_exist(package: str) -> None:
    missing = [word for word in PACKAGES[package].split() if not (ROOT / word.removeprefix("--ignore=")).exists()]
    assert missing == []


def test_a_change_is_named_by_its_lines() -> None:
    assert change_of("a = 1\nif a:\n    b = 2\n", "a = 1\nif a:\n    b = 3\n") == "b = 2 -> b = 3"


def test_equivalent_mutants_change_code_that_exists_and_have_a_reason() -> None:
    for mutant, reason in zip(LISTED[::2], LISTED[1::2], strict=True):
        place, _, change = mutant.partition(": ")
        path, _, function = place.partition(" ")
        code = " ".join(line.strip() for line in (ROOT / path).read_text().splitlines())
        assert f"def {function.rpartition('.')[2]}(" in code, mutant
        assert change.partition(" -> ")[0] in code, mutant
        assert reason.startswith("    "), mutant
        assert reason.endswith("."), mutant
