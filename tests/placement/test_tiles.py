"""The tiles of each card: as many as needed, open, and not of another pod (contract E8.7 to E8.11)."""

from __future__ import annotations

import pytest

from gas.placement.inventory import UNUSED, Inventory, Usage
from gas.placement.need import PodNeed
from gas.values.cards import Card
from tests.placement.builders import amounts, booked, container, init, node, placed, pod, sidecar

CARD = amounts(i915=10, tiles=4)


# contract E8.7, E8.9 to E8.11
@pytest.mark.parametrize(
    ("need", "inventory", "usage", "expected"),
    [
        pytest.param(pod(container(2, tiles=2)), node(CARD, like=2), UNUSED, "0:0+1,1:0+1", id="ascending"),
        pytest.param(
            pod(container(tiles=1), container(tiles=2)),
            node(CARD),
            UNUSED,
            "0:0 | 0:1+2",
            id="later-containers-get-other-tiles",
        ),
        pytest.param(
            pod(container(tiles=3)),
            node(CARD, preferred_tiles={Card(0): (3, 2)}),
            UNUSED,
            "0:3+2+0",
            id="preferred-tiles-first",
        ),
        pytest.param(
            pod(container(tiles=2)),
            node(CARD, closed_tiles={Card(0): frozenset({0})}),
            booked(amounts(tiles=1), tiles={0: {2}}),
            "0:1+3",
            id="no-closed-or-booked-tiles",
        ),
        pytest.param(
            pod(container(tiles=3)),
            node(CARD, like=2, closed_tiles={Card(0): frozenset({0, 1})}),
            UNUSED,
            "1:0+1+2",
            id="closed-tiles-lower-what-is-free",
        ),
        pytest.param(
            pod(container(tiles=3)),
            node(CARD, closed_tiles={Card(0): frozenset({1})}),
            booked(amounts(tiles=1), tiles={0: {1}}),
            "0:0+2+3",
            id="a-closed-tile-that-a-pod-holds-counts-once",
        ),
        pytest.param(
            pod(container(tiles=1)),
            node(CARD, like=2),
            booked(amounts(tiles=1), tiles={0: {0, 1, 2, 3}}),
            "1:0",
            id="a-card-with-all-tiles-booked-is-full-in-spite-of-its-amounts",
        ),
        pytest.param(pod(container(tiles=0)), node(CARD), UNUSED, "0", id="no-tiles-without-a-need-for-tiles"),
        pytest.param(
            pod(init(tiles=2), container(tiles=2), container(tiles=2)),
            node(CARD),
            UNUSED,
            "0:0+1 | 0:0+1 | 0:2+3",
            id="an-init-container-takes-tiles-that-the-pod-has-anyway",
        ),
        pytest.param(
            pod(sidecar(tiles=1), init(tiles=3), container(tiles=3)),
            node(CARD),
            UNUSED,
            "0:3 | 0:0+1+2 | 0:0+1+2",
            id="an-init-container-takes-no-tile-of-a-sidecar-that-runs-beside-it",
        ),
        pytest.param(
            pod(init(tiles=4), sidecar(tiles=2), container(tiles=2)),
            node(CARD),
            UNUSED,
            "0:0+1+2+3 | 0:2+3 | 0:0+1",
            id="a-sidecar-that-starts-later-does-not-matter",
        ),
    ],
)
def test_tiles(need: PodNeed, inventory: Inventory, usage: Usage, expected: str) -> None:
    assert placed(need, inventory, usage) == expected
