"""Cards and tiles as values."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gas.values.cards import Card, MalformedCard, Tile, exchange_numbers, in_order, instance


@given(st.integers(0, 999_999_999))
def test_a_card_reads_as_it_prints(number: int) -> None:
    assert Card.parse(str(Card(number))) == Card(number)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="nothing"),
        pytest.param("card", id="no-number"),
        pytest.param("0", id="only-a-number"),
        pytest.param("card01", id="leading-zero"),
        pytest.param("card-1", id="negative"),
        pytest.param("card0 ", id="blank-behind"),
        pytest.param("card0\n", id="newline-behind"),
        pytest.param("xcard0", id="letter-before"),
        pytest.param("Card0", id="capital"),
        pytest.param("card\u0661", id="digit-of-another-script"),
        pytest.param("card1234567890", id="ten-digits"),
        pytest.param("renderD128", id="another-device"),
    ],
)
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(MalformedCard, match="expected a card name such as card0, found") as refused:
        Card.parse(text)
    assert refused.value.text == text


def test_a_long_text_is_cut_in_the_sentence() -> None:
    with pytest.raises(MalformedCard) as refused:
        Card.parse("x" * 100_000)
    assert len(str(refused.value)) < 150


def test_cards_sort_in_natural_order() -> None:
    assert sorted(map(Card.parse, ["card10", "card2", "card0"])) == [Card(0), Card(2), Card(10)]


def test_a_card_prints_its_name() -> None:
    card = Card(3)
    assert (str(card), f"{card}", "%s" % card, repr(card)) == ("card3", "card3", "card3", "Card(3)")  # noqa: UP031 - log records are made this way


def test_a_card_stays_a_card_through_pickling() -> None:
    assert repr(pickle.loads(pickle.dumps(Card(3)))) == "Card(3)"


def test_tiles_sort_by_card_and_index() -> None:
    tiles = [Tile(Card(10), 0), Tile(Card(2), 1), Tile(Card(2), 0)]
    assert sorted(tiles) == [Tile(Card(2), 0), Tile(Card(2), 1), Tile(Card(10), 0)]


def test_numbers_for_others_are_plain_numbers() -> None:
    cards = [Card(0), instance(Card(1000), 10)]
    assert [type(exchange_numbers(cards)(each)) for each in cards] == [int, int]


def test_places_are_kept_for_as_many_lost_cards_as_a_node_may_have() -> None:
    assert in_order([], {"GPU-a": Card(2)}) == [Card(0), Card(1), Card(2)]
    assert len(in_order([], {"GPU-a": Card(999_999_999)})) < 1000
