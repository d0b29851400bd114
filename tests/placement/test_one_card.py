"""A pod whose containers all get the same card, and pods that share a card by its name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from gas.placement.choice import footprint
from gas.placement.inventory import UNUSED, Company, Inventory, Usage
from gas.placement.need import ContainerNeed, PodNeed, Scope
from gas.placement.order import BestFit, FewestContainers
from gas.placement.place import place
from gas.placement.reason import card_details
from gas.placement.refusal import Refusal
from gas.values.cards import Card
from tests.placement.builders import amounts, booked, cards, case, container, init, node, placed, pod, sidecar

CARD = amounts(i915=10, millicores=1000)
TILED = amounts(i915=10, tiles=2)


@pytest.mark.parametrize(
    ("need", "inventory", "usage", "expected"),
    [
        case(
            "a-card-with-room-for-both",
            pod(container(millicores=600), container(millicores=300), scope=Scope.CARD),
            node(CARD, like=3),
            "1 | 1",
            usage=booked(amounts(millicores=300)),
        ),
        case(
            "init-containers-and-sidecars-too-each-at-its-time",
            pod(
                init(millicores=900), sidecar(millicores=100), container(0), container(millicores=800), scope=Scope.CARD
            ),
            node(CARD, like=2),
            "1 | 1 |  | 1",
            usage=booked(amounts(millicores=200)),
        ),
        case(
            "an-init-container-is-over-before-the-next-one-starts",
            pod(init(millicores=900), container(millicores=900), scope=Scope.CARD),
            node(CARD, like=2),
            "0 | 0",
            usage=booked(amounts(millicores=100)),
        ),
        case(
            "in-the-order-of-the-need",
            pod(container(millicores=200), container(millicores=200), scope=Scope.CARD, order=BestFit("millicores")),
            node(CARD, like=4),
            "2 | 2",
            usage=booked(amounts(millicores=100), amounts(millicores=700), amounts(millicores=600)),
        ),
        case(
            "nearness-does-not-matter",
            pod(container(), container(), scope=Scope.CARD, near=True, order=FewestContainers()),
            node(CARD, like=3, boards=((Card(1), Card(2)),)),
            "0 | 0",
        ),
        case(
            "the-preferred-card-first",
            pod(container(), container(), scope=Scope.CARD),
            node(CARD, like=3, preferred_card=Card(2)),
            "2 | 2",
        ),
        case(
            "with-tiles-and-a-deny-list",
            pod(container(tiles=1), container(tiles=1), scope=Scope.CARD, denied=cards(1)),
            node(TILED, like=3),
            "2:0 | 2:1",
            usage=booked(amounts(tiles=1), tiles={0: {0}}),
        ),
        case(
            "no-card-for-all",
            pod(
                container(millicores=100),
                container(millicores=100),
                container(millicores=900),
                scope=Scope.CARD,
                same_card=frozenset({0, 1}),
            ),
            node(CARD, like=2),
            "no card has room for all 3 containers together (1100 millicores in total)",
        ),
        case(
            "no-card-for-a-sidecar-beside-the-others",
            pod(sidecar(millicores=700), container(millicores=400), scope=Scope.CARD),
            node(CARD, like=2),
            "no card has room for all 2 containers together (1100 millicores in total)",
        ),
        case(
            "the-scope-is-not-in-the-way-of-one-container",
            pod(container(millicores=700), scope=Scope.CARD),
            node(CARD, like=2),
            "no card has 700 millicores free",
            usage=booked(amounts(millicores=400), amounts(millicores=400)),
        ),
    ],
)
def test_one_card(need: PodNeed, inventory: Inventory, usage: Usage, expected: str) -> None:
    assert placed(need, inventory, usage) == expected


def used(names: Mapping[int, str], **millicores: int) -> Usage:
    """Return the usage of cards with one pod each, some with a name; ``card1=500`` books amounts."""
    amounts_of = {Card(number): {"i915": 1} for number in names} | {
        Card.parse(card): {"i915": 1, "millicores": amount} for card, amount in millicores.items()
    }
    return Usage(
        amounts=amounts_of,
        containers=dict.fromkeys(amounts_of, 1),
        names={Card(number): {name} for number, name in names.items() if name},
    )


def named(*containers: ContainerNeed, **rest: Any) -> PodNeed:
    rest = {"named": "train", "scope": Scope.CARD} | rest
    return pod(*(containers or (container(millicores=500),)), **rest)


@pytest.mark.parametrize(
    ("need", "usage", "expected"),
    [
        pytest.param(named(), used({0: "", 1: "other"}), "2", id="a-new-name-goes-to-an-idle-card"),
        pytest.param(named(), used({0: "", 2: "train"}), "2", id="a-known-name-goes-to-its-card"),
        pytest.param(
            named(order=FewestContainers()), used({2: "train"}), "2", id="although-the-order-would-take-another-one"
        ),
        pytest.param(pod(container()), used({0: "train"}), "0", id="a-pod-without-a-name-may-join-a-card-that-has-one"),
        pytest.param(
            named(init(millicores=600), container()),
            used({1: "train"}, card1=300),
            "1 | 1",
            id="all-containers-get-the-card",
        ),
        pytest.param(
            named(),
            used({0: "", 1: "other", 2: ""}),
            "no card idle for the new name 'train' has 500 millicores free",
            id="no-card-is-idle",
        ),
        pytest.param(
            named(),
            used({1: "train"}, card1=600),
            "no card named 'train' has 500 millicores free",
            id="the-card-is-full",
        ),
        pytest.param(
            named(container(millicores=400), container(millicores=400)),
            used({1: "train"}, card1=300),
            "each of 2 containers fits alone, but not all together on the cards named 'train'"
            " (800 millicores in total)",
            id="the-card-is-too-full-for-all",
        ),
        pytest.param(
            named(container(millicores=600), container(millicores=600)),
            used({1: "train"}),
            "no card has room for all 2 containers together (1200 millicores in total)",
            id="no-card-is-large-enough",
        ),
        pytest.param(
            named(),
            used({7: "train"}),
            "no card named 'train' has 500 millicores free",
            id="the-node-no-longer-has-the-card",
        ),
    ],
)
def test_named_cards(need: PodNeed, usage: Usage, expected: str) -> None:
    assert placed(need, node(CARD, like=3), usage) == expected


# contract E7.8
@pytest.mark.parametrize(
    ("need", "usage", "expected"),
    [
        pytest.param(named(scope=Scope.NUMA_CARD), UNUSED, "1", id="a-new-name-goes-to-a-card-of-a-group"),
        pytest.param(named(scope=Scope.NUMA_CARD), used({2: "train"}), "2", id="a-known-name-goes-to-its-card"),
        pytest.param(
            named(scope=Scope.NUMA_CARD),
            used({0: "train"}),
            "no card named 'train' has 500 millicores free",
            id="the-named-card-is-in-no-group",
        ),
        pytest.param(
            named(scope=Scope.NUMA_CARD),
            used({1: "", 2: ""}, card1=800, card2=800),
            "no NUMA group has a card with 500 millicores free",
            id="only-a-card-in-no-group-is-free",
        ),
        pytest.param(
            named(container(millicores=600), container(millicores=600), scope=Scope.NUMA_CARD),
            UNUSED,
            "no card has room for all 2 containers together (1200 millicores in total)",
            id="no-card-is-large-enough",
        ),
    ],
)
def test_named_cards_of_a_numa_group(need: PodNeed, usage: Usage, expected: str) -> None:
    assert placed(need, node(CARD, like=3, numa_groups=((Card(1), Card(2)),)), usage) == expected


def test_a_named_card_may_be_any_one_of_a_node_without_numa_groups() -> None:
    assert placed(named(scope=Scope.NUMA_CARD), node(CARD, like=3)) == "0"


def test_the_refusal_of_a_name_has_a_kind_and_details() -> None:
    refusal = place(named(), node(CARD, like=2), used({0: "train", 1: ""}, card0=600))
    assert isinstance(refusal, Refusal)
    assert refusal.kind == "card-name"
    assert card_details(named(), node(CARD, like=2), used({0: "train", 1: ""}, card0=600)) == (
        "card0: 400 of 1000 millicores free, 500 needed",
        "card1: not named 'train'; 1000 of 1000 millicores free, 500 needed",
    )
    assert card_details(named(), node(CARD, like=2), used({0: ""})) == (
        "card0: not idle, as a card for a new name must be; 1000 of 1000 millicores free, 500 needed",
        "card1: 1000 of 1000 millicores free, 500 needed",
    )


def test_company_of_the_named_card_counts_too() -> None:
    usage = Usage(
        amounts={Card(0): {"i915": 1}},
        containers={Card(0): 1},
        names={Card(0): {"train"}},
        company={Card(0): {Company(exclusion="x")}},
    )
    assert (
        placed(named(), node(CARD, like=2), usage) == "no card open to pods without exclusion has 500 millicores free"
    )
    assert placed(named(company=Company(exclusion="x")), node(CARD, like=2), usage) == "0"


def test_a_footprint_has_the_name_of_its_card() -> None:
    choice = place(named(), node(CARD), UNUSED)
    assert not isinstance(choice, Refusal)
    assert footprint(named(), choice).named == "train"
