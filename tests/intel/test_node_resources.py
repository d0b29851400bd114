"""Resources of the node and the annotation about unlike cards."""

from __future__ import annotations

from typing import Any

import pytest

from gas.card_facts import CardFacts
from gas.intel.node_resources import card_capacity, node_resources
from tests.plugin.gpus import gpu, scan

GPU = "gpu.intel.com/"


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
