"""Cards by container, as text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gas.decision.annotations import MalformedAnnotation, format_container_cards, parse_container_cards
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
def test_the_form(text: str, containers: tuple[tuple[int, ...], ...]) -> None:
    assert parse_container_cards(text) == containers
    assert format_container_cards([[Card(card) for card in cards] for cards in containers]) == text


@given(st.lists(st.lists(CARDS).map(tuple), min_size=1).map(tuple))
def test_parsing_is_the_inverse_of_formatting(containers: tuple[tuple[Card, ...], ...]) -> None:
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
def test_a_malformed_text_is_refused(text: str, found: str) -> None:
    with pytest.raises(MalformedAnnotation) as refused:
        parse_container_cards(text, "gas-allocated-cards")
    assert str(refused.value) == (
        f"annotation gas-allocated-cards: expected card names as in card0,card1||card2, found {found}"
    )
    assert refused.value.annotation == "gas-allocated-cards"


def test_an_overlong_text_is_refused_unread() -> None:
    with pytest.raises(MalformedAnnotation, match="expected at most 65536 characters, found 262144"):
        parse_container_cards("|" * 262_144)
    assert len(parse_container_cards("|" * 65_536)) == 65_537
