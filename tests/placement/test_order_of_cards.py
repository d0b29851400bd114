"""The order of cards: natural order, the least used, the preferred one (contract E6.1 to E6.6)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gas.placement.choice import Choice
from gas.placement.inventory import UNUSED, Inventory, Usage
from gas.placement.need import PodNeed
from gas.placement.order import (
    NATURAL,
    BestFit,
    CardOrder,
    FewestContainers,
    LeastUsed,
    LeastUsedParts,
    MostUsedParts,
    UsedFirst,
    parse_card_order,
    resource_of,
)
from gas.placement.place import place
from gas.values.cards import Card
from gas.values.errors import InvalidValue
from tests.placement.builders import GB, amounts, booked, cards, case, container, init, node, placed, pod, sidecar

CARD = amounts(i915=10, millicores=1000, memory=8 * GB)


# contract E4.2, E6.1, E6.5, E6.6
@pytest.mark.parametrize(
    ("need", "inventory", "usage", "expected"),
    [
        case("the-first-card", pod(container()), node(CARD, like=4), "0"),
        case("card2-before-card10", pod(container()), Inventory(capacity={Card(2): CARD, Card(10): CARD}), "2"),
        case(
            "two-cards-with-3-GB-free-are-not-one-card-with-5-GB",
            pod(container(memory=5 * GB)),
            node(CARD, like=2),
            "1",
            usage=booked(amounts(memory=5 * GB)),
        ),
        case(
            "an-exact-fit", pod(container(memory=3 * GB)), node(CARD, like=2), "0", usage=booked(amounts(memory=5 * GB))
        ),
        case("a-card-once-per-container", pod(container(2), container(2)), node(CARD, like=3), "0,1 | 0,1"),
        case(
            "later-containers-see-what-earlier-ones-took",
            pod(container(millicores=600), container(0), container(millicores=600)),
            node(CARD, like=2),
            "0 |  | 1",
        ),
        case(
            "a-need-of-0-does-not-fit-a-card-without-the-resource",
            pod(container(millicores=0)),
            node(amounts(i915=1), CARD),
            "1",
        ),
        case(
            "a-need-of-0-does-not-fit-a-card-with-0-of-the-resource",
            pod(container(millicores=0)),
            node(amounts(i915=1, millicores=0), CARD),
            "1",
        ),
        case(
            "a-card-that-shrank-below-what-is-booked-is-full",
            pod(container(millicores=0)),
            node(CARD, like=2),
            "1",
            usage=booked(amounts(millicores=1001)),
        ),
        case("any-resource-name", pod(container(xe=1)), node(amounts(i915=1, xe=1)), "0"),
        case("only-allowed-cards", pod(container(), allowed=cards(1, 7)), node(CARD, like=3), "1"),
        case(
            "cards-by-another-name",
            pod(container(2), allowed=frozenset({"x", "y"}), denied=frozenset({"z", "unknown"})),
            node(CARD, like=3, other_names={"x": cards(0, 1), "y": cards(2), "z": cards(0)}),
            "1,2",
        ),
        case("no-denied-card", pod(container(), denied=cards(0)), node(CARD, like=3), "1"),
        case(
            "denied-wins-over-allowed", pod(container(), allowed=cards(0, 1), denied=cards(0)), node(CARD, like=3), "1"
        ),
        case("no-disabled-card", pod(container()), node(CARD, like=2, disabled=cards(0)), "1"),
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
    ("need", "inventory", "usage", "expected"),
    [
        case("any-container-has-it", pod(container(0), container(2)), node(CARD, like=3, preferred_card=Card(2)), True),
        case("the-node-prefers-none", pod(container()), node(CARD, like=2), False),
        case("the-node-does-not-have-it", pod(container()), node(CARD, like=2, preferred_card=Card(9)), False),
        case(
            "it-is-full",
            pod(container(millicores=1)),
            node(CARD, like=2, preferred_card=Card(1)),
            False,
            usage=booked({}, amounts(millicores=1000)),
        ),
        case(
            "ignored-with-another-order",
            pod(container(), order=LeastUsed("millicores")),
            node(CARD, like=2, preferred_card=Card(0)),
            False,
        ),
        case("the-pod-wants-no-card", pod(container(0)), node(CARD, like=2, preferred_card=Card(0)), False),
    ],
)
def test_a_choice_states_if_the_pod_got_the_preferred_card(
    need: PodNeed, inventory: Inventory, usage: Usage, expected: bool
) -> None:
    choice = place(need, inventory, usage)
    assert isinstance(choice, Choice)
    assert choice.preferred is expected


# contract E6.2
@pytest.mark.parametrize(
    ("need", "inventory", "usage", "order", "expected"),
    [
        case(
            "least-used-first-equals-in-natural-order",
            pod(container(2)),
            node(CARD, like=4),
            LeastUsed("millicores"),
            "3,1",
            usage=booked(amounts(millicores=2), amounts(millicores=1), amounts(millicores=1)),
        ),
        case(
            "amounts-that-the-pod-has-taken-so-far-count",
            pod(*[container(memory=memory, millicores=1) for memory in (300, 100, 100)]),
            node(CARD, like=2),
            LeastUsed("memory.max"),
            "0 | 1 | 1",
        ),
        case(
            "a-resource-that-the-pod-does-not-want",
            pod(container(), container()),
            node(CARD, like=2),
            LeastUsed("memory.max"),
            "1 | 1",
            usage=booked(amounts(memory=GB)),
        ),
        case(
            "a-resource-that-a-card-does-not-have-any-more",
            pod(container()),
            node(CARD, CARD, {**CARD, "xe": 5}),
            LeastUsed("xe"),
            "1",
            usage=booked(amounts(xe=1)),
        ),
        case(
            "the-preferred-card-is-ignored",
            pod(container()),
            node(CARD, like=3, preferred_card=Card(2)),
            LeastUsed("millicores"),
            "0",
        ),
        case(
            "a-closed-tile-that-a-pod-holds-counts-once",
            pod(container()),
            node(amounts(i915=1, tiles=4), like=3, closed_tiles={Card(0): frozenset({0, 1})}),
            LeastUsed("tiles"),
            "0",
            usage=booked(amounts(tiles=1), amounts(tiles=2), amounts(tiles=2), tiles={0: {1}, 1: {0, 1}, 2: {0, 1}}),
        ),
        case(
            "a-closed-tile-counts-as-used",
            pod(container()),
            node(amounts(i915=1, tiles=4), like=2, closed_tiles={Card(0): frozenset({0})}),
            LeastUsed("tiles"),
            "1",
        ),
    ],
)
def test_the_least_used_card_comes_first(
    need: PodNeed, inventory: Inventory, usage: Usage, order: CardOrder, expected: str
) -> None:
    assert placed(replace(need, order=order), inventory, usage) == expected


FEWEST, USED = FewestContainers(), UsedFirst()


def with_containers(*counts: int) -> Usage:
    return Usage(
        amounts={Card(number): {"i915": count} for number, count in enumerate(counts)},
        containers={Card(number): count for number, count in enumerate(counts)},
    )


@pytest.mark.parametrize(
    ("need", "inventory", "usage", "order", "expected"),
    [
        case(
            "best-fit-takes-the-card-with-the-least-left-that-has-room",
            pod(container(memory=8138)),
            node(amounts(i915=10, memory=16276), like=4),
            BestFit("memory.max"),
            "1",
            usage=booked(amounts(memory=4069), amounts(memory=8138), amounts(memory=12207)),
        ),
        case(
            "best-fit-counts-what-is-left-not-what-is-used-and-then-the-lowest-index",
            pod(container(memory=10)),
            node(amounts(i915=10, memory=40), amounts(i915=10, memory=20), amounts(i915=10, memory=20)),
            BestFit("memory.max"),
            "1",
            usage=booked(amounts(memory=10)),
        ),
        case(
            "best-fit-counts-what-the-pod-has-taken-so-far",
            pod(container(millicores=300), container(millicores=300), container(millicores=300)),
            node(CARD, like=2),
            BestFit("millicores"),
            "1 | 0 | 0",
            usage=booked({}, amounts(millicores=500)),
        ),
        case(
            "a-closed-tile-is-not-left",
            pod(container(tiles=1)),
            node(amounts(i915=1, tiles=4), like=3, closed_tiles={Card(1): frozenset({0, 1})}),
            BestFit("tiles"),
            "1:2",
            usage=booked(amounts(tiles=1), tiles={0: {1}}),
        ),
        case(
            "the-card-with-the-fewest-containers",
            pod(container()),
            node(CARD, like=4),
            FEWEST,
            "1",
            usage=with_containers(2, 0, 1, 1),
        ),
        case(
            "of-equal-ones-the-lowest-index",
            pod(container()),
            node(CARD, like=4),
            FEWEST,
            "1",
            usage=with_containers(2, 1, 1, 1),
        ),
        case(
            "containers-of-the-pod-count",
            pod(container(), container(), container()),
            node(CARD, like=2),
            FEWEST,
            "1 | 0 | 1",
            usage=with_containers(1, 0),
        ),
        case(
            "each-container-of-a-shared-card-counts",
            pod(container(), container(), container(), same_card=frozenset({0, 1})),
            node(CARD, like=2),
            FEWEST,
            "1 | 1 | 0",
            usage=with_containers(1, 0),
        ),
        case(
            "containers-that-are-apart-count-once-on-each-card",
            pod(container(), container(), container(), apart=frozenset({0, 1})),
            node(CARD, like=3),
            FEWEST,
            "0 | 1 | 0",
            usage=with_containers(0, 0, 1),
        ),
        case(
            "an-init-container-is-over-before-the-next-one-starts",
            pod(init(), container(2), container()),
            node(CARD, like=2),
            FEWEST,
            "0 | 0,1 | 0",
        ),
        case("a-sidecar-runs-beside-the-others", pod(sidecar(), container()), node(CARD, like=2), FEWEST, "1 | 0"),
        case("used-cards-first", pod(container(2)), node(CARD, like=4), USED, "2,3", usage=with_containers(0, 0, 3, 1)),
        case(
            "a-card-that-the-pod-has-taken-is-used",
            pod(container(millicores=600), container(millicores=300)),
            node(CARD, like=2),
            USED,
            "1 | 1",
            usage=booked(amounts(millicores=500)),
        ),
        case("the-preferred-card-is-ignored", pod(container()), node(CARD, like=3, preferred_card=Card(2)), USED, "0"),
        *(
            case(
                f"{order}-weighs-parts-of-unlike-cards",
                pod(container(memory=1)),
                node(CARD, amounts(i915=10, millicores=1000, memory=4 * GB), CARD),
                order,
                expected,
                usage=booked(amounts(memory=3 * GB), amounts(memory=2 * GB), amounts(memory=2 * GB, millicores=100)),
            )
            for order, expected in [
                (LeastUsedParts(), "2"),
                (MostUsedParts(), "1"),
                (LeastUsedParts((("memory.max", 1), ("millicores", 3))), "0"),
            ]
        ),
    ],
)
def test_other_orders(need: PodNeed, inventory: Inventory, usage: Usage, order: CardOrder, expected: str) -> None:
    assert placed(replace(need, order=order), inventory, usage) == expected


@pytest.mark.parametrize(
    "order",
    [
        *(NATURAL, FewestContainers(), UsedFirst(), LeastUsedParts(), MostUsedParts()),
        *(LeastUsed("memory.max"), BestFit("millicores")),
    ],
    ids=str,
)
def test_the_text_form_of_an_order_is_read_again(order: CardOrder) -> None:
    assert parse_card_order(str(order)) == order
    assert resource_of(order) == (str(order).partition("=")[2] or None)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Natural",
        "natural=x",
        "most-used=millicores",
        "least-used=",
        "best-fit=gpu.intel.com/tiles",
        "fewest-containers=1",
        "=",
    ],
)
def test_any_other_text_is_not_an_order(text: str) -> None:
    without = " without its prefix" if "/" in text else ""
    with pytest.raises(
        InvalidValue, match=rf"^expected natural\|.*RESOURCE such as millicores{without}, found '{text}'"
    ):
        parse_card_order(text)


def test_an_order_needs_the_name_of_its_resource() -> None:
    with pytest.raises(InvalidValue, match="least-used: expected the name of a resource"):
        LeastUsed("")


@pytest.mark.parametrize("inventory", [node(), node(CARD, disabled=cards(0))], ids=["no-card", "no-usable-card"])
def test_a_pod_that_wants_no_card_fits_everywhere(inventory: Inventory) -> None:
    assert placed(pod(container(0), container(0)), inventory) == " | "


def test_an_order_must_say_where_a_card_belongs() -> None:
    class Unordered(CardOrder):
        name = "unordered"

    with pytest.raises(TypeError, match="key"):
        Unordered()  # type: ignore[abstract]
