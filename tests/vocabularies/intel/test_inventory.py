"""Reading a node's object into an inventory."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gas.objects.stored import Node, NodeStatus, ObjectMeta, Quantity
from gas.placement.inventory import Inventory, Link
from gas.values.cards import Card, Tile
from gas.vocabularies.intel.inventory import MOST_RESOURCES, read_node
from gas.vocabularies.intel.node_texts import split_value
from gas.vocabularies.intel.vocabulary import INTEL
from gas.vocabularies.protocol import NodeFacts

GPU = "gpu.intel.com/"


def facts(
    labels: Mapping[str, str] | None = None,
    allocatable: Mapping[str, Quantity] | None = None,
    card_capacity: str | None = None,
) -> NodeFacts:
    """Return the facts of a node with these ``gpu.intel.com/`` labels (telemetry's in full) and resources."""
    return read_node(
        Node(
            metadata=ObjectMeta(
                name="node",
                labels={name if "/" in name else GPU + name: value for name, value in (labels or {}).items()},
                annotations=None if card_capacity is None else {"gas-card-capacity": card_capacity},
            ),
            status=NodeStatus(allocatable={GPU + name: amount for name, amount in (allocatable or {}).items()}),
        )
    )


# contract E2.1, E2.2
@pytest.mark.parametrize(
    ("labels", "cards", "problem"),
    [
        pytest.param({}, (), "", id="no-labels"),
        pytest.param({"gpu-numbers": "0.1.2"}, (0, 1, 2), "", id="gpu-numbers"),
        pytest.param({"cards": "card0.card1"}, (0, 1), "", id="cards"),
        pytest.param({"gpu-numbers": "3", "cards": "card0.card1"}, (3,), "", id="gpu-numbers-are-preferred"),
        pytest.param({"gpu-numbers": "10.2.0"}, (0, 2, 10), "", id="natural-order"),
        pytest.param({"cards": "card10.card2"}, (2, 10), "", id="natural-order-of-cards"),
        pytest.param({"gpu-numbers": "0.1.2", "gpu-numbers2": "Z4.5"}, (0, 1, 5, 24), "", id="continued"),
        pytest.param(
            {"gpu-numbers": "1.0.1"},
            (0, 1),
            f"label {GPU}gpu-numbers: '1' is listed more than once; the first one is used",
            id="duplicates-count-once",
        ),
        pytest.param(
            {"gpu-numbers": "0.x.01.2"},
            (0, 2),
            f"label {GPU}gpu-numbers: expected numbers such as 0.1.10, found 'x', '01'; other entries are used",
            id="the-readable-cards-are-kept",
        ),
        pytest.param(
            {"gpu-numbers": "x", "cards": "card7"},
            (7,),
            f"label {GPU}gpu-numbers: expected numbers such as 0.1.10, found 'x'; other entries are used",
            id="cards-when-gpu-numbers-name-none",
        ),
        pytest.param(
            {"gpu-numbers": "", "cards": "card7"},
            (7,),
            f"label {GPU}gpu-numbers: expected a text, found an empty value",
            id="cards-when-gpu-numbers-are-empty",
        ),
        pytest.param(
            {"gpu-numbers": "0", "gpu-numbers3": "Z.7"},
            (0,),
            f"label {GPU}gpu-numbers2 is missing, so '{GPU}gpu-numbers3' is ignored",
            id="gap",
        ),
        pytest.param(
            {"cards": "card0.1.card01"},
            (0,),
            f"label {GPU}cards: expected card names such as card0.card1, found '1', 'card01'; other entries are used",
            id="malformed-cards",
        ),
        pytest.param(
            {"cards": ""},
            (),
            f"label {GPU}cards: expected card names such as card0.card1, found ''; other entries are used",
            id="empty-cards",
        ),
    ],
)
def test_the_nodes_cards(labels: Mapping[str, str], cards: tuple[int, ...], problem: str) -> None:
    read = facts(labels)
    assert read.inventory.cards == cards
    assert all(isinstance(card, Card) for card in read.inventory.cards)
    assert read.problems == ((problem,) if problem else ())


def test_of_thousands_of_cards_the_first_are_read() -> None:
    """Some rules compare each card with each other one, which takes time for every pod."""
    most, text = (".".join(map(str, range(count))) for count in (1024, 5000))
    assert facts(split_value("gpu-numbers", most)).problems == ()
    read = facts(split_value("gpu-numbers", text), {"i915": 5000})
    assert read.inventory.cards == tuple(map(Card, range(1024)))
    assert read.problems == (
        f"label {GPU}gpu-numbers: expected at most 1024 cards, found 5000; the others are ignored",
    )


def test_thousands_of_malformed_entries_are_one_problem() -> None:
    (problem,) = facts({"gpu-numbers": "0." + ".".join(f"x{number}" for number in range(5000))}).problems
    assert "and 4997 more" in problem


# contract E4.1, E4.2
@pytest.mark.parametrize(
    ("allocatable", "each", "problem"),
    [
        pytest.param({"i915": "2", "millicores": "2000"}, {"i915": 1, "millicores": 1000}, "", id="even-share"),
        pytest.param({"i915": 2, "memory.max": "16Gi"}, {"i915": 1, "memory.max": 2**33}, "", id="quantities"),
        pytest.param({"millicores": "5"}, {"millicores": 2}, "", id="integer-division"),
        pytest.param(
            {"i915": "1"},
            {},
            "allocatable gpu.intel.com/i915: expected at least 1 for each of 2 cards, found 1; no card has any",
            id="a-share-of-0-is-left-out",
        ),
        pytest.param({"i915": "0", "xe": "2"}, {"xe": 1}, "", id="zero-is-left-out"),
        pytest.param(
            {"i915_monitoring": "1", "xe_monitoring": "1", "monitoring": "2", "i915": "2"},
            {"i915": 1},
            "",
            id="monitoring-is-not-booked",
        ),
        pytest.param({"example": "2"}, {"example": 1}, "", id="any-prefixed-resource"),
        pytest.param(
            {f"r{at:02}": "2" for at in range(MOST_RESOURCES + 1)},
            {f"r{at:02}": 1 for at in range(MOST_RESOURCES)},
            f"allocatable '{GPU}r64': expected at most 64 resources under {GPU}; it and those after it are ignored",
            id="too-many-resources",
        ),
        pytest.param(
            {"i915": "2", "millicores": "many"},
            {"i915": 1},
            f"allocatable '{GPU}millicores': expected a quantity such as 5, 500k or 5Gi, found 'many'; it is ignored",
            id="an-unreadable-amount-is-left-out",
        ),
        pytest.param(
            {"i915": "-2", "xe": "2"},
            {"xe": 1},
            f"allocatable '{GPU}i915': expected a number that is not negative, found '-2'; it is ignored",
            id="a-negative-amount-is-left-out",
        ),
        pytest.param({"tiles": "512"}, {"tiles": 256}, "", id="many-tiles"),
        pytest.param(
            {"tiles": str(2**63 - 1), "i915": 2},
            {"i915": 1},
            f"resource {GPU}tiles: expected at most 256 on a card, found more on 'card0', 'card1';"
            " these cards count as cards without tiles",
            id="more-tiles-than-any-card-has",
        ),
    ],
)
def test_capacity_is_the_nodes_divided_by_its_cards(
    allocatable: Mapping[str, Quantity], each: Mapping[str, int], problem: str
) -> None:
    read = facts({"gpu-numbers": "0.1"}, allocatable)
    assert read.inventory.capacity == {Card(0): each, Card(1): each}
    assert read.problems == ((problem,) if problem else ())


# contract E1.1
def test_resources_with_other_prefixes_are_ignored() -> None:
    node = Node(
        metadata=ObjectMeta(name="node", labels={GPU + "gpu-numbers": "0"}),
        status=NodeStatus(allocatable={"cpu": "1.5", "nvidia.com/gpu": "1", GPU + "i915": "1"}),
    )
    assert read_node(node) == NodeFacts(inventory=Inventory(capacity={Card(0): {"i915": 1}}))


# contract E4.3
@pytest.mark.parametrize(
    ("annotation", "capacity"),
    [
        pytest.param(
            "card0=memory.max:5;card1=memory.max:11",
            [{"i915": 1, "memory.max": 5}, {"i915": 1, "memory.max": 11}],
            id="unlike-cards",
        ),
        pytest.param(
            "card1=memory.max:11",
            [{"i915": 1, "memory.max": 8}, {"i915": 1, "memory.max": 11}],
            id="unlisted-cards-keep-the-even-share",
        ),
        pytest.param(
            "card0=i915:1,xe:0;card1=i915:0,xe:1",
            [{"i915": 1, "memory.max": 8}, {"xe": 1, "memory.max": 8}],
            id="cards-of-two-drivers",
        ),
        pytest.param("", [{"i915": 1, "memory.max": 8}] * 2, id="empty"),
    ],
)
def test_the_annotation_states_amounts_of_single_cards(annotation: str, capacity: list[Mapping[str, int]]) -> None:
    read = facts({"gpu-numbers": "0.1"}, {"i915": 2, "memory.max": 16}, annotation)
    assert list(read.inventory.capacity.values()) == capacity
    assert read.problems == ()


def test_a_resource_of_fewer_cards_than_all_is_right_if_the_annotation_states_it() -> None:
    assert facts({"gpu-numbers": "0.1"}, {"i915": 2, "tiles": 1}, "card0=tiles:1").problems == ()


def test_an_annotation_about_another_card_is_reported_and_the_rest_is_used() -> None:
    read = facts({"gpu-numbers": "0"}, {"i915": 1}, "card7=i915:1;card0=i915:3")
    assert read.inventory.capacity == {Card(0): {"i915": 3}}
    assert read.problems == ("annotation gas-card-capacity: the node does not have 'card7'",)


def test_everything_about_a_node_together() -> None:
    policy = "telemetry.aware.scheduling.p/"
    read = facts(
        {
            "gpu-numbers": "0.1.2.3",
            "numa-gpu-map": "0-0.1_1-2.3",
            "pci-groups": "0.1_2.3",
            "xe-links": "0.0-1.0",
            policy + "gas-disable-card1": "PCI_GROUP",
            policy + "gas-deschedule-pods-card2": "x",
            policy + "gas-prefer-gpu": "card3",
            policy + "gas-tile-deschedule-card2_gt0": "x",
            policy + "gas-tile-disable-card2_gt2": "x",
            policy + "gas-tile-preferred-card3": "gt1",
        },
        {"i915": 4, "tiles": 8},
    )
    assert read == NodeFacts(
        inventory=Inventory(
            capacity={Card(number): {"i915": 1, "tiles": 2} for number in range(4)},
            disabled=frozenset({Card(0), Card(1)}),
            closed_tiles={Card(2): frozenset({0})},
            preferred_card=Card(3),
            preferred_tiles={Card(3): (1,)},
            numa_groups=((Card(0), Card(1)), (Card(2), Card(3))),
            links=(Link(Tile(Card(0), 0), Tile(Card(1), 0)),),
            boards=((Card(0), Card(1)), (Card(2), Card(3))),
        ),
        deschedule_cards=frozenset({Card(2)}),
        deschedule_tiles=frozenset({Tile(Card(2), 0)}),
        closed_by={
            **{Card(number): ("label gas-disable-card1 of telemetry policy 'p'",) for number in range(2)},
            Card(2): (
                "label gas-deschedule-pods-card2 of telemetry policy 'p'",
                "label gas-tile-deschedule-card2_gt0 of telemetry policy 'p'",
            ),
        },
    )


def test_labels_that_deschedule_pods_count_only_where_kubelet_has_gpus() -> None:
    policy = "telemetry.aware.scheduling.p/"
    labels = {
        GPU + "gpu-numbers": "0",
        policy + "gas-deschedule-pods-card0": "",
        policy + "gas-tile-deschedule-card0_gt0": "",
    }
    allocatable: dict[str, Quantity] = {GPU + "i915": 1, GPU + "tiles": 1}
    for capacity in (None, allocatable):
        status = NodeStatus(allocatable=allocatable, capacity=capacity)
        read = INTEL.facts(Node(metadata=ObjectMeta(name="node", labels=labels), status=status))
        assert [bool(each) for each in (read.deschedule_cards, read.deschedule_tiles)] == [bool(capacity)] * 2


def test_tiles_of_single_cards_count_for_links_and_telemetry() -> None:
    read = facts(
        {
            "gpu-numbers": "0.1",
            "xe-links": "0.1-1.0",
            "telemetry.aware.scheduling.p/gas-tile-disable-card1_gt1": "x",
        },
        {"i915": 2},
        "card0=tiles:2;card1=tiles:1",
    )
    assert len(read.inventory.links) == 1
    assert read.inventory.closed_tiles == {}


def test_a_node_without_gpus_has_no_cards_and_no_problem() -> None:
    assert read_node(Node(metadata=ObjectMeta(name="node"))) == NodeFacts(inventory=Inventory(capacity={}))


def test_gpus_without_a_label_that_names_them_are_reported() -> None:
    assert facts({}, {"xe": 2}).problems == (
        f"{GPU}xe is allocatable, but neither label {GPU}gpu-numbers nor {GPU}cards names a card;"
        " pods get no card of this node",
    )


def test_a_node_that_has_lost_its_gpus_has_no_problem() -> None:
    assert facts({}, {"i915": "0"}).problems == ()


TEXT = st.text("0123.-_Zcardgtix:;=,Gi \x00é", max_size=12)
LABELS = st.sampled_from(
    [
        *(GPU + name for name in ["cards", "gpu-numbers", "gpu-numbers2", "gpu-numbers3"]),
        *(GPU + name for name in ["numa-gpu-map", "pci-groups", "pci-groups2", "xe-links"]),
        *(
            f"telemetry.aware.scheduling.{policy}/gas-{name}"
            for policy in "ab"
            for name in ["disable-card0", "prefer-gpu", "tile-disable-card1_gt1", "tile-preferred-card0"]
        ),
    ]
)


@given(
    labels=st.dictionaries(LABELS, TEXT | st.just("0.1.2")),
    more=st.dictionaries(TEXT.map("telemetry.aware.scheduling.p/gas-".__add__), TEXT),
    allocatable=st.dictionaries(st.sampled_from(["i915", "tiles", "x"]), TEXT | st.integers() | st.floats()),
    card_capacity=st.none() | TEXT | TEXT.map("card0=".__add__),
)
def test_any_node_is_read_and_equal_nodes_have_equal_problems(
    labels: dict[str, str],
    more: dict[str, str],
    allocatable: dict[str, str | int | float],
    card_capacity: str | None,
) -> None:
    read = facts(labels | more, allocatable, card_capacity)
    turned = facts(dict(reversed((labels | more).items())), dict(reversed(allocatable.items())), card_capacity)
    assert read == turned
    for problem in read.problems:
        assert problem.isprintable()
        assert len(problem) < 400
    cards = set(read.inventory.cards)
    assert read.inventory.disabled <= cards
    assert all(amount > 0 for amounts in read.inventory.capacity.values() for amount in amounts.values())
    assert {card for group in read.inventory.numa_groups or () for card in group} <= cards
