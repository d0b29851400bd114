"""Values that cannot exist are refused when they are made."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from gas.placement.choice import Choice, ContainerChoice, Footprint, footprint
from gas.placement.inventory import UNUSED, Inventory, Link
from gas.placement.need import ContainerNeed, PodNeed, Role, Scope
from gas.placement.place import place
from gas.placement.plan import Plan, plan_of
from gas.placement.ratio import Ratio
from gas.values.cards import Card, Tile
from gas.values.errors import InvalidValue
from tests.lines import at_most

TWO_CARDS = {Card(0): {"tiles": 2}, Card(1): {"tiles": 2}}


def need(count: int = 1, role: Role = Role.APP, **amounts: int) -> ContainerNeed:
    return ContainerNeed("main", count, tuple(sorted(amounts.items())), role)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: need(-1), "container 'main': expected a whole number of cards, 0 or more, found -1"),
        (lambda: need(memory=-5), "container 'main': expected a whole amount of memory, 0 or more, found -5"),
        (lambda: need(0, millicores=1), "container 'main': expected no amounts for a container that needs no card"),
        (
            lambda: ContainerNeed("main", 1, (("xe", 1), ("millicores", 1))),
            "container 'main': expected each resource once, in the order of names, found 'millicores' after 'xe'",
        ),
        (
            lambda: ContainerNeed("main", 1, (("xe", 1), ("xe", 1))),
            "container 'main': expected each resource once, in the order of names, found 'xe' after 'xe'",
        ),
        (
            lambda: PodNeed((need(), need(role=Role.INIT))),
            "container 'main': expected init containers before app containers",
        ),
        (
            lambda: PodNeed((need(3, tiles=1),), linked=True),
            "container 'main': expected an even number of linked cards with 1 tile each, found 3 with 1",
        ),
        (
            lambda: PodNeed((need(2, tiles=2),), linked=True),
            "container 'main': expected an even number of linked cards with 1 tile each, found 2 with 2",
        ),
        (
            lambda: PodNeed((need(2),), linked=True),
            "container 'main': expected an even number of linked cards with 1 tile each, found 2 with 0",
        ),
        (
            lambda: PodNeed((need(), need(2)), scope=Scope.CARD),
            "container 'main': expected at most 1 card, because the pod has only one, found 2",
        ),
        (
            lambda: PodNeed((need(),), named="train"),
            "named card 'train': expected a pod of one card, found scope anywhere",
        ),
        (
            lambda: PodNeed((need(), need()), same_card=frozenset({0, 2})),
            "same card: the pod has no container at position 2",
        ),
        (
            lambda: PodNeed((need(), need()), same_card=frozenset({-1, 0})),
            "same card: the pod has no container at position -1",
        ),
        *(
            (
                lambda rules=rules: PodNeed((need(), need()), apart=frozenset({0, 1}), **rules),
                "apart: expected containers that need neither links nor one card",
            )
            for rules in ({"same_card": frozenset({1})}, {"scope": Scope.CARD})
        ),
        (
            lambda: PodNeed((need(2, tiles=1),), apart=frozenset({0}), linked=True),
            "apart: expected containers that need neither links nor one card",
        ),
        (
            lambda: PodNeed((need(), need()), apart=frozenset({1, 2})),
            "apart: expected positions of the pod's containers, found [1, 2]",
        ),
        *(
            pytest.param(
                lambda other=other: PodNeed((other, need()), apart=frozenset({0, 1})),
                "apart: expected app containers with cards, no tiles and equal amounts of each card",
                id=f"apart-{name}",
            )
            for name, other in (
                ("other-amounts", need(millicores=1)),
                ("other-ratios", ContainerNeed("main", 1, ratios=(Ratio("millicores", 1),))),
                ("no-card", need(0)),
                ("tiles", need(tiles=1)),
                ("init-container", need(role=Role.INIT)),
            )
        ),
        (
            lambda: Inventory(capacity=TWO_CARDS, other_names={"x": frozenset({Card(0), Card(7)})}),
            "named cards, 'x': expected cards of the node, found card7",
        ),
        *(
            pytest.param(
                lambda other=other: PodNeed((other, need()), same_card=frozenset({0, 1})),
                "container 'main': expected an app container with 1 card and no tiles, because it shares its card",
                id=f"same-card-{name}",
            )
            for name, other in (
                ("two-cards", need(2)),
                ("no-card", need(0)),
                ("tiles", need(tiles=1)),
                ("init-container", need(role=Role.INIT)),
            )
        ),
        (
            lambda: Inventory(capacity={Card(1): {"millicores": -1}}),
            "card1: expected a whole amount of millicores, 0 or more, found -1",
        ),
        (lambda: Inventory(capacity={Card(2): {}, Card(1): {}}), "expected cards in natural order, found card2, card1"),
        (
            lambda: Inventory(capacity={Card(0): {"tiles": 2}}, closed_tiles={Card(0): frozenset({1, 2})}),
            "card0: expected closed tiles below 2, found 2",
        ),
        (
            lambda: Inventory(capacity={Card(0): {}}, closed_tiles={Card(0): frozenset({0})}),
            "card0: expected closed tiles below 0, found 0",
        ),
        (
            lambda: Inventory(capacity=TWO_CARDS, closed_tiles={Card(2): frozenset({0})}),
            "card2: expected closed tiles below 0, found 0",
        ),
        (
            lambda: Inventory(capacity=TWO_CARDS, closed_tiles={Card(0): frozenset({-1})}),
            "card0: expected a tile 0, 1 and so on, found -1",
        ),
        (
            lambda: Inventory(capacity=TWO_CARDS, preferred_tiles={Card(0): (1, 2)}),
            "card0: expected preferred tiles below 2, found 2",
        ),
        (
            lambda: Inventory(capacity=TWO_CARDS, preferred_tiles={Card(0): (1, 1)}),
            "card0: expected different tiles, found 1, 1",
        ),
        (
            lambda: Inventory(capacity=TWO_CARDS, numa_groups=((Card(0), Card(1), Card(0)),)),
            "NUMA groups: expected each card once, found card0 twice",
        ),
        (
            lambda: Inventory(capacity=TWO_CARDS, boards=((Card(0),), (Card(1), Card(0)))),
            "boards: expected each card once, found card0 twice",
        ),
        (
            lambda: Inventory(capacity=TWO_CARDS, numa_groups=((Card(0), Card(9)),)),
            "NUMA groups: expected cards of the node, found card9",
        ),
        *(
            pytest.param(
                lambda one=one, other=other: Inventory(
                    capacity=TWO_CARDS, links=(Link(Tile(Card(one), 0), Tile(Card(other), 1)),)
                ),
                f"links: expected two different cards of the node, found card{one} and card{other}",
                id=f"a-link-between-{one}-and-{other}",
            )
            for one, other in ((0, 0), (0, 9), (9, 0))
        ),
        (
            lambda: Inventory(capacity={Card(0): {"millicores": 0.5}}),  # type: ignore[dict-item]
            "card0: expected a whole amount of millicores, 0 or more, found 0.5",
        ),
        (
            lambda: need(1.5),  # type: ignore[arg-type]
            "container 'main': expected a whole number of cards, 0 or more, found 1.5",
        ),
        (
            lambda: need(millicores=1.5),  # type: ignore[arg-type]
            "container 'main': expected a whole amount of millicores, 0 or more, found 1.5",
        ),
        (
            lambda: need(role="app"),  # type: ignore[arg-type]
            "container 'main': expected a Role, found 'app'",
        ),
        (
            lambda: PodNeed((need(),), scope="card"),  # type: ignore[arg-type]
            "scope: expected a Scope, found 'card'",
        ),
        (lambda: Tile(Card(0), -1), "card0: expected a tile 0, 1 and so on, found -1"),
        (
            lambda: Tile(Card(0), 0.5),  # type: ignore[arg-type]
            "card0: expected a tile 0, 1 and so on, found 0.5",
        ),
        (lambda: ContainerChoice((Card(0),), ((0, -1),)), "card0: expected a tile 0, 1 and so on, found -1"),
        (lambda: ContainerChoice((Card(0), Card(1)), ((0,), (1, 1))), "card1: expected different tiles, found 1, 1"),
        (lambda: Footprint(tiles={Card(0): frozenset({-1})}), "card0: expected a tile 0, 1 and so on, found -1"),
        (
            lambda: Footprint(containers={Card(0): 0.5}),  # type: ignore[dict-item]
            "card0: expected a whole number of containers, 0 or more, found 0.5",
        ),
        (
            lambda: place(PodNeed((need(),)), Inventory(capacity=TWO_CARDS), UNUSED, step_limit=-1),
            "step_limit: expected a whole number, 0 or more, found -1",
        ),
        (
            lambda: place(PodNeed((need(0),)), Inventory(capacity=TWO_CARDS), UNUSED, step_limit=0.5),  # type: ignore[arg-type]
            "step_limit: expected a whole number, 0 or more, found 0.5",
        ),
        (lambda: ContainerChoice((Card(0), Card(0))), "expected different cards, found card0, card0"),
        (lambda: ContainerChoice((Card(0), Card(1)), ((0,),)), "expected tiles for each of 2 cards, found 1"),
        (
            lambda: Footprint(amounts={Card(0): (("millicores", -1),)}),
            "card0: expected a whole amount of millicores, 0 or more, found -1",
        ),
        (
            lambda: Footprint(containers={Card(0): -1}),
            "card0: expected a whole number of containers, 0 or more, found -1",
        ),
    ],
)
def test_a_value_that_cannot_exist_is_refused(make: Callable[[], object], sentence: str) -> None:
    with pytest.raises(InvalidValue) as refused:
        make()
    assert str(refused.value) == sentence


@pytest.mark.parametrize("number", [-1, 1.5, "1"])
def test_a_card_has_a_whole_number_that_is_not_negative(number: Any) -> None:
    with pytest.raises(InvalidValue) as refused:
        Card(number)
    assert str(refused.value) == f"expected a card number 0, 1 and so on, found {number!r}"


def test_a_preferred_card_and_a_disabled_card_need_not_be_on_the_node() -> None:
    inventory = Inventory(capacity=TWO_CARDS, preferred_card=Card(9), disabled=frozenset({Card(9)}))
    assert inventory.cards == (0, 1)


def test_cards_that_are_not_divided_into_tiles_may_be_linked() -> None:
    inventory = Inventory(capacity={Card(0): {}, Card(1): {}}, links=(Link(Tile(Card(0), 0), Tile(Card(1), 7)),))
    assert inventory.closeness(Card(0)) == {0: 0, 1: 3}


def test_an_amount_of_0_is_an_amount() -> None:
    assert need(millicores=0).per_card == (("millicores", 0),)


def test_a_choice_for_other_containers_than_the_need_has_no_footprint() -> None:
    choice = Choice((ContainerChoice((Card(0),)),))
    sentence = (
        "choice: expected cards for each of the need's 2 containers, found 1;"
        " pass the need that the choice was made for"
    )
    with pytest.raises(InvalidValue) as refused:
        footprint(PodNeed((need(), need())), choice)
    assert str(refused.value) == sentence


def test_a_container_takes_its_amounts_of_each_card_that_it_has_got() -> None:
    two = PodNeed((need(2, memory=5),))
    assert footprint(two, Choice((ContainerChoice((Card(0),)),))).amounts == {Card(0): (("memory", 5),)}


def test_a_plan_takes_time_in_proportion_to_its_resources() -> None:
    many = ContainerNeed("main", 1, tuple((f"r{number:05}", 1) for number in range(32_000)))
    with at_most(1_000_000):
        plan = plan_of(PodNeed((many,)))
    assert plan.totals() == many.per_card
    assert plan.requests[0].takes == tuple((slot, 1) for slot in range(32_000))


def test_few_large_plans_are_cached() -> None:
    def plan(number: int, resources: int) -> Plan:
        amounts = tuple((f"r{name:03}", 1 + number) for name in range(resources))
        containers = [ContainerNeed(f"s{at}", 1, amounts, Role.SIDECAR) for at in range(4)]
        containers += [ContainerNeed(f"i{at}", 1, amounts, Role.INIT) for at in range(4)]
        return plan_of(PodNeed(tuple(containers)))

    for resources, is_cached in ((40, True), (50, False)):  # 24 slots each
        first = plan(0, resources)
        assert plan(0, resources) is first
        for number in range(1, 20):
            plan(number, resources)
        assert (plan(0, resources) is first) == is_cached
        assert plan(0, resources) == first
