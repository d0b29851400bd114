"""Cards and tiles by container, as text."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gas.decision.annotations import (
    CardTiles,
    MalformedAnnotation,
    format_container_cards,
    format_container_tiles,
    parse_container_cards,
    parse_container_tiles,
)
from gas.values.cards import Card

CARDS = st.integers(0, 10**9 - 1).map(Card)


# contract E3.1
@pytest.mark.parametrize(
    ("text", "containers"),
    [
        pytest.param("card0", ((0,),), id="one-card"),
        pytest.param("card0,card1|card2,card3", ((0, 1), (2, 3)), id="two-containers"),
        pytest.param("card0||card1", ((0,), (), (1,)), id="an-empty-place"),
        pytest.param("|card1", ((), (1,)), id="first-place-empty"),
        pytest.param("card1|", ((1,), ()), id="last-place-empty"),
        pytest.param("", ((),), id="one-container-without-cards"),
        pytest.param("card10,card2", ((10, 2),), id="the-texts-own-order"),
    ],
)
def test_the_form_of_cards(text: str, containers: tuple[tuple[int, ...], ...]) -> None:
    assert parse_container_cards(text) == containers
    assert format_container_cards([[Card(card) for card in cards] for cards in containers]) == text


@given(st.lists(st.lists(CARDS).map(tuple), min_size=1).map(tuple))
def test_parsing_cards_is_the_inverse_of_formatting_them(containers: tuple[tuple[Card, ...], ...]) -> None:
    assert parse_container_cards(format_container_cards(containers)) == containers


@pytest.mark.parametrize(
    ("text", "found"),
    [
        pytest.param("gpu0", "'gpu0'", id="no-card"),
        pytest.param("card0,", "''", id="comma-at-the-end"),
        pytest.param("card0, card1", "' card1'", id="blank"),
        pytest.param("card01", "'card01'", id="leading-zero"),
        pytest.param("card0\n", r"'card0\n'", id="control-character"),
        pytest.param("card0;card1", "'card0;card1'", id="another-separator"),
    ],
)
def test_malformed_cards_are_refused(text: str, found: str) -> None:
    with pytest.raises(MalformedAnnotation) as refused:
        parse_container_cards(text, "gas-allocated-cards")
    assert str(refused.value) == (
        f"annotation gas-allocated-cards: expected card names as in card0,card1||card2, found {found}"
    )
    assert refused.value.annotation == "gas-allocated-cards"


@pytest.mark.parametrize("parse", [parse_container_cards, parse_container_tiles])
def test_an_overlong_text_is_refused_unread(parse: Callable[[str, str], object]) -> None:
    with pytest.raises(MalformedAnnotation, match="annotation x: expected at most 65536 characters, found 262144"):
        parse("|" * 262_144, "x")
    assert len(parse_container_cards("|" * 65_536)) == 65_537


CARD_TILES = st.tuples(st.integers(0, 10**9 - 1).map(Card), st.lists(st.integers(0, 10**9 - 1), min_size=1).map(tuple))


# contract E3.2
@pytest.mark.parametrize(
    ("text", "containers"),
    [
        pytest.param("card0:gt0+gt1|card0:gt2+gt3", (((0, (0, 1)),), ((0, (2, 3)),)), id="two-containers"),
        pytest.param("card0:gt0,card1:gt1", (((0, (0,)), (1, (1,))),), id="two-cards"),
        pytest.param("card0:gt0||card1:gt0", (((0, (0,)),), (), ((1, (0,)),)), id="an-empty-place"),
        pytest.param("card0:gt10+gt2", (((0, (10, 2)),),), id="the-texts-own-order"),
    ],
)
def test_the_form_of_tiles(text: str, containers: tuple[tuple[tuple[int, tuple[int, ...]], ...], ...]) -> None:
    assert parse_container_tiles(text) == containers
    assert format_container_tiles([[(Card(card), tiles) for card, tiles in cards] for cards in containers]) == text


# contract E3.6
@pytest.mark.parametrize(
    ("text", "containers"),
    [
        pytest.param(",", ((),), id="two-cards"),
        pytest.param("|,card1:gt0", ((), ((Card(1), (0,)),)), id="the-first-of-two"),
        pytest.param("card0:gt0,|", (((Card(0), (0,)),), ()), id="the-last-of-two"),
    ],
)
def test_the_original_left_the_place_of_a_card_without_tiles_empty(
    text: str, containers: tuple[tuple[CardTiles, ...], ...]
) -> None:
    assert parse_container_tiles(text) == containers


@given(st.lists(st.lists(CARD_TILES).map(tuple), min_size=1).map(tuple))
def test_parsing_tiles_is_the_inverse_of_formatting_them(containers: tuple[tuple[CardTiles, ...], ...]) -> None:
    assert parse_container_tiles(format_container_tiles(containers)) == containers


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("card0", id="no-tiles"),
        pytest.param("card0:", id="empty-tiles"),
        pytest.param("card0:gt0+", id="plus-at-the-end"),
        pytest.param("card0:gt01", id="leading-zero"),
        pytest.param("card0:0", id="only-a-number"),
        pytest.param("gt0", id="no-card"),
        pytest.param("gpu0:gt0", id="malformed-card"),
        pytest.param("card0:gt0:gt1", id="second-colon"),
        pytest.param("card0:gt0\n", id="control-character"),
        pytest.param("card0:gt" + "9" * 5000, id="huge-number"),
    ],
)
def test_malformed_tiles_are_refused(text: str) -> None:
    with pytest.raises(MalformedAnnotation) as refused:
        parse_container_tiles(text)
    sentence = str(refused.value)
    assert sentence.startswith("annotation gas-container-tiles: expected tiles of cards as in card0:gt0+gt1, found '")
    assert sentence.isprintable()
    assert len(sentence) < 200
