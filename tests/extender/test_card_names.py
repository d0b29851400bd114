"""Names that are made up for cards."""

from __future__ import annotations

import pytest

from gas.extender.decider import random_name


@pytest.mark.parametrize(("part", "name"), [(0.0, "aaaaa"), (0.5, "nnnnn"), (1.0, "zzzzz")])
def test_a_name_comes_from_the_chance_that_is_passed_in(part: float, name: str) -> None:
    assert random_name(lambda low, high: low + (high - low) * part) == name


def test_names_differ() -> None:
    assert len({random_name() for _ in range(20)}) > 10
