"""The affinity mask of a container, contract P4.1 to P4.4."""

from __future__ import annotations

import pytest

from gas.vocabularies.intel.affinity_mask import affinity_mask, container_mask
from tests.builders import container
from tests.plugin.gpus import gpu
from tests.plugin.pods_for_plugin import decided, node_pod

FLAT, COMPOSITE, COMBINED = "FLAT", "COMPOSITE", "COMBINED"


# contract P4.1 to P4.3
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


# contract P4.4
def test_a_container_does_not_get_the_mask_of_the_one_after_it() -> None:
    """Parts of the annotation are counted with the empty ones."""
    pod = node_pod(
        container("a", i915=1),
        container("b", i915=1, tiles=1),
        annotations=decided("card0|card1", tiles="|card1:gt1"),
    )

    masks = [container_mask(pod, name, [gpu(card, tiles=2)]) for card, name in enumerate("ab")]

    assert masks == [None, "1"]


def test_the_hierarchy_is_each_containers_own() -> None:
    composite = container("a", i915=1, tiles=1) | {
        "env": [
            {"name": "ZE_FLAT_DEVICE_HIERARCHY", "value": "FLAT"},
            {"name": "ZE_FLAT_DEVICE_HIERARCHY", "value": "COMPOSITE"},
            {"name": "OTHER", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
        ]
    }
    pod = node_pod(
        composite,
        container("b", i915=1, tiles=1),
        annotations=decided("card0|card1", tiles="card0:gt1|card1:gt1"),
    )

    assert [container_mask(pod, name, [gpu(card, tiles=2)]) for card, name in enumerate("ab")] == ["0.1", "1"]


@pytest.mark.parametrize(
    ("annotations", "cards"),
    [
        pytest.param({}, [0], id="no-decision"),
        pytest.param(decided("card0", tiles="card0:gt1"), [1], id="other-cards-than-decided"),
        pytest.param(decided("card0", tiles="card0:gt1"), [0, 1], id="more-cards-than-decided"),
        pytest.param(decided("card0|card0", tiles="card0:gt1"), [0], id="a-decision-that-cannot-be-read"),
    ],
)
def test_there_is_no_mask(annotations: dict[str, str], cards: list[int]) -> None:
    pod = node_pod(container("a", i915=1, tiles=1), annotations=annotations)

    assert container_mask(pod, "a", [gpu(card, tiles=2) for card in cards]) is None


def test_a_need_that_cannot_be_read_gets_no_mask() -> None:
    pod = node_pod(container("a", i915="1.5", tiles=1), annotations=decided("card0", tiles="card0:gt1"))

    assert container_mask(pod, "a", [gpu(0, tiles=2)]) is None
