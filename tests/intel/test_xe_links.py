"""Links between tiles."""

from __future__ import annotations

import pytest

from gas.cards import Card, Tile
from gas.intel.xe_links import read_links
from gas.placement.inventory import Link

XE_LINKS = "gpu.intel.com/xe-links"
CARDS = (Card(2), Card(5), Card(10))
TWO_TILES = dict.fromkeys(CARDS, 2)


def link(one: int, one_tile: int, other: int, other_tile: int) -> Link:
    return Link(Tile(Card(one), one_tile), Tile(Card(other), other_tile))


# contract E2.7, E2.8
@pytest.mark.parametrize(
    ("text", "links", "problem"),
    [
        pytest.param(
            "0.0-1.0_2.1-0.1",
            (link(2, 0, 5, 0), link(10, 1, 2, 1)),
            "",
            id="device-ids-are-positions-among-the-sorted-cards",
        ),
        pytest.param("0.0-1.0_1.0-0.0", (link(2, 0, 5, 0), link(5, 0, 2, 0)), "", id="both-directions-are-kept"),
        pytest.param("0.0-3.0_0.1-1.1", (link(2, 1, 5, 1),), "the node does not have '0.0-3.0'", id="unknown-device"),
        pytest.param("0.2-1.0_0.1-1.1", (link(2, 1, 5, 1),), "the node does not have '0.2-1.0'", id="unknown-tile"),
        pytest.param("0.0-1.0_0.0-1.0", (link(2, 0, 5, 0),), "'0.0-1.0' is listed more than once", id="twice"),
        pytest.param("0.0-0.1", (), "expected links between two cards such as 0.0-1.0_2.0-3.0", id="to-itself"),
        pytest.param(
            "0-1_0.0_0.0-1.0-2.0_0.0.0-1.0_0.x-1.0",
            (),
            "'0-1', '0.0', '0.0-1.0-2.0' and 2 more",
            id="malformed",
        ),
        pytest.param("", (), "expected a text, found none", id="empty"),
    ],
)
def test_links(text: str, links: tuple[Link, ...], problem: str) -> None:
    problems: list[str] = []
    assert read_links({XE_LINKS: text}, CARDS, TWO_TILES, problems) == links
    assert len(problems) == (1 if problem else 0)
    assert all(problem in sentence and sentence.startswith(f"label {XE_LINKS}: ") for sentence in problems)


def test_without_the_label_nothing_is_linked() -> None:
    assert read_links({}, CARDS, TWO_TILES, []) == ()


def test_links_of_cards_whose_tiles_are_not_announced_yet_are_no_problem() -> None:
    problems: list[str] = []
    assert read_links({XE_LINKS: "0.0-1.0"}, CARDS, dict.fromkeys(CARDS, 0), problems) == ()
    assert not problems


# contract E2.3, E2.7
def test_links_continue_in_further_labels() -> None:
    labels = {XE_LINKS: "0.0-1.0_1", f"{XE_LINKS}2": "Z.1-2.1"}
    assert read_links(labels, CARDS, TWO_TILES, []) == (link(2, 0, 5, 0), link(5, 1, 10, 1))
