"""Labels about cards, groups of cards and links between tiles, and those of telemetry."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from gas.placement.inventory import Link
from gas.values.cards import Card, Tile
from gas.vocabularies.intel.node_labels import Telemetry, read_links, read_numa_groups, read_pci_groups

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


@pytest.mark.parametrize("tiles", [dict.fromkeys(LINKED_CARDS, 0), {Card(2): 2}, {Card(5): 2}])
def test_links_of_cards_without_announced_tiles_are_ignored(tiles: dict[Card, int]) -> None:
    problems: list[str] = []
    assert read_links({XE_LINKS: "0.0-1.0"}, LINKED_CARDS, tiles, problems) == ()
    assert not problems


# contract E2.3, E2.7
def test_links_continue_in_further_labels() -> None:
    labels = {XE_LINKS: "0.0-1.0_1", f"{XE_LINKS}2": "Z.1-2.1"}
    assert read_links(labels, LINKED_CARDS, TWO_TILES, []) == (link(2, 0, 5, 0), link(5, 1, 10, 1))


BOARD = frozenset({Card(0), Card(1)})
BOARDS = dict.fromkeys(BOARD, BOARD)
TILES = {Card(0): 2, Card(1): 2, Card(2): 2, Card(3): 0}


def label(name: str, policy: str = "policy") -> str:
    return f"telemetry.aware.scheduling.{policy}/{name}"


def read(labels: Mapping[str, str]) -> tuple[Telemetry, list[str]]:
    problems: list[str] = []
    return Telemetry(labels, TILES, BOARDS, problems), problems


def said(telemetry: Telemetry) -> dict[str, object]:
    """Return everything that the labels say; nothing that is empty."""
    return {name: value for name, value in vars(telemetry).items() if value and not name.startswith("_")}


# contract E8.2, E8.3
@pytest.mark.parametrize(
    ("name", "value", "cards"),
    [
        pytest.param("card1", "true", {1}, id="any-value"),
        pytest.param("card1", "", {1}, id="no-value"),
        pytest.param("card1", "false", {1}, id="even-false"),
        pytest.param("card1", "PCI_GROUP", {0, 1}, id="the-whole-pci-group"),
        pytest.param("card2", "PCI_GROUP", {2}, id="a-card-without-group-is-alone"),
        pytest.param("card9", "true", set[int](), id="unknown-card-is-ignored"),
        pytest.param("card9", "PCI_GROUP", set[int](), id="unknown-card-has-no-group"),
    ],
)
def test_disabling_and_descheduling_cards(name: str, value: str, cards: set[int]) -> None:
    telemetry, problems = read({label(f"gas-disable-{name}"): value})
    assert (set(telemetry.disabled), set(telemetry.deschedule_cards), problems) == (cards, set(), [])
    telemetry, problems = read({label(f"gas-deschedule-pods-{name}"): value})
    assert (set(telemetry.disabled), set(telemetry.deschedule_cards), problems) == (set(), cards, [])


def test_any_number_of_labels_that_close_a_board_close_it_and_the_first_are_shown() -> None:
    telemetry, _ = read({label("gas-disable-card0", f"p{at:02}"): "PCI_GROUP" for at in range(50)})
    assert telemetry.disabled == {0, 1}
    assert list(map(len, telemetry.closed_by.values())) == [16, 16]


# contract E8.1
def test_labels_of_several_policies_add_up() -> None:
    telemetry, _ = read({label("gas-disable-card0", "a"): "x", label("gas-disable-card2", "b.c"): "x"})
    assert telemetry.disabled == {0, 2}


@pytest.mark.parametrize(
    ("labels", "preferred"),
    [
        pytest.param({label("gas-prefer-gpu"): "card2"}, Card(2), id="one"),
        pytest.param(
            {label("gas-prefer-gpu", "b"): "card1", label("gas-prefer-gpu", "a"): "card2"},
            Card(2),
            id="the-first-by-label-name",
        ),
        pytest.param({label("gas-prefer-gpu"): "card9"}, None, id="unknown-card-is-ignored"),
        pytest.param(
            {label("gas-prefer-gpu", "a"): "card9", label("gas-prefer-gpu", "b"): "card1"},
            Card(1),
            id="an-unknown-card-is-skipped",
        ),
    ],
)
def test_preferred_card(labels: Mapping[str, str], preferred: Card | None) -> None:
    telemetry, problems = read(labels)
    assert (telemetry.preferred_card, problems) == (preferred, [])


def test_a_malformed_preferred_card_is_reported_and_ignored() -> None:
    telemetry, problems = read({label("gas-prefer-gpu", "a"): "2", label("gas-prefer-gpu", "b"): "card1"})
    assert telemetry.preferred_card == Card(1)
    assert problems == ["label gas-prefer-gpu of telemetry policy 'a': expected a card name such as card0, found '2'"]


# contract E8.7, E8.8, E8.10
@pytest.mark.parametrize(
    ("names", "closed", "deschedule"),
    [
        pytest.param(["disable-card0_gt1"], {0: {1}}, set[Tile](), id="disabled"),
        pytest.param(["deschedule-card0_gt1"], {0: {1}}, {Tile(Card(0), 1)}, id="descheduled-is-closed-too"),
        pytest.param(
            ["disable-card0_gt1", "deschedule-card0_gt1"],
            {0: {1}},
            {Tile(Card(0), 1)},
            id="by-two-labels-once",
        ),
        pytest.param(["disable-card0_gt0", "disable-card0_gt1"], {0: {0, 1}}, set[Tile](), id="both-tiles"),
        pytest.param(["disable-card0_gt2", "deschedule-card0_gt2"], {}, set[Tile](), id="no-such-tile"),
        pytest.param(["disable-card9_gt0", "deschedule-card9_gt0"], {}, set[Tile](), id="no-such-card"),
        pytest.param(["disable-card3_gt0"], {}, set[Tile](), id="card-without-tiles"),
    ],
)
def test_closed_tiles(names: list[str], closed: Mapping[int, set[int]], deschedule: set[Tile]) -> None:
    telemetry, problems = read({label(f"gas-tile-{name}"): "anything" for name in names})
    assert telemetry.closed_tiles == closed
    assert telemetry.deschedule_tiles == deschedule
    assert not problems


# contract E8.9
@pytest.mark.parametrize(
    ("labels", "preferred"),
    [
        pytest.param({label("gas-tile-preferred-card0"): "gt1"}, {0: [1]}, id="one"),
        pytest.param(
            {label("gas-tile-preferred-card0", "b"): "gt0", label("gas-tile-preferred-card0", "a"): "gt1"},
            {0: [1, 0]},
            id="by-label-name",
        ),
        pytest.param(
            {label("gas-tile-preferred-card0", "b"): "gt1", label("gas-tile-preferred-card0", "a"): "gt1"},
            {0: [1]},
            id="the-same-once",
        ),
        pytest.param({label("gas-tile-preferred-card0"): "gt2"}, {}, id="no-such-tile"),
        pytest.param({label("gas-tile-preferred-card9"): "gt0"}, {}, id="no-such-card"),
    ],
)
def test_preferred_tiles(labels: Mapping[str, str], preferred: Mapping[int, list[int]]) -> None:
    telemetry, problems = read(labels)
    assert (telemetry.preferred_tiles, problems) == (preferred, [])


def test_a_malformed_preferred_tile_is_reported() -> None:
    telemetry, problems = read({label("gas-tile-preferred-card0"): "1"})
    assert telemetry.preferred_tiles == {}
    assert problems == [
        "label gas-tile-preferred-card0 of telemetry policy 'policy': expected a tile name such as gt0, found '1'"
    ]


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("gas-disable-card01", id="leading-zero"),
        pytest.param("gas-disable-gpu0", id="no-card"),
        pytest.param("gas-tile-disable-card0", id="no-tile"),
        pytest.param("gas-disable-card0_gt1", id="tile-where-a-card-belongs"),
        pytest.param("gas-disable-card0/x", id="second-slash"),
        pytest.param("gas-disable-card0\n", id="control-character"),
        pytest.param("gas-" + "x" * 100_000, id="very-long"),
    ],
)
def test_an_unknown_label_that_begins_with_gas_is_reported(name: str) -> None:
    telemetry, problems = read({label(name): "card0"})
    assert said(telemetry) == {}
    (problem,) = problems
    assert problem.startswith("telemetry label 'gas-")
    assert "it is ignored" in problem
    assert problem.isprintable()
    assert len(problem) < 250


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("gas-disable-card0", id="no-namespace"),
        pytest.param("example.com/gas-disable-card0", id="another-namespace"),
        pytest.param("telemetry.aware.scheduling.policy", id="no-name"),
        pytest.param(label("violating"), id="of-another-program"),
    ],
)
def test_other_labels_are_ignored(name: str) -> None:
    telemetry, problems = read({name: "card0"})
    assert (said(telemetry), problems) == ({}, [])


def test_the_order_of_the_labels_does_not_matter() -> None:
    labels = {
        label(name, policy): value
        for policy in "ab"
        for name, value in [("gas-prefer-gpu", "2"), ("gas-x", ""), ("gas-tile-preferred-card0", "7")]
    }
    (one, problems), (other, others) = read(labels), read(dict(reversed(labels.items())))
    assert (said(one), problems) == (said(other), others)
