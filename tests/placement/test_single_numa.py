"""All cards of a pod come from one NUMA group (contract E7.8, E7.9)."""

from __future__ import annotations

import pytest

from gas.placement.inventory import UNUSED, Inventory, Usage
from gas.placement.need import PodNeed, Scope
from gas.values.cards import Card
from tests.placement.builders import amounts, booked, container, node, placed, pod

CARD = amounts(i915=2, millicores=1000)
TWO_GROUPS = ((Card(0), Card(1)), (Card(2), Card(3)))


def groups(*each: tuple[int, ...]) -> tuple[tuple[Card, ...], ...]:
    return tuple(tuple(map(Card, group)) for group in each)


# contract E6.9, E7.8, E7.9
@pytest.mark.parametrize(
    ("need", "inventory", "usage", "expected"),
    [
        pytest.param(
            pod(container(millicores=500), container(2, millicores=500), scope=Scope.NUMA),
            node(CARD, like=4, numa_groups=TWO_GROUPS),
            booked({}, amounts(millicores=600)),
            "2 | 2,3",
            id="the-whole-pod-is-kept-together",
        ),
        pytest.param(
            pod(container(), scope=Scope.NUMA),
            node(CARD, like=4, numa_groups=groups((3, 2), (0, 1))),
            UNUSED,
            "2",
            id="groups-in-the-order-of-the-label-cards-in-natural-order",
        ),
        pytest.param(
            pod(container(), scope=Scope.NUMA),
            node(CARD, like=2, numa_groups=groups((), (1,))),
            UNUSED,
            "1",
            id="a-card-without-a-group-is-not-used",
        ),
        pytest.param(
            pod(container(2), scope=Scope.NUMA),
            node(CARD, like=2),
            UNUSED,
            "0,1",
            id="a-node-without-groups-does-not-restrict",
        ),
        pytest.param(
            pod(container(2)),
            node(CARD, like=2, numa_groups=groups((0,), (1,))),
            UNUSED,
            "0,1",
            id="groups-do-not-matter-to-other-pods",
        ),
        pytest.param(
            pod(container(2), scope=Scope.NUMA),
            node(CARD, like=4, numa_groups=TWO_GROUPS, preferred_card=Card(3)),
            UNUSED,
            "1,0",
            id="a-preferred-card-of-another-group-has-swapped-places-already",
        ),
        pytest.param(
            pod(container(millicores=500), container(millicores=1000), scope=Scope.NUMA),
            node(amounts(i915=2, millicores=1000), amounts(i915=2, millicores=500), CARD, CARD, numa_groups=TWO_GROUPS),
            UNUSED,
            "2 | 3",
            id="first-fit-in-every-group-before-any-search",
        ),
        pytest.param(
            pod(container(millicores=500), container(millicores=1000), scope=Scope.NUMA),
            node(CARD, amounts(i915=2, millicores=500), amounts(i915=2, millicores=500), CARD, numa_groups=TWO_GROUPS),
            booked({}, {}, {}, amounts(millicores=1000)),
            "1 | 0",
            id="then-the-search-in-every-group",
        ),
    ],
)
def test_single_numa(need: PodNeed, inventory: Inventory, usage: Usage, expected: str) -> None:
    assert placed(need, inventory, usage) == expected
