"""The names that the plugin writes on its node (contract P5.1 to P5.5), and the tiles of a container (P4.1 to P4.4)."""

from __future__ import annotations

import re
from typing import Any

import pytest

from gas.placement.inventory import Inventory
from gas.values.card_facts import CardFacts
from gas.vocabularies.intel.devices import affinity_mask, card_capacity, container_mask, node_labels, node_resources
from gas.vocabularies.intel.vocabulary import INTEL
from gas.vocabularies.protocol import NodeFacts
from tests.builders import container
from tests.plugin.gpus import gpu, scan
from tests.plugin.pods_for_plugin import decided, node_pod

GPU = "gpu.intel.com/"
VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")


def labels(*gpus: CardFacts, level: int = 0) -> dict[str, str]:
    """Without the prefix."""
    written = node_labels(scan(*gpus).gpus, pci_grouping_level=level)
    assert all(VALUE.fullmatch(value) for value in written.values())
    return {name.removeprefix(GPU): value for name, value in written.items()}


def on_board(card: int, board: str, slot: str) -> CardFacts:
    return gpu(card, pci_path=("pci0000:00", board, slot))


# contract P5.2
@pytest.mark.parametrize(
    ("gpus", "level", "expected"),
    [
        pytest.param((), 3, {}, id="no-cards-no-labels"),
        pytest.param((gpu(0),), 0, {"cards": "card0", "gpu-numbers": "0"}, id="one-card"),
        pytest.param(
            (gpu(0), gpu(2), gpu(10)),
            0,
            {"cards": "card0.card2.card10", "gpu-numbers": "0.2.10"},
            id="natural-order",
        ),
        pytest.param(
            (gpu(0), gpu(1, driver="xe")), 0, {"cards": "card0.card1", "gpu-numbers": "0.1"}, id="of-both-drivers"
        ),
        pytest.param(
            (gpu(0), gpu(1, healthy=False)),
            0,
            {"cards": "card0.card1", "gpu-numbers": "0.1"},
            id="an-unhealthy-card-keeps-its-place",
        ),
        pytest.param(
            (gpu(0, numa_node=1), gpu(1, numa_node=0), gpu(2, numa_node=1)),
            0,
            {"cards": "card0.card1.card2", "gpu-numbers": "0.1.2", "numa-gpu-map": "0-1_1-0.2"},
            id="numa-gpu-map",
        ),
        pytest.param(
            (gpu(0, numa_node=0), gpu(1)),
            0,
            {"cards": "card0.card1", "gpu-numbers": "0.1", "numa-gpu-map": "0-0"},
            id="a-card-without-numa-node-is-in-no-group",
        ),
    ],
)
def test_labels(gpus: tuple[CardFacts, ...], level: int, expected: dict[str, str]) -> None:
    assert labels(*gpus, level=level) == expected


# contract P5.3
@pytest.mark.parametrize(
    ("level", "expected"),
    [
        pytest.param(0, None, id="no-level-no-groups"),
        pytest.param(1, "0.1.2", id="the-folder-pci-alone"),
        pytest.param(2, "0.2_1", id="two-folders"),
        pytest.param(3, "0_1_2", id="as-many-as-there-are"),
        pytest.param(9, "0_1_2", id="more-than-there-are"),
    ],
)
def test_pci_groups_are_cards_that_share_so_many_folders(level: int, expected: str | None) -> None:
    gpus = (on_board(0, "b1", "s1"), on_board(1, "b2", "s1"), on_board(2, "b1", "s2"))
    assert labels(*gpus, level=level).get("pci-groups") == expected


def test_a_card_without_path_is_in_no_pci_group() -> None:
    assert labels(gpu(0, pci_path=()), gpu(1, pci_path=()), gpu(2), level=1)["pci-groups"] == "2"


# contract P5.1, P5.4
def test_long_lists_are_continued_and_the_old_label_is_not() -> None:
    written = labels(*(gpu(card) for card in range(30)))
    assert written == {
        "cards": "card0.card1.card2.card3.card4.card5.card6.card7.card8.card9",
        "gpu-numbers": "0.1.2.3.4.5.6.7.8.9.10.11.12.13.14.15.16.17.18.19.20.21.22.23.2",
        "gpu-numbers2": "Z4.25.26.27.28.29",
    }
    assert len(written["gpu-numbers"]) == 63


def test_the_old_label_ends_with_a_whole_name() -> None:
    seven = "card100.card101.card102.card103.card104.card105.card106"
    assert labels(*(gpu(card) for card in range(100, 120)))["cards"] == f"{seven}.card107"
    assert len(f"{seven}.card107") == 63
    assert labels(*(gpu(card) for card in (*range(100, 107), 1070)))["cards"] == seven


# contract P5.5
@pytest.mark.parametrize(
    ("gpus", "expected"),
    [
        pytest.param((), {}, id="no-cards-no-resources"),
        pytest.param(
            (gpu(0, memory=5), gpu(1, memory=6, tiles=2)),
            {"millicores": 2000, "memory.max": 11, "tiles": 3},
            id="sums-over-all-cards-1000-millicores-each",
        ),
        pytest.param((gpu(0, memory=None),), {"millicores": 1000, "tiles": 1}, id="no-memory-no-memory-resource"),
        pytest.param(
            (gpu(0, memory=5), gpu(1, memory=5, healthy=False)),
            {"millicores": 1000, "memory.max": 5, "tiles": 1},
            id="an-unhealthy-card-has-nothing-to-give",
        ),
        pytest.param((gpu(0, healthy=False),), {}, id="nothing-is-not-written-as-0"),
    ],
)
def test_node_resources(gpus: tuple[CardFacts, ...], expected: dict[str, int]) -> None:
    assert node_resources(scan(*gpus).gpus) == {GPU + name: amount for name, amount in expected.items()}


@pytest.mark.parametrize(
    ("gpus", "expected"),
    [
        pytest.param((), None, id="no-cards"),
        pytest.param((gpu(0), gpu(1)), None, id="alike"),
        pytest.param((gpu(0, numa_node=0, device_id="0x1234"), gpu(1, numa_node=1)), None, id="alike-in-what-counts"),
        pytest.param(
            (gpu(0, memory=5), gpu(1, memory=6)), "card0=memory.max:5;card1=memory.max:6", id="different-memory"
        ),
        pytest.param(
            (gpu(0, memory=5), gpu(1, memory=None)), "card0=memory.max:5;card1=memory.max:0", id="one-without-memory"
        ),
        pytest.param((gpu(0), gpu(1, tiles=2)), "card0=tiles:1;card1=tiles:2", id="different-tiles"),
        pytest.param(
            (gpu(0, driver="xe"), gpu(1), gpu(10)),
            "card0=i915:0,xe:3;card1=i915:3,xe:0;card10=i915:3,xe:0",
            id="both-drivers-with-zeros-times-shared-dev-num",
        ),
        pytest.param(
            (gpu(0, memory=5), gpu(1, memory=5, healthy=False)),
            "card0=i915:3,memory.max:5,millicores:1000,tiles:1;card1=i915:0,memory.max:0,millicores:0,tiles:0",
            id="an-unhealthy-card",
        ),
        pytest.param((gpu(0, healthy=False), gpu(1, healthy=False)), None, id="all-unhealthy"),
    ],
)
def test_card_capacity(gpus: tuple[CardFacts, ...], expected: str | None) -> None:
    assert card_capacity(scan(*gpus).gpus, shared_dev_num=3) == expected


@pytest.mark.parametrize("fields", [{}, {"healthy": False}, {"memory": 5}])
def test_one_card_alone_is_like_all_others(fields: dict[str, Any]) -> None:
    assert card_capacity(scan(gpu(0, **fields)).gpus, shared_dev_num=1) is None


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


@pytest.mark.parametrize("always", [False, True])
def test_init_containers_and_sidecars_get_a_mask_where_only_they_have_tiles(*, always: bool) -> None:
    annotations = decided("", init="card0") | {"gas-init-container-tiles": "card0:gt1"}
    pod = node_pod(container("a"), init=(container("i", always=always, i915=1, tiles=1),), annotations=annotations)

    assert container_mask(pod, "i", [gpu(0, tiles=2)]) == "1"
    assert INTEL.environment(pod, "i", [gpu(0, tiles=2)], NodeFacts(inventory=Inventory(capacity={}))) == {
        "ZE_AFFINITY_MASK": "1"
    }


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
