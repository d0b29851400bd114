"""Containers that share one card (contract E7.3, E7.5)."""

from __future__ import annotations

import pytest

from gas.placement.inventory import Inventory, Usage
from gas.placement.need import PodNeed, Scope
from gas.values.cards import Card
from tests.placement.builders import amounts, booked, case, container, node, placed, pod

CARD = amounts(i915=2, millicores=1000)


# contract E7.3, E7.5
@pytest.mark.parametrize(
    ("need", "inventory", "usage", "expected"),
    [
        case(
            "the-group-is-placed-first",
            pod(
                container(millicores=600),
                container(millicores=300),
                container(millicores=500),
                same_card=frozenset({1, 2}),
            ),
            node(CARD, like=2),
            "1 | 0 | 0",
        ),
        case(
            "its-needs-are-summed",
            pod(container(millicores=300), container(millicores=500), same_card=frozenset({0, 1})),
            node(CARD, like=2),
            "1 | 1",
            usage=booked(amounts(millicores=300)),
        ),
        case(
            "the-count-resource-is-taken-once-for-each-container",
            pod(container(), container(), same_card=frozenset({0, 1})),
            node(CARD, like=2),
            "1 | 1",
            usage=booked(amounts(i915=1)),
        ),
        case(
            "the-search-moves-the-whole-group",
            pod(
                container(millicores=300),
                container(millicores=300),
                container(millicores=1000),
                same_card=frozenset({0, 1}),
            ),
            node(CARD, amounts(i915=2, millicores=600)),
            "1 | 1 | 0",
        ),
        case(
            "refused-with-the-sum",
            pod(container(), container(), container(), same_card=frozenset({0, 1, 2})),
            node(CARD, like=2),
            "no card has 3 i915 free for 3 containers that share a card",
        ),
        case(
            "every-numa-group-is-tried",
            pod(container(millicores=300), container(millicores=300), same_card=frozenset({0, 1}), scope=Scope.NUMA),
            node(CARD, like=4, numa_groups=((Card(0), Card(1)), (Card(2), Card(3)))),
            "3 | 3",
            usage=booked(amounts(millicores=500), amounts(millicores=500), amounts(millicores=500)),
        ),
        case(
            "a-need-of-0-does-not-fit-a-card-without-the-resource",
            pod(container(millicores=0), container(millicores=0), same_card=frozenset({0, 1})),
            node(amounts(i915=2), CARD),
            "1 | 1",
        ),
    ],
)
def test_same_card(need: PodNeed, inventory: Inventory, usage: Usage, expected: str) -> None:
    assert placed(need, inventory, usage) == expected
