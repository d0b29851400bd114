"""All cards of a pod come from one NUMA group (contract E7.8, E7.9)."""

from __future__ import annotations

import pytest

from gas.placement.inventory import Inventory, Usage
from gas.placement.need import PodNeed, Scope
from gas.values.cards import Card
from tests.placement.builders import amounts, booked, case, container, node, placed, pod

CARD = amounts(i915=2, millicores=1000)
TWO_GROUPS = ((Card(0), Card(1)), (Card(2), Card(3)))


def groups(*each: tuple[int, ...]) -> tuple[tuple[Card, ...], ...]:
    return tuple(tuple(map(Card, group)) for group in each)


# contract E6.9, E7.8, E7.9
@pytest.mark.parametrize(
    ("need", "inventory", "usage", "expected"),
    [
        case(
            "the-whole-pod-is-kept-together",
            pod(container(millicores=500), container(2, millicores=500), scope=Scope.NUMA),
            node(CARD, like=4, numa_groups=TWO_GROUPS),
            "2 | 2,3",
            usage=booked({}, amounts(millicores=600)),
        ),
        case(
            "groups-in-the-order-of-the-label-cards-in-natural-order",
            pod(container(), scope=Scope.NUMA),
            node(CARD, like=4, numa_groups=groups((3, 2), (0, 1))),
            "2",
        ),
        case(
            "a-card-without-a-group-is-not-used",
            pod(container(), scope=Scope.NUMA),
            node(CARD, like=2, numa_groups=groups((), (1,))),
            "1",
        ),
        case("a-node-without-groups-does-not-restrict", pod(container(2), scope=Scope.NUMA), node(CARD, like=2), "0,1"),
        case(
            "groups-do-not-matter-to-other-pods",
            pod(container(2)),
            node(CARD, like=2, numa_groups=groups((0,), (1,))),
            "0,1",
        ),
        case(
            "a-preferred-card-of-another-group-has-swapped-places-already",
            pod(container(2), scope=Scope.NUMA),
            node(CARD, like=4, numa_groups=TWO_GROUPS, preferred_card=Card(3)),
            "1,0",
        ),
        case(
            "first-fit-in-every-group-before-any-search",
            pod(container(millicores=500), container(millicores=1000), scope=Scope.NUMA),
            node(amounts(i915=2, millicores=1000), amounts(i915=2, millicores=500), CARD, CARD, numa_groups=TWO_GROUPS),
            "2 | 3",
        ),
        case(
            "then-the-search-in-every-group",
            pod(container(millicores=500), container(millicores=1000), scope=Scope.NUMA),
            node(CARD, amounts(i915=2, millicores=500), amounts(i915=2, millicores=500), CARD, numa_groups=TWO_GROUPS),
            "1 | 0",
            usage=booked({}, {}, {}, amounts(millicores=1000)),
        ),
    ],
)
def test_single_numa(need: PodNeed, inventory: Inventory, usage: Usage, expected: str) -> None:
    assert placed(need, inventory, usage) == expected
