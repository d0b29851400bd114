"""Labels about groups of cards and about links between tiles."""

from __future__ import annotations

import pytest

from gas.placement.inventory import Link
from gas.values.cards import Card, Tile
from gas.vocabularies.intel.card_labels import read_links, read_numa_groups, read_pci_groups

CARDS = tuple(map(Card, range(5)))
NUMA = "gpu.intel.com/numa-gpu-map"
PCI = "gpu.intel.com/pci-groups"
XE_LINKS = "gpu.intel.com/xe-links"
LINKED_CARDS = (Card(2), Card(5), Card(10))
TWO_TILES = dict.fromkeys(LINKED_CARDS, 2)


def test_without_the_label_the_numa_groups_are_unknown() -> None:
    problems: list[str] = []
    assert read_numa_groups({}, CARDS, problems) is None
    assert not problems


# contract E2.5
@pytest.mark.parametrize(
    ("text", "groups", "problems"),
    [
        pytest.param("0-0.1_1-2.3", ((0, 1), (2, 3)), [], id="two-groups"),
        pytest.param("1-3.2_0-1.0", ((3, 2), (1, 0)), [], id="the-labels-own-order"),
        pytest.param("0-0_1-2_0-1", ((0, 1), (2,)), [], id="a-numa-node-named-twice-is-one-group"),
        pytest.param("0-0.1_1-9", ((0, 1),), ["the node does not have 'card9'"], id="unknown-card"),
        pytest.param(
            "0-0.x_1_1-2_a-3",
            ((0,), (2,)),
            ["expected NUMA nodes with", "found 'x', '1', 'a-3'"],
            id="malformed-parts",
        ),
        pytest.param("0-0.1_1-1.2", ((0, 1), (2,)), ["'card1' is listed more than once"], id="card-in-two-groups"),
        pytest.param("zero", (), ["found 'zero'"], id="no-readable-group"),
        pytest.param("0-7.8", (), ["the node does not have 'card7', 'card8'"], id="only-unknown-cards"),
        pytest.param("", (), ["expected a text, found an empty value"], id="empty"),
    ],
)
def test_numa_groups(text: str, groups: tuple[tuple[int, ...], ...], problems: list[str]) -> None:
    found: list[str] = []
    assert read_numa_groups({NUMA: text}, CARDS, found) == groups
    assert len(found) == (1 if problems else 0)
    for part in problems:
        assert part in found[0]
    assert all(sentence.startswith(f"label {NUMA}: ") for sentence in found)


# contract E2.3, E2.5
def test_numa_groups_continue_in_further_labels() -> None:
    assert read_numa_groups({NUMA: "0-0.1_1-2", f"{NUMA}2": "Z.3"}, CARDS, []) == ((0, 1), (2, 3))


# contract E2.6
@pytest.mark.parametrize(
    ("text", "groups", "problems"),
    [
        pytest.param("0.1_2.3.4", [{0, 1}, {2, 3, 4}], [], id="two-boards"),
        pytest.param("0_1", [{0}, {1}], [], id="single-cards"),
        pytest.param("0.9", [{0}], ["the node does not have 'card9'"], id="unknown-card"),
        pytest.param("0.1_1.2", [{0, 1}, {2}], ["'card1' is listed more than once"], id="card-on-two-boards"),
        pytest.param("0.01_2-3", [{0}], ["expected groups of card numbers", "'01', '2-3'"], id="malformed-parts"),
        pytest.param("", [], ["expected a text, found an empty value"], id="empty"),
    ],
)
def test_pci_groups(text: str, groups: list[set[int]], problems: list[str]) -> None:
    found: list[str] = []
    assert read_pci_groups({PCI: text}, CARDS, found) == {card: group for group in groups for card in group}
    assert len(found) == (1 if problems else 0)
    for part in problems:
        assert part in found[0]


# contract E2.3, E2.6
def test_pci_groups_continue_in_further_labels() -> None:
    groups = read_pci_groups({PCI: "0.1_2.3", f"{PCI}2": "Z.4"}, CARDS, [])
    assert groups[Card(4)] == {2, 3, 4}


def test_without_the_label_no_card_shares_a_board() -> None:
    problems: list[str] = []
    assert read_pci_groups({}, CARDS, problems) == {}
    assert not problems


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
        pytest.param("", (), "expected a text, found an empty value", id="empty"),
    ],
)
def test_links(text: str, links: tuple[Link, ...], problem: str) -> None:
    problems: list[str] = []
    assert read_links({XE_LINKS: text}, LINKED_CARDS, TWO_TILES, problems) == links
    assert len(problems) == (1 if problem else 0)
    assert all(problem in sentence and sentence.startswith(f"label {XE_LINKS}: ") for sentence in problems)


def test_without_the_label_nothing_is_linked() -> None:
    assert read_links({}, LINKED_CARDS, TWO_TILES, []) == ()


def test_links_of_cards_without_announced_tiles_are_ignored() -> None:
    problems: list[str] = []
    assert read_links({XE_LINKS: "0.0-1.0"}, LINKED_CARDS, dict.fromkeys(LINKED_CARDS, 0), problems) == ()
    assert not problems


# contract E2.3, E2.7
def test_links_continue_in_further_labels() -> None:
    labels = {XE_LINKS: "0.0-1.0_1", f"{XE_LINKS}2": "Z.1-2.1"}
    assert read_links(labels, LINKED_CARDS, TWO_TILES, []) == (link(2, 0, 5, 0), link(5, 1, 10, 1))
