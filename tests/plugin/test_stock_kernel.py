"""The plugin on a stock kernel, which does not state the memory of cards in sysfs: the driver does, or nothing does."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from gas.objects import Node
from gas.placement import (
    Card,
    ContainerNeed,
    Inventory,
    PodNeed,
    Refusal,
    Usage,
    footprint,
    place,
    sorted_amounts,
)
from gas.plugin.discovery.local_memory import MemoryReader
from gas.plugin.discovery.render_node import CannotAsk, Query
from gas.plugin.discovery.sysfs import SysfsCards
from gas.sandbox.hardware.fake_sysfs import ARC_A770, ARC_B580, Model, fake_gpus
from gas.vocabularies import DEFAULT
from tests.plugin.node_of_sandbox import NODE, SandboxNode, sandbox_node
from tests.plugin.scripted_kubelet import eventually

GB = 10**9
STOCK_A770 = replace(ARC_A770, memory=None)


def eight_gigabytes(node: Path, driver: str) -> tuple[int, ...]:
    return (8 * GB,)


def nothing(node: Path, driver: str) -> tuple[int, ...]:
    raise CannotAsk("cannot open a render node: Operation not permitted")


def sources(node: SandboxNode, query: Query) -> tuple[SysfsCards, ...]:
    return (SysfsCards(node.tree, memory=MemoryReader(query=query)),)


def inventory_of(node: SandboxNode) -> Inventory:
    return DEFAULT.facts(msgspec.convert(node.node(), Node)).inventory


def pod(resource: str) -> PodNeed:
    """Return the need of a pod that requests one card and 5 GB of its memory."""
    per_card = sorted_amounts({resource: 1, "memory.max": 5 * GB})
    return PodNeed((ContainerNeed("main", 1, per_card),), count_resources=frozenset({resource}))


@pytest.mark.parametrize("model", [pytest.param(STOCK_A770, id="i915"), pytest.param(ARC_B580, id="xe")])
async def test_two_pods_of_5_gb_get_a_card_of_8_gb_each_and_the_third_waits(model: Model) -> None:
    async with (
        sandbox_node(*fake_gpus(model, 2)) as node,
        node.running_plugin("--shared-dev-num=10", sources=sources(node, eight_gigabytes)),
    ):
        await eventually(lambda: "memory.max" in node.allocatable())
        assert node.count("card_memory_bytes", card="card0", source="query") == 8 * GB
        annotations = node.node()["metadata"]["annotations"]
        assert annotations["gas-cards"].count('"memorySource":"query"') == 2
        inventory, need = inventory_of(node), pod(model.driver)
        booked: dict[Card, dict[str, int]] = {}
        for expected in (Card(0), Card(1)):
            choice = place(need, inventory, Usage(amounts=booked))
            assert not isinstance(choice, Refusal)
            assert choice.containers[0].cards == (expected,)
            booked |= {card: dict(amounts) for card, amounts in footprint(need, choice).amounts.items()}
        third = place(need, inventory, Usage(amounts=booked))
        assert str(third) == "no card has 5.0 GB of memory.max free"


async def test_without_any_source_the_node_and_the_refusal_say_why(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with (
        sandbox_node(*fake_gpus(ARC_B580, 2)) as node,
        node.running_plugin(sources=sources(node, nothing)),
    ):
        fault = (
            "card0, card1: its memory is unknown: sysfs does not state it, and cannot open a render node: Operation "
            "not permitted; pods that request memory do not get this card; let the plugin open its render node, or set "
            "GPU_MEMORY_OVERRIDE"
        )
        await eventually(lambda: node.events(NODE).count(("GPUMemoryUnknown", fault)) == 1)
        await eventually(lambda: "millicores" in node.allocatable())
        assert node.count("card_memory_bytes", card="card1", source="unknown") == 0
        assert [record.memory for record in caplog.records if hasattr(record, "memory")] == [
            "card0:unknown,card1:unknown"
        ]
        refusal = place(pod("xe"), inventory_of(node), Usage())
        assert str(refusal) == "no card of the node has any memory.max (see the events of the node)"
        assert [reason for reason, _ in node.events(NODE)].count("GPUMemoryUnknown") == 1
