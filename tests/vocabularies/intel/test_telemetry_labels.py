"""The effect of telemetry labels on cards and tiles."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from gas.values.cards import Card, Tile
from gas.vocabularies.intel.telemetry_labels import Telemetry, read_telemetry

BOARD = frozenset({Card(0), Card(1)})
BOARDS = dict.fromkeys(BOARD, BOARD)
TILES = {Card(0): 2, Card(1): 2, Card(2): 2, Card(3): 0}


def label(name: str, policy: str = "policy") -> str:
    return f"telemetry.aware.scheduling.{policy}/{name}"


def read(labels: Mapping[str, str]) -> tuple[Telemetry, list[str]]:
    problems: list[str] = []
    return read_telemetry(labels, TILES, BOARDS, problems), problems


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
        pytest.param({label("gas-tile-preferred-card0"): "gt1"}, {0: (1,)}, id="one"),
        pytest.param(
            {label("gas-tile-preferred-card0", "b"): "gt0", label("gas-tile-preferred-card0", "a"): "gt1"},
            {0: (1, 0)},
            id="by-label-name",
        ),
        pytest.param(
            {label("gas-tile-preferred-card0", "b"): "gt1", label("gas-tile-preferred-card0", "a"): "gt1"},
            {0: (1,)},
            id="the-same-once",
        ),
        pytest.param({label("gas-tile-preferred-card0"): "gt2"}, {}, id="no-such-tile"),
        pytest.param({label("gas-tile-preferred-card9"): "gt0"}, {}, id="no-such-card"),
    ],
)
def test_preferred_tiles(labels: Mapping[str, str], preferred: Mapping[int, tuple[int, ...]]) -> None:
    telemetry, problems = read(labels)
    assert (telemetry.preferred_tiles, problems) == (preferred, [])


def test_a_malformed_preferred_tile_is_reported() -> None:
    telemetry, problems = read({label("gas-tile-preferred-card0"): "1"})
    assert telemetry.preferred_tiles == {}
    assert problems == [
        "label gas-tile-preferred-card0 of telemetry policy 'policy': expected a tile name such as gt0, found '1'"
    ]


NOTHING = Telemetry(
    disabled=frozenset(),
    deschedule_cards=frozenset(),
    closed_tiles={},
    deschedule_tiles=frozenset(),
    preferred_card=None,
    preferred_tiles={},
)


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
    assert telemetry == NOTHING
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
    assert read({name: "card0"}) == (NOTHING, [])


def test_the_order_of_the_labels_does_not_matter() -> None:
    labels = {
        label(name, policy): value
        for policy in "ab"
        for name, value in [("gas-prefer-gpu", "2"), ("gas-x", ""), ("gas-tile-preferred-card0", "7")]
    }
    assert read(labels) == read(dict(reversed(labels.items())))
