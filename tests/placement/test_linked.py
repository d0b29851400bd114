"""Pairs of cards joined by a link (contract E7.7)."""

from __future__ import annotations

import pytest

from gas.placement.inventory import Inventory, Usage
from gas.placement.need import PodNeed, Scope
from gas.values.cards import Card
from tests.placement.builders import amounts, booked, case, container, init, link, node, placed, pod, sidecar

CARD = amounts(i915=4, millicores=1000, tiles=2)
CHAIN = (link((0, 0), (1, 0)), link((2, 0), (3, 0)), link((1, 1), (2, 1)))


# contract E7.7
@pytest.mark.parametrize(
    ("need", "inventory", "usage", "expected"),
    [
        case(
            "the-first-card-with-a-link-and-its-other-end",
            pod(container(2, tiles=1), linked=True),
            node(CARD, like=4, links=CHAIN),
            "0:0,1:0",
        ),
        case(
            "pair-by-pair", pod(container(4, tiles=1), linked=True), node(CARD, like=4, links=CHAIN), "0:0,1:0,2:0,3:0"
        ),
        case(
            "a-tile-of-an-earlier-container-is-not-free",
            pod(container(2, tiles=1), container(2, tiles=1), linked=True),
            node(CARD, like=4, links=CHAIN),
            "0:0,1:0 | 1:1,2:1",
        ),
        case(
            "a-closed-tile-at-the-far-end-is-not-free",
            pod(container(2, tiles=1), linked=True),
            node(CARD, like=4, links=CHAIN, closed_tiles={Card(1): frozenset({0})}),
            "1:1,2:1",
        ),
        case(
            "a-booked-tile-is-not-free",
            pod(container(2, tiles=1), linked=True),
            node(CARD, like=4, links=CHAIN),
            "1:1,2:1",
            usage=booked(amounts(tiles=1), tiles={0: {0}}),
        ),
        case(
            "the-far-card-needs-room-as-well",
            pod(container(2, millicores=500, tiles=1), linked=True),
            node(CARD, like=4, links=CHAIN),
            "2:0,3:0",
            usage=booked({}, amounts(millicores=600)),
        ),
        case(
            "the-far-card-must-be-usable",
            pod(container(2, tiles=1), denied=frozenset({Card(1)}), linked=True),
            node(CARD, like=4, links=CHAIN),
            "2:0,3:0",
        ),
        case(
            "the-preferred-card-first",
            pod(container(2, tiles=1), linked=True),
            node(CARD, like=4, links=CHAIN, preferred_card=Card(2)),
            "2:0,3:0",
        ),
        case(
            "links-from-their-left-side-first",
            pod(container(2, tiles=1), linked=True),
            node(CARD, like=3, links=(link((2, 1), (0, 0)),), disabled=frozenset({Card(1)})),
            "2:1,0:0",
        ),
        case(
            "the-search-takes-another-pair-if-the-first-is-a-dead-end",
            pod(container(4, tiles=1), linked=True),
            node(CARD, like=4, links=(link((0, 0), (1, 0)), link((0, 1), (2, 0)), link((1, 1), (3, 0)))),
            "0:1,2:0,1:1,3:0",
        ),
        case(
            "cards-with-equal-capacity-but-other-links-are-not-interchangeable",
            pod(container(4, tiles=1), linked=True),
            node(CARD, like=4, links=(link((0, 0), (1, 0)), link((0, 0), (2, 0)), link((1, 0), (3, 0)))),
            "0:0,2:0,1:0,3:0",
        ),
        case(
            "the-tiles-of-an-ended-init-container-are-free-again",
            pod(init(2, tiles=1), sidecar(2, tiles=1), container(2, tiles=1), linked=True),
            node(CARD, like=2, links=(link((0, 0), (1, 0)), link((0, 1), (1, 1)))),
            "0:0,1:0 | 0:1,1:1 | 0:0,1:0",
        ),
        case(
            "both-ends-in-one-numa-group",
            pod(container(2, tiles=1), linked=True, scope=Scope.NUMA),
            node(CARD, like=4, links=CHAIN, numa_groups=((Card(1), Card(2)), (Card(3),))),
            "1:1,2:1",
        ),
    ],
)
def test_linked(need: PodNeed, inventory: Inventory, usage: Usage, expected: str) -> None:
    assert placed(need, inventory, usage) == expected
