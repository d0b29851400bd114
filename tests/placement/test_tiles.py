"""The tiles of each card: as many as needed, open, and not of another pod (contract E8.7 to E8.11)."""

from __future__ import annotations

import pytest

from gas.placement.inventory import Inventory, Usage, free_amount, free_amounts
from gas.placement.need import PodNeed
from gas.values.cards import Card
from tests.placement.builders import amounts, booked, case, container, init, node, placed, pod, sidecar

CARD = amounts(i915=10, tiles=4)


# contract E8.7, E8.9 to E8.11
@pytest.mark.parametrize(
    ("need", "inventory", "usage", "expected"),
    [
        case("ascending", pod(container(2, tiles=2)), node(CARD, like=2), "0:0+1,1:0+1"),
        case(
            "later-containers-get-other-tiles", pod(container(tiles=1), container(tiles=2)), node(CARD), "0:0 | 0:1+2"
        ),
        case(
            "preferred-tiles-first", pod(container(tiles=3)), node(CARD, preferred_tiles={Card(0): (3, 2)}), "0:3+2+0"
        ),
        case(
            "no-closed-or-booked-tiles",
            pod(container(tiles=2)),
            node(CARD, closed_tiles={Card(0): frozenset({0})}),
            "0:1+3",
            usage=booked(amounts(tiles=1), tiles={0: {2}}),
        ),
        case(
            "closed-tiles-lower-what-is-free",
            pod(container(tiles=3)),
            node(CARD, like=2, closed_tiles={Card(0): frozenset({0, 1})}),
            "1:0+1+2",
        ),
        case(
            "a-closed-tile-that-a-pod-holds-counts-once",
            pod(container(tiles=3)),
            node(CARD, closed_tiles={Card(0): frozenset({1})}),
            "0:0+2+3",
            usage=booked(amounts(tiles=1), tiles={0: {1}}),
        ),
        case(
            "a-card-with-all-tiles-booked-is-full-in-spite-of-its-amounts",
            pod(container(tiles=1)),
            node(CARD, like=2),
            "1:0",
            usage=booked(amounts(tiles=1), tiles={0: {0, 1, 2, 3}}),
        ),
        *(
            case(
                f"{count}-tiles-do-not-fit-on-a-card-without-tiles",
                pod(container(tiles=count)),
                node(amounts(i915=1), amounts(i915=1, tiles=0), CARD),
                expected,
            )
            for count, expected in ((0, "2"), (1, "2:0"))
        ),
        case(
            "a-closed-tile-that-is-the-only-one",
            pod(container(tiles=1)),
            node(amounts(i915=1, tiles=1), like=2, closed_tiles={Card(0): frozenset({0})}),
            "1:0",
        ),
        case("no-tiles-without-a-need-for-tiles", pod(container(tiles=0)), node(CARD), "0"),
        case(
            "an-init-container-takes-tiles-that-the-pod-has-anyway",
            pod(init(tiles=2), container(tiles=2), container(tiles=2)),
            node(CARD),
            "0:0+1 | 0:0+1 | 0:2+3",
        ),
        case(
            "an-init-container-takes-no-tile-of-a-sidecar-that-runs-beside-it",
            pod(sidecar(tiles=1), init(tiles=3), container(tiles=1)),
            node(CARD),
            "0:1 | 0:0+2+3 | 0:0",
        ),
        case(
            "a-sidecar-that-starts-later-does-not-matter",
            pod(init(tiles=4), sidecar(tiles=2), container(tiles=2)),
            node(CARD),
            "0:0+1+2+3 | 0:2+3 | 0:0+1",
        ),
    ],
)
def test_tiles(need: PodNeed, inventory: Inventory, usage: Usage, expected: str) -> None:
    assert placed(need, inventory, usage) == expected


def test_a_closed_tile_is_not_free_and_is_not_subtracted_twice_while_it_is_used() -> None:
    inventory = node(amounts(i915=4, tiles=4), closed_tiles={Card(0): frozenset({0, 1})})
    usage = Usage(amounts={Card(0): {"tiles": 1}}, tiles={Card(0): frozenset({1})})
    assert free_amounts(inventory, usage, Card(0)) == {"i915": 4, "tiles": 2}
    assert [free_amount(inventory, usage, Card(number), "tiles") for number in (0, 1)] == [2, 0]
