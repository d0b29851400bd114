"""The affinity mask of a container, contract P4.1 to P4.4."""

from __future__ import annotations

import pytest

from gas.plugin.devices.affinity_mask import affinity_mask
from tests.builders import container
from tests.plugin.pods_for_plugin import decided, seen

FLAT, COMPOSITE, COMBINED = "FLAT", "COMPOSITE", "COMBINED"


@pytest.mark.parametrize(
    ("tiles", "tiles_of_cards", "hierarchy", "mask"),
    [
        pytest.param([(1,)], [2], None, "1", id="flat-is-the-default"),
        pytest.param([(1,)], [2], FLAT, "1", id="flat"),
        pytest.param([(0,), (1,)], [2, 2], FLAT, "0,3", id="flat-counts-tiles-through-all-cards"),
        pytest.param([(0,), (1,)], [2, 2], COMBINED, "0,3", id="combined-counts-as-flat"),
        pytest.param([(0,), (1,)], [2, 2], COMPOSITE, "0.0,1.1", id="composite-names-card-and-tile"),
        pytest.param([(0,), (1,)], [2, 2], "composite", "0,3", id="the-driver-knows-only-capitals"),
        pytest.param([(2, 0)], [4], FLAT, "2,0", id="tiles-in-the-order-decided"),
        pytest.param([(1,), (), (0, 3)], [4, 4, 4], FLAT, "1,8,11", id="a-card-without-tiles-keeps-its-position"),
        pytest.param([(1,), (), (0,)], [4, 4, 4], COMPOSITE, "0.1,2.0", id="a-card-without-tiles-keeps-its-number"),
        pytest.param([(1,), (1,)], [2, 4], FLAT, "1,3", id="cards-of-different-models-count-each-with-its-own-tiles"),
        pytest.param([], [2, 2], FLAT, None, id="no-mask-without-tiles-in-the-annotation"),
        pytest.param([(), ()], [2, 2], FLAT, None, id="no-mask-without-any-tile"),
        pytest.param([(0,)], [1], FLAT, None, id="no-mask-with-one-tile-a-card"),
        pytest.param([(2,)], [2], FLAT, None, id="no-mask-for-a-tile-that-the-card-does-not-have"),
        pytest.param([(2,), (0,)], [2, 2], COMPOSITE, None, id="nor-for-all-when-one-does-not-exist"),
        pytest.param([(0,), (0,)], [2], FLAT, None, id="no-mask-when-there-are-fewer-cards-than-decided"),
    ],
)
def test_mask(tiles: list[tuple[int, ...]], tiles_of_cards: list[int], hierarchy: str | None, mask: str | None) -> None:
    assert affinity_mask(tiles, tiles_of_cards, hierarchy) == mask


def test_a_container_does_not_get_the_mask_of_the_one_after_it() -> None:
    """Parts of the annotation are counted with the empty ones."""
    pod = seen(
        container("a", i915=1),
        container("b", i915=1, tiles=1),
        annotations=decided("card0|card1", tiles="|card1:gt1"),
    )

    masks = [affinity_mask(given.tiles, [2], None) for index in (0, 1) if (given := pod.decided_for(index))]

    assert masks == [None, "1"]
