"""The order of cards: natural order, the least used, the preferred one (contract E6.1 to E6.6)."""

from __future__ import annotations

import pytest

from gas.cards import Card
from gas.placement.choice import Choice
from gas.placement.inventory import UNUSED, Inventory, Usage
from gas.placement.need import PodNeed
from gas.placement.place import place
from tests.placement.builders import GB, amounts, booked, cards, container, node, placed, pod

CARD = amounts(i915=10, millicores=1000, memory=8 * GB)


# contract E4.2, E6.1, E6.5, E6.6
@pytest.mark.parametrize(
    ("need", "inventory", "usage", "expected"),
    [
        pytest.param(pod(container()), node(CARD, like=4), UNUSED, "0", id="the-first-card"),
        pytest.param(
            pod(container()),
            Inventory(capacity={Card(2): CARD, Card(10): CARD}),
            UNUSED,
            "2",
            id="card2-before-card10",
        ),
        pytest.param(
            pod(container(memory=5 * GB)),
            node(CARD, like=2),
            booked(amounts(memory=5 * GB)),
            "1",
            id="two-cards-with-3-GB-free-are-not-one-card-with-5-GB",
        ),
        pytest.param(
            pod(container(memory=3 * GB)),
            node(CARD, like=2),
            booked(amounts(memory=5 * GB)),
            "0",
            id="an-exact-fit",
        ),
        pytest.param(
            pod(container(2), container(2)),
            node(CARD, like=3),
            UNUSED,
            "0,1 | 0,1",
            id="a-card-once-per-container",
        ),
        pytest.param(
            pod(container(millicores=600), container(0), container(millicores=600)),
            node(CARD, like=2),
            UNUSED,
            "0 |  | 1",
            id="later-containers-see-what-earlier-ones-took",
        ),
        pytest.param(
            pod(container(millicores=0)),
            node(amounts(i915=1), CARD),
            UNUSED,
            "1",
            id="a-need-of-0-does-not-fit-a-card-without-the-resource",
        ),
        pytest.param(
            pod(container(millicores=0)),
            node(amounts(i915=1, millicores=0), CARD),
            UNUSED,
            "1",
            id="a-need-of-0-does-not-fit-a-card-with-0-of-the-resource",
        ),
        pytest.param(
            pod(container(millicores=0)),
            node(CARD, like=2),
            booked(amounts(millicores=1001)),
            "1",
            id="a-card-that-shrank-below-what-is-booked-is-full",
        ),
        pytest.param(pod(container(xe=1)), node(amounts(i915=1, xe=1)), UNUSED, "0", id="any-resource-name"),
        pytest.param(pod(container(), allowed=cards(1, 7)), node(CARD, like=3), UNUSED, "1", id="only-allowed-cards"),
        pytest.param(pod(container(), denied=cards(0)), node(CARD, like=3), UNUSED, "1", id="no-denied-card"),
        pytest.param(
            pod(container(), allowed=cards(0, 1), denied=cards(0)),
            node(CARD, like=3),
            UNUSED,
            "1",
            id="denied-wins-over-allowed",
        ),
        pytest.param(pod(container()), node(CARD, like=2, disabled=cards(0)), UNUSED, "1", id="no-disabled-card"),
    ],
)
def test_the_first_usable_card_with_room(need: PodNeed, inventory: Inventory, usage: Usage, expected: str) -> None:
    assert placed(need, inventory, usage) == expected


# contract E6.3
@pytest.mark.parametrize(
    ("need", "usage", "expected"),
    [
        pytest.param(pod(container(3)), UNUSED, "2,1,0", id="it-swaps-places-with-the-first-card"),
        pytest.param(pod(container(4)), UNUSED, "2,1,0,3", id="the-other-cards-keep-their-places"),
        pytest.param(
            pod(container(millicores=500)),
            booked({}, {}, amounts(millicores=600)),
            "1",
            id="a-full-preferred-card-is-skipped-and-card0-keeps-the-other-place",
        ),
    ],
)
def test_a_preferred_card_is_tried_first(need: PodNeed, usage: Usage, expected: str) -> None:
    assert placed(need, node(CARD, like=4, preferred_card=Card(2)), usage) == expected


@pytest.mark.parametrize(
    ("need", "inventory", "usage", "balanced", "expected"),
    [
        pytest.param(
            pod(container(0), container(2)),
            node(CARD, like=3, preferred_card=Card(2)),
            UNUSED,
            None,
            True,
            id="any-container-has-it",
        ),
        pytest.param(pod(container()), node(CARD, like=2), UNUSED, None, False, id="the-node-prefers-none"),
        pytest.param(
            pod(container()),
            node(CARD, like=2, preferred_card=Card(9)),
            UNUSED,
            None,
            False,
            id="the-node-does-not-have-it",
        ),
        pytest.param(
            pod(container(millicores=1)),
            node(CARD, like=2, preferred_card=Card(1)),
            booked({}, amounts(millicores=1000)),
            None,
            False,
            id="it-is-full",
        ),
        pytest.param(
            pod(container()),
            node(CARD, like=2, preferred_card=Card(0)),
            UNUSED,
            "millicores",
            False,
            id="ignored-with-a-balanced-resource",
        ),
        pytest.param(
            pod(container(0)),
            node(CARD, like=2, preferred_card=Card(0)),
            UNUSED,
            None,
            False,
            id="the-pod-wants-no-card",
        ),
    ],
)
def test_a_choice_states_if_the_pod_got_the_preferred_card(
    need: PodNeed, inventory: Inventory, usage: Usage, balanced: str | None, expected: bool
) -> None:
    choice = place(need, inventory, usage, balanced=balanced)
    assert isinstance(choice, Choice)
    assert choice.preferred is expected


# contract E6.2
@pytest.mark.parametrize(
    ("need", "inventory", "usage", "balanced", "expected"),
    [
        pytest.param(
            pod(container(2)),
            node(CARD, like=4),
            booked(amounts(millicores=2), amounts(millicores=1), amounts(millicores=1)),
            "millicores",
            "3,1",
            id="least-used-first-equals-in-natural-order",
        ),
        pytest.param(
            pod(container(millicores=300), container(millicores=100), container(millicores=100)),
            node(CARD, like=2),
            UNUSED,
            "millicores",
            "0 | 1 | 1",
            id="amounts-that-the-pod-has-taken-so-far-count",
        ),
        pytest.param(
            pod(container(), container()),
            node(CARD, like=2),
            booked(amounts(memory=GB)),
            "memory.max",
            "1 | 1",
            id="a-resource-that-the-pod-does-not-want",
        ),
        pytest.param(
            pod(container()),
            node(CARD, like=3, preferred_card=Card(2)),
            UNUSED,
            "millicores",
            "0",
            id="the-preferred-card-is-ignored",
        ),
        pytest.param(
            pod(container()),
            node(amounts(i915=1, tiles=4), like=3, closed_tiles={Card(0): frozenset({0, 1})}),
            booked(amounts(tiles=1), amounts(tiles=2), amounts(tiles=2), tiles={0: {1}, 1: {0, 1}, 2: {0, 1}}),
            "tiles",
            "0",
            id="a-closed-tile-that-a-pod-holds-counts-once",
        ),
        pytest.param(
            pod(container()),
            node(amounts(i915=1, tiles=4), like=2, closed_tiles={Card(0): frozenset({0})}),
            UNUSED,
            "tiles",
            "1",
            id="a-closed-tile-counts-as-used",
        ),
    ],
)
def test_a_balanced_resource_orders_the_cards(
    need: PodNeed, inventory: Inventory, usage: Usage, balanced: str, expected: str
) -> None:
    assert placed(need, inventory, usage, balanced=balanced) == expected


@pytest.mark.parametrize("inventory", [node(), node(CARD, disabled=cards(0))], ids=["no-card", "no-usable-card"])
def test_a_pod_that_wants_no_card_fits_everywhere(inventory: Inventory) -> None:
    assert placed(pod(container(0), container(0)), inventory) == " | "
