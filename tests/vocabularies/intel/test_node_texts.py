"""Labels continued in further labels, and the node annotation ``gas-card-capacity``."""

from __future__ import annotations

import re
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gas.values.amounts import MAX_AMOUNT
from gas.values.cards import Card
from gas.vocabularies.intel.node_texts import (
    MOST_PIECES,
    format_card_capacity,
    joined_label,
    parse_card_capacity,
    split_value,
)

NAME = "gpu.intel.com/gpu-numbers"
LABEL_VALUE = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?", re.ASCII)


# contract E2.3
@pytest.mark.parametrize(
    ("pieces", "text", "problems"),
    [
        pytest.param({}, None, [], id="no-label"),
        pytest.param({"": "0.1.2"}, "0.1.2", [], id="one-label"),
        pytest.param({"": "0.1.2", "2": "Z4.5"}, "0.1.24.5", [], id="cut-inside-a-number"),
        pytest.param({"3": "Z.6", "": "0.1", "2": "Z.4.5"}, "0.1.4.5.6", [], id="labels-in-any-order"),
        pytest.param(
            {"": "0", **{str(at): f"Z.{at}" for at in range(2, 13)}},
            "0.2.3.4.5.6.7.8.9.10.11.12",
            [],
            id="more-than-nine-continuations",
        ),
        pytest.param(
            {"": "0.1", "3": "Z.5", "10": "Z.6"},
            "0.1",
            [f"label {NAME}2 is missing, so '{NAME}3', '{NAME}10' is ignored"],
            id="a-gap-ends-the-text",
        ),
        pytest.param(
            {"": "0", **{str(at): f"Z.{at}" for at in range(2, MOST_PIECES + 2)}},
            None,
            [f"label {NAME}: expected a text of at most {MOST_PIECES} labels, found more; it is ignored"],
            id="too-many-pieces",
        ),
        pytest.param(
            {"2": "Z1.2"},
            None,
            [f"label {NAME} is missing, so '{NAME}2' is ignored"],
            id="no-first-piece",
        ),
        pytest.param(
            {"": "0.1", "2": "4.5", "3": "Z.6"},
            "0.1",
            [
                f"label {NAME}2: expected a value that begins with Z, found '4.5';"
                " it and the labels after it are ignored"
            ],
            id="a-piece-without-Z-ends-the-text",
        ),
        pytest.param({"": ""}, "", [f"label {NAME}: expected a text, found an empty value"], id="empty-text"),
        pytest.param(
            {"": "0.1", "2": "", "3": "Z.5"},
            "0.1.5",
            [f"label {NAME}2: expected a text, found an empty value"],
            id="an-empty-piece-is-passed-over",
        ),
        pytest.param(
            {"": "0.1", "2": "Z", "3": "Z.5"},
            "0.1.5",
            [f"label {NAME}2: expected a text, found an empty value"],
            id="a-piece-of-only-Z-is-passed-over",
        ),
        pytest.param({"": "Z1"}, "Z1", [], id="the-first-piece-keeps-its-Z"),
        pytest.param({"": "0", "-x": "1", "02": "Z2", "1": "Z3"}, "0", [], id="other-labels-are-no-continuation"),
    ],
)
def test_joined_label(pieces: Mapping[str, str], text: str | None, problems: list[str]) -> None:
    labels = {NAME + suffix: value for suffix, value in pieces.items()}
    found: list[str] = []
    assert joined_label(labels, NAME, found) == text
    assert found == problems


WORDS = st.from_regex(r"\A[A-Za-z0-9]([-._]{0,3}[A-Za-z0-9]{1,9}){0,60}\Z")


@given(WORDS)
def test_joining_is_the_inverse_of_splitting(text: str) -> None:
    labels = split_value(NAME, text)
    problems: list[str] = []
    assert joined_label(labels, NAME, problems) == text
    assert not problems
    for value in labels.values():
        assert len(value) <= 63
        assert LABEL_VALUE.fullmatch(value)


def test_an_empty_text_is_one_empty_label() -> None:
    assert split_value(NAME, "") == {NAME: ""}


def test_thousands_of_cards_are_split_and_joined() -> None:
    text = ".".join(map(str, range(5000)))
    labels = split_value(NAME, text)
    assert len(labels) > 380
    assert joined_label(labels, NAME, []) == text


# contract P5.4
def test_a_piece_is_cut_after_the_last_letter_or_digit_that_fits() -> None:
    assert split_value(NAME, "a" * 62 + "." + "b") == {NAME: "a" * 62, f"{NAME}2": "Z.b"}
    assert split_value(NAME, "a" * 63) == {NAME: "a" * 63}
    assert split_value(NAME, "a" * 64) == {NAME: "a" * 63, f"{NAME}2": "Za"}


@given(st.dictionaries(st.sampled_from(["", *map(str, range(1, 13)), "02", "x"]), st.text("Z0.\x00ü", max_size=4)))
def test_joining_any_pieces_never_fails(pieces: dict[str, str]) -> None:
    text = joined_label({NAME + suffix: value for suffix, value in pieces.items()}, NAME, [])
    assert (text is None) == ("" not in pieces)


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
        pytest.param(
            "card0=a b:1,xe:2",
            {Card(0): {"xe": 2}},
            f"{EXPECTED}, found 'card0=a b:1'",
            id="malformed-resource",
        ),
        pytest.param(
            "card0=i915:1,i915:2,xe:2",
            {Card(0): {"i915": 1, "xe": 2}},
            "annotation gas-card-capacity: 'i915 of card0' is listed more than once",
            id="of-a-resource-named-twice-the-first-is-used",
        ),
        pytest.param(
            "card0=i915:1;card0=i915:2;card1=i915:2",
            {Card(0): {"i915": 1}, Card(1): {"i915": 2}},
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
