"""Ratios: amounts that are a part of what the card has."""

from __future__ import annotations

from typing import Any

import pytest

from gas.placement.choice import Choice, ContainerChoice, footprint
from gas.placement.inventory import UNUSED, Inventory, Usage
from gas.placement.need import ContainerNeed, PodNeed, Role, Scope
from gas.placement.order import BestFit, LeastUsed, LeastWaste
from gas.placement.place import place
from gas.placement.ratio import Ratio, amounts_on
from gas.placement.reason import card_details
from gas.placement.waste import Mix
from gas.values.amounts import sorted_amounts
from gas.values.cards import Card
from gas.values.errors import InvalidValue
from tests.placement.builders import GB, amounts, booked, case, container, link, node, placed, pod

SMALL, LARGE = amounts(i915=10, millicores=1000, memory=8 * GB), amounts(i915=10, millicores=1000, memory=16 * GB)
HALF, QUARTER = (Ratio("memory.max", percent) for percent in (50, 25))


def part(*ratios: Ratio, count: int = 1, role: Role = Role.APP, **of: int) -> ContainerNeed:
    """Return a container that wants these ratios of each of its cards."""
    return ContainerNeed("container", count, sorted_amounts(amounts(**{"i915": 1, **of})), role, ratios)


def takes(need: PodNeed, inventory: Inventory, usage: Usage = UNUSED, **options: Any) -> dict[int, dict[str, int]]:
    """Return what the placed pod takes of each card."""
    choice = place(need, inventory, usage, **options)
    assert isinstance(choice, Choice), choice
    held = footprint(need, choice, inventory.capacity)
    return {int(card): {name: n for name, n in each if name != "i915"} for card, each in held.amounts.items()}


@pytest.mark.parametrize(
    ("need", "inventory", "usage", "expected"),
    [
        case("half-of-8-GB", pod(part(HALF)), node(SMALL), {0: {"memory.max": 4 * GB}}),
        case("half-of-16-GB", pod(part(HALF)), node(LARGE), {0: {"memory.max": 8 * GB}}),
        case(
            "half-of-each-of-two-unlike-cards",
            pod(part(HALF, count=2)),
            node(SMALL, LARGE),
            {0: {"memory.max": 4 * GB}, 1: {"memory.max": 8 * GB}},
        ),
        case(
            "a-card-with-a-larger-remainder-may-be-too-full",
            pod(part(HALF)),
            node(LARGE, SMALL, LARGE),
            {2: {"memory.max": 8 * GB}},
            usage=booked(amounts(memory=8 * GB + 1), amounts(memory=4 * GB + 1)),
        ),
        case(
            "a-smaller-card-may-have-room",
            pod(part(HALF)),
            node(LARGE, SMALL),
            {1: {"memory.max": 4 * GB}},
            usage=booked(amounts(memory=9 * GB)),
        ),
        case(
            "containers-of-one-card",
            pod(part(HALF), part(QUARTER), part(Ratio("memory.max", 25))),
            node(SMALL),
            {0: {"memory.max": 8 * GB}},
        ),
        case(
            "beside-an-absolute-amount",
            pod(part(HALF), container(memory=4 * GB)),
            node(SMALL),
            {0: {"memory.max": 8 * GB}},
        ),
        case(
            "parts-are-added-before-they-are-rounded-down",
            pod(part(HALF), part(HALF)),
            node(amounts(i915=2, memory=7)),
            {0: {"memory.max": 7}},
        ),
        case(
            "a-part-that-is-rounded-down-to-nothing-fits-on-a-full-card",
            pod(part(Ratio("memory.max", 1))),
            node(amounts(i915=2, memory=99)),
            {0: {"memory.max": 0}},
            usage=booked(amounts(memory=99)),
        ),
        case(
            "an-init-container-is-over-before-the-next-one-starts",
            pod(part(Ratio("memory.max", 75), role=Role.INIT), part(HALF)),
            node(SMALL),
            {0: {"memory.max": 6 * GB}},
        ),
        case(
            "a-sidecar-runs-beside-the-others",
            pod(part(QUARTER, role=Role.SIDECAR), part(HALF, role=Role.INIT), part(HALF)),
            node(SMALL),
            {0: {"memory.max": 6 * GB}},
        ),
        case(
            "containers-that-share-a-card",
            pod(part(QUARTER), part(QUARTER), container(memory=2 * GB), same_card=frozenset({0, 1, 2})),
            node(SMALL, SMALL),
            {1: {"memory.max": 6 * GB}},
            usage=booked(amounts(memory=3 * GB)),
        ),
        case(
            "in-an-order-of-cards",
            pod(part(HALF), order=BestFit("memory.max")),
            node(LARGE, SMALL, LARGE),
            {0: {"memory.max": 8 * GB}},
            usage=booked(amounts(memory=8 * GB)),
        ),
        case(
            "what-the-pod-has-taken-counts-in-an-order",
            pod(part(QUARTER), part(QUARTER), part(QUARTER), order=LeastUsed("memory.max")),
            node(SMALL, LARGE),
            {0: {"memory.max": 4 * GB}, 1: {"memory.max": 4 * GB}},
            usage=booked({}, amounts(memory=3 * GB)),
        ),
        case(
            "rounded-down",
            pod(part(HALF), part(HALF), order=LeastUsed("memory.max")),
            node(amounts(i915=2, memory=7), like=2),
            {0: {"memory.max": 7}},
            usage=booked({}, amounts(memory=3)),
        ),
        case(
            "in-the-order-of-least-waste",
            pod(part(QUARTER), order=LeastWaste(Mix())),
            node(SMALL, SMALL),
            {1: {"memory.max": 2 * GB}},
            usage=booked({}, amounts(memory=6 * GB)),
        ),
        case(
            "of-linked-cards",
            pod(part(HALF, count=2, tiles=1), linked=True),
            node({**SMALL, "tiles": 1}, {**LARGE, "tiles": 1}, {**SMALL, "tiles": 1}, links=(link((1, 0), (2, 0)),)),
            {1: {"memory.max": 8 * GB, "tiles": 1}, 2: {"memory.max": 4 * GB, "tiles": 1}},
        ),
    ],
)
def test_percent_of_a_card(
    need: PodNeed, inventory: Inventory, usage: Usage, expected: dict[int, dict[str, int]]
) -> None:
    assert takes(need, inventory, usage) == expected


def share(memory: int, role: Role = Role.APP) -> ContainerNeed:
    """Return a container with this much memory, and millicores in proportion."""
    return part(Ratio("millicores", memory, of="memory.max"), role=role, memory=memory)


@pytest.mark.parametrize(
    ("containers", "card", "millicores"),
    [
        pytest.param([share(8138)], amounts(i915=9, millicores=1000, memory=16276), 500, id="half"),
        pytest.param([share(1)], amounts(i915=9, millicores=1000, memory=3), 333, id="rounded-down"),
        pytest.param([share(3), share(3)], amounts(i915=9, millicores=1000, memory=7), 857, id="for-the-whole-pod"),
        pytest.param([share(2)], amounts(i915=9, millicores=500, memory=8), 125, id="of-what-the-card-has"),
        pytest.param(
            [share(2, Role.SIDECAR), share(5, Role.INIT), share(1)],
            amounts(i915=9, millicores=1000, memory=7),
            1000,
            id="at-the-moment-that-needs-most",
        ),
    ],
)
def test_millicores_in_proportion_to_memory(
    containers: list[ContainerNeed], card: dict[str, int], millicores: int
) -> None:
    need = pod(*containers, scope=Scope.CARD)
    assert takes(need, node(card))[0]["millicores"] == millicores
    assert takes(need, node(card), booked(amounts(millicores=card["millicores"] - millicores)))
    full = booked(amounts(millicores=card["millicores"] - millicores + 1))
    assert "millicores in proportion to" in placed(need, node(card), full)


@pytest.mark.parametrize(
    ("need", "inventory", "usage", "sentence", "details"),
    [
        case(
            "percent",
            pod(part(HALF)),
            node(SMALL, LARGE),
            "no card has 50 percent of memory.max free",
            (
                "card0: 3.0 of 8.0 GB of memory.max free, 4.0 needed",
                "card1: 7.0 of 16.0 GB of memory.max free, 8.0 needed",
            ),
            usage=booked(amounts(memory=5 * GB), amounts(memory=9 * GB)),
        ),
        case(
            "together-with-an-amount",
            pod(part(HALF, millicores=500)),
            node(SMALL, SMALL),
            "no card has 500 millicores and 50 percent of memory.max free together",
            (
                "card0: 3.0 of 8.0 GB of memory.max free, 4.0 needed; 1000 of 1000 millicores free, 500 needed",
                "card1: 8.0 of 8.0 GB of memory.max free, 4.0 needed; 100 of 1000 millicores free, 500 needed",
            ),
            usage=booked(amounts(memory=5 * GB), amounts(millicores=900)),
        ),
        case(
            "not-together",
            pod(part(HALF), part(Ratio("memory.max", 75))),
            node(SMALL),
            "each of 2 containers fits alone, but not all together (125 percent of memory.max in total)",
            ("card0: 8.0 of 8.0 GB of memory.max free, 6.0 needed",),
        ),
        case(
            "not-together-with-an-amount",
            pod(part(HALF), part(QUARTER), container(memory=3 * GB)),
            node(SMALL),
            "each of 3 containers fits alone, but not all together"
            " (3.0 GB of memory.max and 75 percent of memory.max in total)",
            ("card0: 8.0 of 8.0 GB of memory.max free, 4.0 needed",),
        ),
        case(
            "more-than-a-card",
            pod(part(Ratio("memory.max", 150))),
            node(SMALL),
            "no card has 150 percent of memory.max free",
            ("card0: 8.0 of 8.0 GB of memory.max free, 12.0 needed",),
        ),
        case(
            "a-card-without-the-resource",
            pod(part(HALF)),
            node(amounts(i915=1)),
            "no card of the node has any memory.max (see the events of the node)",
            ("card0: has no memory.max",),
        ),
        case(
            "in-proportion",
            pod(share(5 * GB)),
            node(SMALL),
            "no card has millicores in proportion to 5.0 GB of memory.max free",
            ("card0: 8.0 of 8.0 GB of memory.max free, 5.0 needed; 100 of 1000 millicores free, 625 needed",),
            usage=booked(amounts(millicores=900)),
        ),
        case(
            "links",
            pod(part(HALF, count=2, tiles=1), linked=True),
            node({**SMALL, "tiles": 1}, {**SMALL, "tiles": 1}, {**SMALL, "tiles": 1}, links=(link((0, 0), (1, 0)),)),
            "no free linked pair of cards with 50 percent of memory.max free each",
            (
                "card0: no free link to a card with room; 3.0 of 8.0 GB of memory.max free, 4.0 needed;"
                " 1 of 1 tiles free, 1 needed",
                "card1: no free link to a card with room; 8.0 of 8.0 GB of memory.max free, 4.0 needed;"
                " 1 of 1 tiles free, 1 needed",
                "card2: no free link to a card with room; 8.0 of 8.0 GB of memory.max free, 4.0 needed;"
                " 1 of 1 tiles free, 1 needed",
            ),
            usage=booked(amounts(memory=5 * GB)),
        ),
    ],
)
def test_refusals_name_the_ratio(
    need: PodNeed, inventory: Inventory, usage: Usage, sentence: str, details: tuple[str, ...]
) -> None:
    assert placed(need, inventory, usage) == sentence
    assert card_details(need, inventory, usage) == details


def test_unlike_cards_with_the_same_free_amounts_are_not_interchangeable() -> None:
    """Both have 4 GB free, but half of the larger one is 8 GB; the search must not take one for the other."""
    inventory = node(SMALL, LARGE)
    usage = booked(amounts(memory=4 * GB), amounts(memory=12 * GB))
    assert placed(pod(container(memory=4 * GB), part(HALF)), inventory, usage) == "1 | 0"


def test_containers_with_unlike_ratios_are_not_interchangeable() -> None:
    """75 and 50 percent cannot both be on card0; the search must not take one order of them for the other."""
    inventory = node(amounts(i915=2, memory=4), amounts(i915=1, memory=8))
    need = pod(part(Ratio("memory.max", 75)), part(HALF), part(QUARTER))
    assert placed(need, inventory, booked(amounts(memory=1))) == "1 | 0 | 0"


def test_pods_that_take_the_same_share_one_footprint_and_those_on_other_cards_do_not() -> None:
    need, choice = pod(part(HALF)), Choice((ContainerChoice((Card(0),)),))
    of_small, again, of_large = (footprint(need, choice, {Card(0): dict(card)}) for card in (SMALL, SMALL, LARGE))
    assert of_small is again
    assert hash(of_small) != hash(of_large)
    assert [dict(each.amounts[Card(0)])["memory.max"] for each in (of_small, of_large)] == [4 * GB, 8 * GB]


def test_without_the_capacity_of_a_card_a_ratio_takes_nothing_of_it() -> None:
    need = pod(part(HALF))
    choice = place(need, node(SMALL), UNUSED)
    assert isinstance(choice, Choice)
    assert footprint(need, choice).amounts == {Card(0): (("i915", 1), ("memory.max", 0))}


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: Ratio("memory.max", -1), "ratio of memory.max: expected a whole part, 0 or more, found -1"),
        (
            lambda: part(Ratio("tiles", 50)),
            "container 'container': expected a number of tiles, found 50 percent of tiles",
        ),
        (
            lambda: part(HALF, QUARTER),
            "container 'container': expected one amount of memory.max, found 50 percent of memory.max beside another",
        ),
        (
            lambda: part(HALF, memory=1),
            "container 'container': expected one amount of memory.max, found 50 percent of memory.max beside another",
        ),
        (
            lambda: ContainerNeed("container", 0, ratios=(HALF,)),
            "container 'container': expected no amounts for a container that needs no card",
        ),
        (
            lambda: pod(share(1), part(Ratio("millicores", 50))),
            "container 'container': expected a ratio of the same form as in other containers, found 50 percent of"
            " millicores",
        ),
    ],
)
def test_ratios_that_cannot_exist(make: Any, sentence: str) -> None:
    with pytest.raises(InvalidValue) as invalid:
        make()
    assert str(invalid.value) == sentence


def test_ratios_of_different_resources_may_have_different_forms() -> None:
    pod(share(1), part(HALF))


def test_a_card_without_memory_gives_nothing_in_proportion_to_it() -> None:
    ratio = Ratio("millicores", 2**30, of="memory.max")
    assert amounts_on({"millicores": 1000}, {}, [ratio]) == {"millicores": 0}
