"""Cards that belong together: shared (contract E7.3, E7.5), of one NUMA group (E7.8, E7.9), or linked (E7.7)."""

from __future__ import annotations

import pytest

from gas.placement.inventory import Inventory, Partition, Usage
from gas.placement.need import PartitionRule, PodNeed, Scope
from gas.values.cards import Card
from tests.placement.builders import amounts, booked, cards, case, container, init, link, node, placed, pod, sidecar

TWO_DEVICES = amounts(i915=2, millicores=1000)


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
            node(TWO_DEVICES, like=2),
            "1 | 0 | 0",
        ),
        case(
            "its-needs-are-summed",
            pod(container(millicores=300), container(millicores=500), same_card=frozenset({0, 1})),
            node(TWO_DEVICES, like=2),
            "1 | 1",
            usage=booked(amounts(millicores=300)),
        ),
        case(
            "the-count-resource-is-taken-once-for-each-container",
            pod(container(), container(), same_card=frozenset({0, 1})),
            node(TWO_DEVICES, like=2),
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
            node(TWO_DEVICES, amounts(i915=2, millicores=600)),
            "1 | 1 | 0",
        ),
        case(
            "refused-with-the-sum",
            pod(container(), container(), same_card=frozenset({0, 1})),
            node(amounts(i915=1), like=2),
            "no card has 2 i915 free for 2 containers that share a card",
        ),
        case(
            "every-numa-group-is-tried",
            pod(container(millicores=300), container(millicores=300), same_card=frozenset({0, 1}), scope=Scope.NUMA),
            node(TWO_DEVICES, like=4, numa_groups=((Card(0), Card(1)), (Card(2), Card(3)))),
            "3 | 3",
            usage=booked(amounts(millicores=500), amounts(millicores=500), amounts(millicores=500)),
        ),
        case(
            "a-need-of-0-does-not-fit-a-card-without-the-resource",
            pod(container(millicores=0), container(millicores=0), same_card=frozenset({0, 1})),
            node(amounts(i915=2), TWO_DEVICES),
            "1 | 1",
        ),
    ],
)
def test_same_card(need: PodNeed, inventory: Inventory, usage: Usage, expected: str) -> None:
    assert placed(need, inventory, usage) == expected


HALF = amounts(i915=1, millicores=500)
APART = frozenset({0, 1})
TWO_GROUPS = ((Card(0), Card(1)), (Card(2), Card(3)))
PARTITIONS = tuple(
    Partition(cards(*numbers), score, bandwidth)
    for numbers, score, bandwidth in (((0, 1), 1, 200), ((2, 3), 1, 400), ((4, 5), 1, 0), ((0, 1, 2, 3), 1, 0))
)


@pytest.mark.parametrize(
    ("need", "inventory", "usage", "expected"),
    [
        case(
            "no-card-is-that-of-two-containers",
            pod(container(millicores=300), container(2, millicores=300), apart=APART),
            node(TWO_DEVICES, like=4),
            "0 | 1,2",
        ),
        case(
            "too-few-cards",
            pod(container(millicores=300), container(millicores=300), apart=APART),
            node(TWO_DEVICES),
            "container 'container, container' asks for 2 cards, but the node has 1",
        ),
        case(
            "too-little-room",
            pod(container(millicores=600), container(millicores=600), apart=APART),
            node(TWO_DEVICES, HALF),
            "needs 2 cards with 600 millicores free each, found 1",
        ),
    ],
)
def test_apart(need: PodNeed, inventory: Inventory, usage: Usage, expected: str) -> None:
    assert placed(need, inventory, usage) == expected


@pytest.mark.parametrize(
    ("need", "inventory", "usage", "expected"),
    [
        case(
            "the-cards-of-one-board",
            pod(container(2), scope=Scope.BOARD),
            node(HALF, like=4, boards=((Card(0),), (Card(1), Card(3)))),
            "1,3",
        ),
        case(
            "a-card-without-a-board-is-one-of-its-own",
            pod(container(), scope=Scope.BOARD),
            node(HALF, like=2),
            "0",
        ),
        case(
            "a-card-without-a-board-next-to-a-board",
            pod(container(millicores=600), scope=Scope.BOARD),
            node(HALF, HALF, amounts(i915=1, millicores=600), boards=((Card(0), Card(1)),)),
            "2",
        ),
        case(
            "no-board-has-enough",
            pod(container(2, millicores=500), scope=Scope.BOARD),
            node(HALF, like=2),
            "no board has 2 cards with 500 millicores free each",
        ),
    ],
)
def test_one_board(need: PodNeed, inventory: Inventory, usage: Usage, expected: str) -> None:
    assert placed(need, inventory, usage) == expected


@pytest.mark.parametrize(
    ("need", "inventory", "usage", "expected"),
    [
        case(
            "of-equal-partitions-the-one-that-leaves-the-largest",
            pod(container(), container(), partition=PartitionRule()),
            node(HALF, like=6, partitions=PARTITIONS),
            "4 | 5",
        ),
        case(
            "the-largest-of-those-that-are-left-counts-most",
            pod(container(), partition=PartitionRule()),
            node(
                HALF,
                like=9,
                partitions=[
                    Partition(frozenset(map(Card, each)), 1)
                    for each in ((1,), (0,), (1, 2), (1, 2, 3, 4), (0, 5, 6), (0, 7, 8))
                ],
            ),
            "0",
        ),
        case(
            "the-best-score-first",
            pod(container(2), partition=PartitionRule()),
            node(HALF, like=6, partitions=(*PARTITIONS, Partition(frozenset({Card(1), Card(2)}), 2))),
            "1,2",
        ),
        case(
            "other-cards-if-no-partition-is-free",
            pod(container(3), partition=PartitionRule()),
            node(HALF, like=6, partitions=PARTITIONS),
            "0,1,2",
        ),
        case(
            "partitions-only-if-the-node-demands-it",
            pod(container(3), partition=PartitionRule()),
            node(HALF, like=6, partitions=PARTITIONS, partitioned=True),
            "no partition of 3 card(s) that the pod may use is free",
        ),
        case(
            "partitions-only-if-the-pod-demands-it",
            pod(container(2), partition=PartitionRule(required=True)),
            node(HALF, like=2),
            "no partition of 2 card(s) that the pod may use is free",
        ),
        case(
            "no-partition-and-too-few-allowed-cards",
            pod(container(2), allowed=cards(0), partition=PartitionRule()),
            node(HALF, like=6, partitions=PARTITIONS),
            "needs 2 cards with 1 i915 free each, found 1 in the allow list",
        ),
        case(
            "no-partition-and-too-small-numa-groups",
            pod(container(3), scope=Scope.NUMA, partition=PartitionRule()),
            node(HALF, like=6, numa_groups=TWO_GROUPS, partitions=PARTITIONS),
            "no NUMA group has 3 cards with 1 i915 free each",
        ),
        case(
            "only-the-best",
            pod(container(2), partition=PartitionRule(required=True, best=True)),
            node(HALF, like=6, partitions=(*PARTITIONS, Partition(frozenset({Card(1), Card(2)}), 2))),
            "no partition of 2 card(s) that the pod may use is free",
            usage=booked({}, HALF),
        ),
        case(
            "only-the-best-of-its-size",
            pod(container(2), partition=PartitionRule(required=True, best=True)),
            node(HALF, like=4, partitions=(Partition(cards(0, 1), 90), Partition(cards(0, 1, 2, 3), 100))),
            "0,1",
        ),
        case(
            "the-bandwidth-is-a-minimum",
            pod(container(2), partition=PartitionRule(required=True, bandwidth=300)),
            node(HALF, like=6, partitions=PARTITIONS),
            "2,3",
        ),
        case(
            "a-pod-to-which-partitions-do-not-matter",
            pod(container(2)),
            node(HALF, like=6, partitions=PARTITIONS, partitioned=True),
            "0,1",
        ),
    ],
)
def test_partitions(need: PodNeed, inventory: Inventory, usage: Usage, expected: str) -> None:
    assert placed(need, inventory, usage) == expected


def groups(*each: tuple[int, ...]) -> tuple[tuple[Card, ...], ...]:
    return tuple(tuple(map(Card, group)) for group in each)


# contract E6.9, E7.8, E7.9
@pytest.mark.parametrize(
    ("need", "inventory", "usage", "expected"),
    [
        case(
            "the-whole-pod-is-kept-together",
            pod(container(millicores=500), container(2, millicores=500), scope=Scope.NUMA),
            node(TWO_DEVICES, like=4, numa_groups=TWO_GROUPS),
            "2 | 2,3",
            usage=booked({}, amounts(millicores=600)),
        ),
        case(
            "groups-in-the-order-of-the-label-cards-in-natural-order",
            pod(container(), scope=Scope.NUMA),
            node(TWO_DEVICES, like=4, numa_groups=groups((3, 2), (0, 1))),
            "2",
        ),
        case(
            "a-card-without-a-group-is-not-used",
            pod(container(), scope=Scope.NUMA),
            node(TWO_DEVICES, like=2, numa_groups=groups((), (1,))),
            "1",
        ),
        case(
            "a-node-without-groups-does-not-restrict",
            pod(container(2), scope=Scope.NUMA),
            node(TWO_DEVICES, like=2),
            "0,1",
        ),
        case(
            "groups-do-not-matter-to-other-pods",
            pod(container(2)),
            node(TWO_DEVICES, like=2, numa_groups=groups((0,), (1,))),
            "0,1",
        ),
        case(
            "a-preferred-card-of-another-group-has-swapped-places-already",
            pod(container(2), scope=Scope.NUMA),
            node(TWO_DEVICES, like=4, numa_groups=TWO_GROUPS, preferred_card=Card(3)),
            "1,0",
        ),
        case(
            "first-fit-in-every-group-before-any-search",
            pod(container(millicores=500), container(millicores=1000), scope=Scope.NUMA),
            node(
                amounts(i915=2, millicores=1000),
                amounts(i915=2, millicores=500),
                TWO_DEVICES,
                TWO_DEVICES,
                numa_groups=TWO_GROUPS,
            ),
            "2 | 3",
        ),
        case(
            "then-the-search-in-every-group",
            pod(container(millicores=500), container(millicores=1000), scope=Scope.NUMA),
            node(
                TWO_DEVICES,
                amounts(i915=2, millicores=500),
                amounts(i915=2, millicores=500),
                TWO_DEVICES,
                numa_groups=TWO_GROUPS,
            ),
            "1 | 0",
            usage=booked({}, {}, {}, amounts(millicores=1000)),
        ),
    ],
)
def test_single_numa(need: PodNeed, inventory: Inventory, usage: Usage, expected: str) -> None:
    assert placed(need, inventory, usage) == expected


LINKED = amounts(i915=4, millicores=1000, tiles=2)
CHAIN = (link((0, 0), (1, 0)), link((2, 0), (3, 0)), link((1, 1), (2, 1)))


# contract E7.7
@pytest.mark.parametrize(
    ("need", "inventory", "usage", "expected"),
    [
        case(
            "the-first-card-with-a-link-and-its-other-end",
            pod(container(2, tiles=1), linked=True),
            node(LINKED, like=4, links=CHAIN),
            "0:0,1:0",
        ),
        case(
            "pair-by-pair",
            pod(container(4, tiles=1), linked=True),
            node(LINKED, like=4, links=CHAIN),
            "0:0,1:0,2:0,3:0",
        ),
        case(
            "a-card-of-an-earlier-pair-is-not-used-again",
            pod(container(4, tiles=1), linked=True),
            node(LINKED, like=4, links=(link((0, 0), (1, 0)), link((2, 0), (1, 1)), link((2, 1), (3, 0)))),
            "0:0,1:0,2:1,3:0",
        ),
        case(
            "a-tile-of-an-earlier-container-is-not-free",
            pod(container(2, tiles=1), container(2, tiles=1), linked=True),
            node(LINKED, like=4, links=CHAIN),
            "0:0,1:0 | 1:1,2:1",
        ),
        case(
            "a-closed-tile-at-the-far-end-is-not-free",
            pod(container(2, tiles=1), linked=True),
            node(LINKED, like=4, links=CHAIN, closed_tiles={Card(1): frozenset({0})}),
            "1:1,2:1",
        ),
        case(
            "a-booked-tile-is-not-free",
            pod(container(2, tiles=1), linked=True),
            node(LINKED, like=4, links=CHAIN),
            "1:1,2:1",
            usage=booked(amounts(tiles=1), tiles={0: {0}}),
        ),
        case(
            "the-far-card-needs-room-as-well",
            pod(container(2, millicores=500, tiles=1), linked=True),
            node(LINKED, like=4, links=CHAIN),
            "2:0,3:0",
            usage=booked({}, amounts(millicores=600)),
        ),
        case(
            "the-far-card-must-be-usable",
            pod(container(2, tiles=1), denied=frozenset({Card(1)}), linked=True),
            node(LINKED, like=4, links=CHAIN),
            "2:0,3:0",
        ),
        case(
            "the-preferred-card-first",
            pod(container(2, tiles=1), linked=True),
            node(LINKED, like=4, links=CHAIN, preferred_card=Card(2)),
            "2:0,3:0",
        ),
        case(
            "links-from-their-left-side-first",
            pod(container(2, tiles=1), linked=True),
            node(LINKED, like=3, links=(link((2, 1), (0, 0)),), disabled=frozenset({Card(1)})),
            "2:1,0:0",
        ),
        case(
            "a-card-without-tiles-is-not-linked",
            pod(container(2, tiles=1), linked=True),
            node(amounts(i915=4), LINKED, LINKED, links=(link((0, 0), (1, 0)), link((1, 0), (2, 0)))),
            "1:0,2:0",
        ),
        case(
            "the-search-takes-another-pair-if-the-first-is-a-dead-end",
            pod(container(4, tiles=1), linked=True),
            node(LINKED, like=4, links=(link((0, 0), (1, 0)), link((0, 1), (2, 0)), link((1, 1), (3, 0)))),
            "0:1,2:0,1:1,3:0",
        ),
        case(
            "cards-with-equal-capacity-but-other-links-are-not-interchangeable",
            pod(container(4, tiles=1), linked=True),
            node(LINKED, like=4, links=(link((0, 0), (1, 0)), link((0, 0), (2, 0)), link((1, 0), (3, 0)))),
            "0:0,2:0,1:0,3:0",
        ),
        case(
            "the-tiles-of-an-ended-init-container-are-free-again",
            pod(init(2, tiles=1), sidecar(2, tiles=1), container(2, tiles=1), linked=True),
            node(LINKED, like=2, links=(link((0, 0), (1, 0)), link((0, 1), (1, 1)))),
            "0:0,1:0 | 0:1,1:1 | 0:0,1:0",
        ),
        case(
            "both-ends-in-one-numa-group",
            pod(container(2, tiles=1), linked=True, scope=Scope.NUMA),
            node(LINKED, like=4, links=CHAIN, numa_groups=((Card(1), Card(2)), (Card(3),))),
            "1:1,2:1",
        ),
    ],
)
def test_linked(need: PodNeed, inventory: Inventory, usage: Usage, expected: str) -> None:
    assert placed(need, inventory, usage) == expected
