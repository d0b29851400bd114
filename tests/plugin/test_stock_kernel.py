"""The plugin on stock kernels, which do not state the memory of cards in sysfs: the driver does, or nothing does."""

from __future__ import annotations

import logging
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import msgspec
import pytest

from gas.extender.decider import Decider, Options
from gas.objects.stored import DetailedNode, Node, Pod
from gas.placement import (
    ContainerNeed,
    Inventory,
    PodNeed,
    Usage,
    place,
    sorted_amounts,
)
from gas.placement.refusal import Refusal
from gas.plugin.discovery.render_node import CannotAsk, Query
from gas.plugin.discovery.sysfs import SysfsCards
from gas.values.amounts import parse_quantity
from gas.vocabularies.known import DEFAULT
from sandbox.hardware.fake_sysfs import fake_gpus
from tests.background import eventually
from tests.builders import pod
from tests.doctor.snapshots import findings
from tests.plugin.node_of_sandbox import NODE, SandboxNode, sandbox_node
from tests.stock_kernels import STOCK_KERNELS, StockKernel

T = TypeVar("T")
GB = 10**9
BY_KERNEL = pytest.mark.parametrize("kernel", [pytest.param(each, id=each.name) for each in STOCK_KERNELS])


def nothing(node: Path, driver: str) -> tuple[int, ...]:
    raise CannotAsk("cannot open a render node: Operation not permitted")


@asynccontextmanager
async def stock_node(kernel: StockKernel, query: Query, *flags: str) -> AsyncIterator[SandboxNode]:
    """Run a node with two cards as this kernel shows them, and its plugin."""
    gpus = fake_gpus(kernel.model, 2)
    async with sandbox_node(*gpus) as node:
        for gpu in gpus:
            kernel.write(node.tree, gpu)
        sources = (SysfsCards(node.tree, query=query),)
        async with node.running_plugin(*flags, sources=sources):
            yield node


def object_of(node: SandboxNode, kind: type[T]) -> T:
    return msgspec.convert(node.node(), kind)


def inventory_of(node: SandboxNode) -> Inventory:
    return DEFAULT.facts(object_of(node, Node)).inventory


def need(resource: str) -> PodNeed:
    """Return the need of a pod that requests one card and 5 GB of its memory."""
    per_card = sorted_amounts({resource: 1, "memory.max": 5 * GB})
    return PodNeed((ContainerNeed("main", 1, per_card),), count_resources=frozenset({resource}))


@BY_KERNEL
async def test_the_memory_that_the_driver_states_can_be_requested(kernel: StockKernel) -> None:
    async with stock_node(kernel, lambda _node, _driver: kernel.regions, "--shared-dev-num=10") as node:
        await eventually(lambda: "memory.max" in node.allocatable())
        assert node.count("card_memory_bytes", card="card0", source="query") == 8 * GB
        assert parse_quantity(node.allocatable()["memory.max"]) == 16 * GB
        annotations = node.node()["metadata"]["annotations"]
        assert annotations["gas-cards"].count('"memorySource":"query"') == 2
        capacity = inventory_of(node).capacity
        assert {card: dict(amounts)["memory.max"] for card, amounts in capacity.items()} == {0: 8 * GB, 1: 8 * GB}


@pytest.mark.parametrize(
    "kernel",
    [
        pytest.param(replace(each, model=replace(each.model, device_id="0x0bd7")), id=each.name)
        for each in STOCK_KERNELS
        if each.version == "6.12"
    ],
)
async def test_without_any_source_the_node_the_pod_and_the_doctor_say_why(
    kernel: StockKernel, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    driver = kernel.model.driver
    async with stock_node(kernel, nothing) as node:
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
        refusal = place(need(driver), inventory_of(node), Usage())
        assert str(refusal) == "no card of the node has any memory.max (see the events of the node)"
        assert [reason for reason, _ in node.events(NODE)].count("GPUMemoryUnknown") == 1

        requests = {f"gpu.intel.com/{driver}": "1", "gpu.intel.com/memory.max": "5G"}
        waiting = pod({"name": "main", "resources": {"requests": requests, "limits": requests}})
        (sentence,) = said_by_the_extender(object_of(node, Node), waiting)
        assert f"the memory of card0, card1 of node {NODE} is unknown" in sentence
        assert "let gas-plugin open render nodes, or set GPU_MEMORY_OVERRIDE" in sentence

        (finding,) = (
            each
            for each in findings("node-resources", nodes=(object_of(node, DetailedNode),))
            if "memory.max" in each.message
        )
        assert finding.message == (
            "pods that request memory.max do not get card0, card1: the device plugin does not know how much memory they"
            " have"
        )
        assert finding.fix[0].endswith("the event GPUMemoryUnknown says why")


@pytest.mark.parametrize("name", ["6.12-xe-0xe20b", "7.0-xe-0xe20b"])
async def test_the_worked_example_fits_with_no_source_but_the_table_of_models(name: str) -> None:
    (kernel,) = (each for each in STOCK_KERNELS if each.name == name)
    async with stock_node(kernel, nothing) as node:
        await eventually(lambda: "memory.max" in node.allocatable())
        assert node.count("card_memory_bytes", card="card0", source="table") == 12165 * 2**20
        assert not isinstance(place(need(kernel.model.driver), inventory_of(node), Usage()), Refusal)


async def test_a_driver_that_does_not_reply_hides_no_card_and_its_late_reply_counts() -> None:
    may_reply = threading.Event()

    def query(node: Path, _driver: str) -> tuple[int, ...]:
        if node.name == "renderD129":
            may_reply.wait(30)
        return (8 * GB,)

    kernel = STOCK_KERNELS[-1]
    gpus = fake_gpus(kernel.model, 3)
    async with sandbox_node(*gpus) as node:
        sources = (SysfsCards(node.tree, query=query, within=0.05),)
        async with node.running_plugin(sources=sources) as plugin:
            try:
                await eventually(lambda: node.allocatable().get(kernel.model.driver) == "3")
                await eventually(lambda: node.allocatable().get("memory.max") == "16G")
                said = "card1: its memory is unknown: the driver has not replied on /dev/dri/renderD129 within 0.05 s; "
                await eventually(lambda: any(text.startswith(said) for _, text in node.events(NODE)))
            finally:
                may_reply.set()
            await eventually(lambda: not any(each.name == "driver" for each in threading.enumerate()))
            await plugin.scanner.scan_once()
            await eventually(lambda: node.allocatable().get("memory.max") == "24G")


def said_by_the_extender(node: Node, waiting: Pod) -> list[str]:
    """Return the messages of the extender's events about a waiting pod."""
    decider = Decider(Options(vocabularies=DEFAULT))
    decider.nodes.changed(node)
    decider.pods.changed(waiting)
    turns = decider.waiting_for_unknown_memory()
    try:
        while True:
            next(turns)
    except StopIteration as stop:
        return [sentence for _, sentence in stop.value]
