"""Kubernetes quantities, sums of amounts, and amounts in words."""

from __future__ import annotations

from contextlib import suppress
from decimal import ROUND_UP, Decimal, localcontext

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gas.values.amounts import (
    MAX_AMOUNT,
    MalformedQuantity,
    add,
    describe,
    gigabytes,
    parse_quantity,
    parse_rounded_up,
    sorted_amounts,
)

AMOUNTS = st.dictionaries(st.sampled_from(["i915", "millicores", "tiles"]), st.integers(1, MAX_AMOUNT))


@pytest.mark.parametrize(
    ("written", "amount"),
    [
        ("0", 0),
        ("3", 3),
        ("007", 7),
        ("+5", 5),
        ("-0", 0),
        ("5.", 5),
        ("5.0", 5),
        (".5k", 500),
        ("2000m", 2),
        ("3000000u", 3),
        ("4000000000n", 4),
        ("1k", 10**3),
        ("1M", 10**6),
        ("1G", 10**9),
        ("1T", 10**12),
        ("1P", 10**15),
        ("1E", 10**18),
        ("1Ki", 2**10),
        ("1Mi", 2**20),
        ("5Gi", 5 * 2**30),
        ("1Ti", 2**40),
        ("1Pi", 2**50),
        ("1Ei", 2**60),
        ("1.5Gi", 3 * 2**29),
        ("+2k", 2000),
        ("007Ki", 7 * 2**10),
        ("1e3", 1000),
        ("1E3", 1000),
        ("20e-1", 2),
        ("0e9999", 0),
        ("9223372036854775807", MAX_AMOUNT),
        (7, 7),
        (7.0, 7),
        (1e3, 1000),
        (MAX_AMOUNT, MAX_AMOUNT),
    ],
)
def test_a_quantity_means_the_same_as_in_kubernetes(written: str | float, amount: int) -> None:
    assert parse_quantity(written) == amount


@pytest.mark.parametrize(
    ("written", "whole", "thousandths"),
    [
        ("2", 2, 2000),
        ("100m", 1, 100),
        ("0.1", 1, 100),
        ("1500u", 1, 2),
        ("1.5", 2, 1500),
        ("1Ki", 1024, 1024_000),
        (4, 4, 4000),
        (0.25, 1, 250),
        ("0", 0, 0),
        ("1e30", MAX_AMOUNT, MAX_AMOUNT),
    ],
)
def test_a_quantity_rounded_up(written: str | float, whole: int, thousandths: int) -> None:
    assert parse_rounded_up(written) == whole
    assert parse_rounded_up(written, thousandths=True) == thousandths


@pytest.mark.parametrize("written", ["", "1x", "-1", "1 ", "9" * 300])
def test_no_quantity_to_round_up(written: str) -> None:
    with pytest.raises(MalformedQuantity):
        parse_rounded_up(written)


NO_QUANTITY = "expected a quantity such as 5, 500k or 5Gi"
NOT_WHOLE = "expected a whole number"
NEGATIVE = "expected a number that is not negative"
TOO_LARGE = "expected at most 2^63-1"


@pytest.mark.parametrize(
    ("written", "reason"),
    [
        pytest.param("", NO_QUANTITY, id="empty"),
        pytest.param(" 5", NO_QUANTITY, id="blank"),
        pytest.param("5\n", NO_QUANTITY, id="newline"),
        pytest.param("five", NO_QUANTITY, id="word"),
        pytest.param("5gi", NO_QUANTITY, id="small-suffix"),
        pytest.param("5K", NO_QUANTITY, id="K-alone-is-none"),
        pytest.param("1e", NO_QUANTITY, id="exponent-without-number"),
        pytest.param("1_000", NO_QUANTITY, id="underscore"),
        pytest.param("٣", NO_QUANTITY, id="digit-of-another-script"),
        pytest.param("0x10", NO_QUANTITY, id="hexadecimal"),
        pytest.param("12e-1k", NO_QUANTITY, id="two-suffixes"),
        pytest.param("1" * 257, NO_QUANTITY, id="longer-than-any"),
        pytest.param(float("nan"), NO_QUANTITY, id="nan"),
        pytest.param(float("inf"), NO_QUANTITY, id="infinite"),
        pytest.param(True, NOT_WHOLE, id="bool"),
        pytest.param("1.5", NOT_WHOLE, id="fraction"),
        pytest.param("100m", NOT_WHOLE, id="thousandths"),
        pytest.param("1e-9999", NOT_WHOLE, id="very-small"),
        pytest.param(1.5, NOT_WHOLE, id="fraction-as-number"),
        pytest.param("-1", NEGATIVE, id="negative"),
        pytest.param(-1, NEGATIVE, id="negative-number"),
        pytest.param("9223372036854775808", TOO_LARGE, id="2-to-the-63"),
        pytest.param("1e30", TOO_LARGE, id="1e30"),
        pytest.param("1e9999", TOO_LARGE, id="1e9999"),
        pytest.param("9" * 250 + "e9999", TOO_LARGE, id="long-and-large"),
        pytest.param("8Ei", TOO_LARGE, id="8Ei"),
        pytest.param("10E", TOO_LARGE, id="10E"),
        pytest.param("-1k", NEGATIVE, id="negative-thousands"),
        pytest.param(2**63, TOO_LARGE, id="2-to-the-63-as-number"),
        pytest.param(1e30, TOO_LARGE, id="1e30-as-number"),
    ],
)
def test_other_texts_are_refused_with_the_reason(written: str | float, reason: str) -> None:
    with pytest.raises(MalformedQuantity) as refused:
        parse_quantity(written)
    assert refused.value.reason == reason
    assert str(refused.value).startswith(f"{reason}, found ")
    assert len(str(refused.value)) < 150


@given(st.from_regex(r"\A[+-]?[0-9]{0,40}(\.[0-9]{0,40})?([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]{1,4})?\Z"))
def test_any_text_is_an_amount_or_refused(text: str) -> None:
    with suppress(MalformedQuantity):
        assert 0 <= parse_quantity(text) <= MAX_AMOUNT


def test_the_callers_decimal_context_does_not_matter() -> None:
    with localcontext() as context:
        context.prec, context.rounding, context.Emax = 2, ROUND_UP, 3
        assert parse_quantity("1.23456789012345678E") == 1_234_567_890_123_456_780
        assert Decimal(1) / 3 == Decimal("0.34"), "the context is the caller's again"


@given(st.integers(0, MAX_AMOUNT))
def test_every_amount_reads_as_it_prints(amount: int) -> None:
    assert parse_quantity(str(amount)) == amount


@given(AMOUNTS, AMOUNTS)
def test_what_is_added_can_be_taken_away(amounts: dict[str, int], more: dict[str, int]) -> None:
    books = dict(amounts)
    add(books, sorted_amounts(more))
    assert books == {name: amounts.get(name, 0) + more.get(name, 0) for name in amounts | more}
    add(books, sorted_amounts(more), -1)
    assert books == amounts


def test_amounts_sort_by_name() -> None:
    assert sorted_amounts({"tiles": 1, "i915": 2}) == (("i915", 2), ("tiles", 1))


@pytest.mark.parametrize(
    ("name", "amount", "words"),
    [
        ("memory.max", 5_000_000_000, "5.0 GB of memory.max"),
        ("memory.max", 0, "0.0 GB of memory.max"),
        ("millicores", 500, "500 millicores"),
        ("tiles", 1, "1 tile"),
        ("tiles", 2, "2 tiles"),
        ("i915", 1, "1 i915"),
    ],
)
def test_an_amount_in_words(name: str, amount: int, words: str) -> None:
    assert describe(name, amount) == words


@pytest.mark.parametrize(
    ("amount", "text"),
    [
        (0, "0.0"),
        (1, "0.000000001"),
        (123_456, "0.00012"),
        (4_000_000, "0.004"),
        (49_999_999, "0.05"),
        (50_000_000, "0.1"),
        (5_000_000_000, "5.0"),
        (-3_000_000_000, "-3.0"),
    ],
)
def test_gigabytes_are_plain_decimals_that_never_round_to_zero(amount: int, text: str) -> None:
    assert gigabytes(amount) == text
