"""The node annotation ``gas-card-capacity``."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gas.values.amounts import MAX_AMOUNT
from gas.values.cards import Card
from gas.vocabularies.intel.card_capacity import format_card_capacity, parse_card_capacity

EXPECTED = (
    "annotation gas-card-capacity: expected cards with amounts such as card0=memory.max:8000000000,millicores:1000"
)


@pytest.mark.parametrize(
    ("text", "capacity"),
    [
        pytest.param("", {}, id="empty"),
        pytest.param(
            "card0=memory.max:8000000000,millicores:1000;card1=memory.max:16000000000",
            {Card(0): {"memory.max": 8 * 10**9, "millicores": 1000}, Card(1): {"memory.max": 16 * 10**9}},
            id="two-cards",
        ),
        pytest.param("card0=memory.max:8Gi", {Card(0): {"memory.max": 8 * 2**30}}, id="quantities"),
        pytest.param("card0=i915:1,xe:0", {Card(0): {"i915": 1, "xe": 0}}, id="none-of-a-resource"),
        pytest.param(
            " card0 = i915 : 1 , tiles : 2 ; card1 = i915 : 1 ; ",
            {Card(0): {"i915": 1, "tiles": 2}, Card(1): {"i915": 1}},
            id="blanks-and-a-last-semicolon",
        ),
        pytest.param("card0=gpu.intel.com/i915:1", {Card(0): {"i915": 1}}, id="full-resource-name"),
    ],
)
def test_the_annotation_lists_amounts_by_card(text: str, capacity: object) -> None:
    problems: list[str] = []
    assert parse_card_capacity(text, problems) == capacity
    assert not problems


@pytest.mark.parametrize(
    ("text", "capacity", "problem"),
    [
        pytest.param("i915:1;card1=i915:1", {Card(1): {"i915": 1}}, f"{EXPECTED}, found 'i915:1'", id="no-card"),
        pytest.param("card01=i915:1", {}, f"{EXPECTED}, found 'card01=i915:1'", id="malformed-card"),
        pytest.param("card0", {Card(0): {}}, f"{EXPECTED}, found 'card0='", id="no-amounts"),
        pytest.param("card0=i915,tiles:2", {Card(0): {"tiles": 2}}, f"{EXPECTED}, found 'card0=i915'", id="no-amount"),
        pytest.param(
            "card0=tiles:-1,i915:1",
            {Card(0): {"i915": 1}},
            f"{EXPECTED}, found 'card0=tiles:-1'",
            id="negative",
        ),
        pytest.param("card0=:1", {Card(0): {}}, f"{EXPECTED}, found 'card0=:1'", id="no-resource"),
        pytest.param("card0=a b:1", {Card(0): {}}, f"{EXPECTED}, found 'card0=a b:1'", id="malformed-resource"),
        pytest.param(
            "card0=i915:1,i915:2",
            {Card(0): {"i915": 1}},
            "annotation gas-card-capacity: 'i915 of card0' is listed more than once",
            id="of-a-resource-named-twice-the-first-is-used",
        ),
        pytest.param(
            "card0=i915:1;card0=i915:2",
            {Card(0): {"i915": 1}},
            "annotation gas-card-capacity: 'card0' is listed more than once",
            id="of-a-card-named-twice-the-first-is-used",
        ),
    ],
)
def test_a_malformed_part_is_reported_and_the_others_are_used(text: str, capacity: object, problem: str) -> None:
    problems: list[str] = []
    assert parse_card_capacity(text, problems) == capacity
    assert [sentence.split(";")[0] for sentence in problems] == [problem]


RESOURCES = st.from_regex(r"\A[A-Za-z0-9]([-_.A-Za-z0-9]{0,20}[A-Za-z0-9])?\Z")
CAPACITY = st.dictionaries(
    st.integers(0, 10**9 - 1).map(Card), st.dictionaries(RESOURCES, st.integers(0, MAX_AMOUNT), min_size=1)
)


@given(CAPACITY)
def test_parsing_is_the_inverse_of_formatting(capacity: dict[Card, dict[str, int]]) -> None:
    problems: list[str] = []
    assert parse_card_capacity(format_card_capacity(capacity), problems) == capacity
    assert not problems


def test_a_card_without_amounts_is_not_written() -> None:
    assert format_card_capacity({Card(0): {}, Card(1): {"i915": 1}}) == "card1=i915:1"


@given(st.text("card01=i9:,; \x00Gi-.", max_size=40))
def test_any_text_is_read(text: str) -> None:
    parse_card_capacity(text, [])
