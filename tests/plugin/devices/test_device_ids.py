from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gas.plugin.devices.device_ids import DeviceId, in_order, known_ids
from gas.values.cards import Card

ids = st.builds(DeviceId, st.integers(0, 999_999_999).map(Card), st.integers(0, 999_999_999))


@given(ids)
def test_format_then_parse_is_the_same_id(device_id: DeviceId) -> None:
    assert known_ids([str(device_id)]) == (device_id,)


# contract P2.3
def test_the_text_is_card_and_slot() -> None:
    assert str(DeviceId(Card(10), 2)) == "card10-2"
    assert isinstance(known_ids(["card10-2"])[0].card, Card)


def test_in_order_sorts_ids_naturally() -> None:
    texts = ["card10-0", "card2-10", "card2-9"]
    assert sorted(known_ids(texts), key=in_order) == ["card2-9", "card2-10", "card10-0"]


@pytest.mark.parametrize(
    "text",
    ["", "all", "card0", "card0-", "card-0", "card0-0 ", "card00-1", "card0-01", "card0-0-0", "card0--1", "card٣-0"],
)
def test_anything_else_is_left_out(text: str) -> None:
    assert known_ids(["card0-0", text]) == known_ids(["card0-0"])
