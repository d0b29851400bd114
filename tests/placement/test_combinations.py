"""The sets of options that are worth trying, in order; and the steps that they may take."""

from __future__ import annotations

import pytest

from gas.cards import Card
from gas.placement.free_capacity import Pick
from gas.placement.search import StepBudget, combinations


def picks(*each: tuple[int, ...]) -> list[Pick]:
    return [Pick(tuple(Card(number) for number in numbers)) for numbers in each]


def steps(limit: int) -> StepBudget:
    some = StepBudget(limit)
    some.share(1)
    return some


@pytest.mark.parametrize(
    ("options", "alike", "count", "expected"),
    [
        pytest.param(picks((0,), (1,), (2,)), "abc", 2, ["01", "02", "12"], id="the-earliest-options-first"),
        pytest.param(picks((0,), (1,), (2,)), "aba", 2, ["01", "02"], id="of-options-that-are-alike-one"),
        pytest.param(picks((0,), (1,), (2,), (3,)), "aaaa", 2, ["01"], id="all-alike-one-set"),
        pytest.param(picks((0,), (1,)), "ab", 0, [""], id="nothing-wanted-one-empty-set"),
        pytest.param(picks((0,), (1,)), "ab", 3, [], id="more-wanted-than-there-is"),
        pytest.param(picks((0, 1), (0, 2), (1, 3), (2, 3)), "abcd", 2, ["0123", "0213"], id="no-card-twice-in-a-set"),
    ],
)
def test_combinations(options: list[Pick], alike: str, count: int, expected: list[str]) -> None:
    sets = combinations(options, alike, count, steps(100))
    assert ["".join(str(int(card)) for pick in one for card in pick.cards) for one in sets] == expected


def test_the_sets_end_when_the_steps_have_run_out() -> None:
    few = steps(3)
    assert len(list(combinations(picks((0,), (1,), (2,)), "abc", 2, few))) == 2
    assert few.ran_out


def test_what_one_search_leaves_over_is_there_for_the_next() -> None:
    shared = StepBudget(10)
    shared.share(2)
    assert [shared.spend() for _ in range(6)] == [True] * 5 + [False]
    assert shared.ran_out
    shared.share(1)
    assert [shared.spend() for _ in range(6)] == [True] * 5 + [False]
