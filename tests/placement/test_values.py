"""Values that cannot exist are refused when they are made."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from gas.cards import Card, MalformedCard
from gas.errors import InvalidValue
from gas.placement.choice import ContainerChoice, Footprint
from gas.placement.inventory import Inventory
from gas.placement.need import ContainerNeed, PodNeed, Role


def need(count: int = 1, role: Role = Role.APP, **amounts: int) -> ContainerNeed:
    return ContainerNeed("main", count, tuple(sorted(amounts.items())), role)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        pytest.param(lambda: need(-1), "container 'main': expected a number of cards, found -1", id="negative-count"),
        pytest.param(
            lambda: need(memory=-5),
            "container 'main': expected an amount of memory that is not negative, found -5",
            id="negative-amount",
        ),
        pytest.param(
            lambda: need(0, millicores=1),
            "container 'main': expected no amounts for a container that needs no card",
            id="amounts-without-a-card",
        ),
        pytest.param(
            lambda: ContainerNeed("main", 1, (("xe", 1), ("millicores", 1))),
            "container 'main': expected each resource once, in the order of names, found 'millicores' after 'xe'",
            id="resources-out-of-order",
        ),
        pytest.param(
            lambda: ContainerNeed("main", 1, (("xe", 1), ("xe", 1))),
            "container 'main': expected each resource once, in the order of names, found 'xe' after 'xe'",
            id="a-resource-twice",
        ),
        pytest.param(
            lambda: PodNeed((need(), need(role=Role.INIT))),
            "container 'main': expected init containers before app containers",
            id="init-container-after-an-app-container",
        ),
        pytest.param(
            lambda: PodNeed((need(3, tiles=1),), linked=True),
            "container 'main': expected an even number of linked cards with 1 tile each, found 3 with 1",
            id="odd-number-of-linked-cards",
        ),
        pytest.param(
            lambda: PodNeed((need(2, tiles=2),), linked=True),
            "container 'main': expected an even number of linked cards with 1 tile each, found 2 with 2",
            id="linked-cards-with-more-than-a-tile",
        ),
        pytest.param(
            lambda: PodNeed((need(2),), linked=True),
            "container 'main': expected an even number of linked cards with 1 tile each, found 2 with 0",
            id="linked-cards-without-tiles",
        ),
        pytest.param(
            lambda: PodNeed((need(), need()), same_card=frozenset({0, 2})),
            "same card: the pod has no container at position 2",
            id="same-card-beyond-the-containers",
        ),
        pytest.param(
            lambda: PodNeed((need(), need()), same_card=frozenset({-1, 0})),
            "same card: the pod has no container at position -1",
            id="same-card-before-the-containers",
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
        pytest.param(
            lambda: Inventory(capacity={Card(1): {"millicores": -1}}),
            "card1: expected capacities that are not negative, found {'millicores': -1}",
            id="negative-capacity",
        ),
        pytest.param(
            lambda: Inventory(capacity={Card(2): {}, Card(1): {}}),
            "expected cards in natural order, found card2, card1",
            id="cards-out-of-order",
        ),
        pytest.param(
            lambda: Inventory(capacity={Card(0): {"tiles": 2}}, closed_tiles={Card(0): frozenset({1, 2})}),
            "card0: expected closed tiles below 2, found [1, 2]",
            id="a-closed-tile-that-does-not-exist",
        ),
        pytest.param(
            lambda: ContainerChoice((Card(0), Card(0))),
            "expected different cards, found card0, card0",
            id="a-card-twice",
        ),
        pytest.param(
            lambda: ContainerChoice((Card(0), Card(1)), ((0,),)),
            "expected tiles for each of 2 cards, found 1",
            id="tiles-for-some-cards-only",
        ),
        pytest.param(
            lambda: Footprint(amounts={Card(0): (("millicores", -1),)}),
            "card0: expected an amount of millicores that is not negative, found -1",
            id="negative-footprint",
        ),
        pytest.param(
            lambda: Footprint(containers={Card(0): -1}),
            "card0: expected a number of containers, found -1",
            id="negative-number-of-containers",
        ),
    ],
)
def test_a_value_that_cannot_exist_is_refused(make: Callable[[], object], sentence: str) -> None:
    with pytest.raises(InvalidValue) as refused:
        make()
    assert str(refused.value) == sentence


def test_a_card_has_no_negative_number() -> None:
    with pytest.raises(MalformedCard):
        Card(-1)


def test_an_amount_of_0_is_an_amount() -> None:
    assert need(millicores=0).per_card == (("millicores", 0),)
