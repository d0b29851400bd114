"""Containers that share one card (contract E7.3, E7.5)."""

from __future__ import annotations

import pytest

from gas.placement.inventory import UNUSED, Inventory, Usage
from gas.placement.need import PodNeed, Scope
from gas.values.cards import Card
from tests.placement.builders import amounts, booked, container, node, placed, pod

CARD = amounts(i915=2, millicores=1000)


# contract E7.3, E7.5
@pytest.mark.parametrize(
    ("need", "inventory", "usage", "expected"),
    [
        pytest.param(
            pod(
                container(millicores=600),
                container(millicores=300),
                container(millicores=500),
                same_card=frozenset({1, 2}),
            ),
            node(CARD, like=2),
            UNUSED,
            "1 | 0 | 0",
            id="the-group-is-placed-first",
        ),
        pytest.param(
            pod(container(millicores=300), container(millicores=500), same_card=frozenset({0, 1})),
            node(CARD, like=2),
            booked(amounts(millicores=300)),
            "1 | 1",
            id="its-needs-are-summed",
        ),
        pytest.param(
            pod(container(), container(), same_card=frozenset({0, 1})),
            node(CARD, like=2),
            booked(amounts(i915=1)),
            "1 | 1",
            id="the-count-resource-is-taken-once-for-each-container",
        ),
        pytest.param(
            pod(
                container(millicores=300),
                container(millicores=300),
                container(millicores=1000),
                same_card=frozenset({0, 1}),
            ),
            node(CARD, amounts(i915=2, millicores=600)),
            UNUSED,
            "1 | 1 | 0",
            id="the-search-moves-the-whole-group",
        ),
        pytest.param(
            pod(container(), container(), container(), same_card=frozenset({0, 1, 2})),
            node(CARD, like=2),
            UNUSED,
            "no card has 3 i915 free for 3 containers that share a card",
            id="refused-with-the-sum",
        ),
        pytest.param(
            pod(container(millicores=300), container(millicores=300), same_card=frozenset({0, 1}), scope=Scope.NUMA),
            node(CARD, like=4, numa_groups=((Card(0), Card(1)), (Card(2), Card(3)))),
            booked(amounts(millicores=500), amounts(millicores=500), amounts(millicores=500)),
            "3 | 3",
            id="every-numa-group-is-tried",
        ),
        pytest.param(
            pod(container(millicores=0), container(millicores=0), same_card=frozenset({0, 1})),
            node(amounts(i915=2), CARD),
            UNUSED,
            "1 | 1",
            id="a-need-of-0-does-not-fit-a-card-without-the-resource",
        ),
    ],
)
def test_same_card(need: PodNeed, inventory: Inventory, usage: Usage, expected: str) -> None:
    assert placed(need, inventory, usage) == expected
