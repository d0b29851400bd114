"""Sets of options that are worth trying, in order, within a budget of steps."""

from __future__ import annotations

import pytest

from gas.placement.free_capacity import Pick
from gas.placement.search import StepBudget, combinations
from gas.values.cards import Card


def picks(*each: tuple[int, ...]) -> list[Pick]:
    return [Pick(tuple(Card(number) for number in numbers)) for numbers in each]


def steps(limit: int) -> StepBudget:
    some = StepBudget(limit)
    some.share(1)
    return some


@pytest.mark.parametrize(
    ("options", "classes", "count", "expected"),
    [
        pytest.param(picks((0,), (1,), (2,)), "abc", 2, ["01", "02", "12"], id="the-earliest-options-first"),
        pytest.param(picks((0,), (1,), (2,)), "aba", 2, ["01", "02"], id="one-of-interchangeable-options"),
        pytest.param(picks((0,), (1,), (2,), (3,)), "aaaa", 2, ["01"], id="one-set-if-all-are-interchangeable"),
        pytest.param(picks((0,), (1,)), "ab", 0, [""], id="one-empty-set-if-nothing-is-wanted"),
        pytest.param(picks((0,), (1,)), "ab", 3, [], id="no-set-if-too-few-options"),
        pytest.param(picks((0, 1), (0, 2), (1, 3), (2, 3)), "abcd", 2, ["0123", "0213"], id="no-card-twice-in-a-set"),
    ],
)
def test_combinations(options: list[Pick], classes: str, count: int, expected: list[str]) -> None:
    sets = combinations(options, classes, count, steps(100))
    assert ["".join(str(int(card)) for pick in one for card in pick.cards) for one in sets] == expected


def test_the_sets_end_when_the_steps_have_run_out() -> None:
    few = steps(3)
    assert len(list(combinations(picks((0,), (1,), (2,)), "abc", 2, few))) == 2
    assert few.ran_out


def test_steps_that_one_search_leaves_over_go_to_the_next() -> None:
    shared = StepBudget(10)
    shared.share(2)
    assert [shared.spend() for _ in range(6)] == [True] * 5 + [False]
    assert shared.ran_out
    shared.share(1)
    assert [shared.spend() for _ in range(6)] == [True] * 5 + [False]
