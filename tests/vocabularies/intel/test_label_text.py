"""Labels continued in further labels."""

from __future__ import annotations

import re
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gas.vocabularies.intel.label_text import UnsplittableText, joined_label, split_value

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
    assert joined_label(labels, NAME) == text


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
    assert joined_label(labels, NAME) == text


# contract P5.4
def test_a_piece_is_cut_after_the_last_letter_or_digit_that_fits() -> None:
    assert split_value(NAME, "a" * 62 + "." + "b") == {NAME: "a" * 62, f"{NAME}2": "Z.b"}
    assert split_value(NAME, "a" * 63) == {NAME: "a" * 63}
    assert split_value(NAME, "a" * 64) == {NAME: "a" * 63, f"{NAME}2": "Za"}


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(".1", id="begins-with-a-dot"),
        pytest.param("1.", id="ends-with-a-dot"),
        pytest.param("a b", id="blank"),
        pytest.param("a\n", id="newline"),
        pytest.param("ä", id="letter-beyond-ascii"),
        pytest.param("a" + "." * 125 + "b", id="nowhere-to-cut"),
    ],
)
def test_what_no_label_can_hold_is_refused(text: str) -> None:
    with pytest.raises(UnsplittableText, match=f"label {NAME}: expected letters, digits"):
        split_value(NAME, text)


@given(st.dictionaries(st.sampled_from(["", *map(str, range(1, 13)), "02", "x"]), st.text("Z0.\x00ü", max_size=4)))
def test_joining_any_pieces_never_fails(pieces: dict[str, str]) -> None:
    text = joined_label({NAME + suffix: value for suffix, value in pieces.items()}, NAME)
    assert (text is None) == ("" not in pieces)
