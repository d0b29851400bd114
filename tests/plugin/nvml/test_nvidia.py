"""NVIDIA's cards the whole way: a double of their driver's library, plugin, kubelet, API server and extender."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from gas.plugin.assembly import sysfs_cards
from gas.plugin.flags import Environment, parse_flags
from gas.plugin.nvml.nvml_cards import FIRST_BESIDE_OTHERS, NvmlCards
from gas.plugin.nvml.nvml_library import Failure
from gas.values.card_records import ANNOTATION
from gas.vocabularies.selection import parse_vocabularies
from sandbox.hardware.fake_sysfs import FLEX_170, fake_gpus
from tests.builders import container, pod_json
from tests.other_words import GPU_COUNT, MIB, NVIDIA, asking
from tests.plugin.extender_of_sandbox import running_extender, schedule
from tests.plugin.node_of_sandbox import SandboxNode, sandbox_node, soon
from tests.plugin.nvml.nvml_double import FakeNvml, nvml_card, uuid

ALL = parse_vocabularies("intel,aliyun,vendor")


def nvml(node: SandboxNode, library: FakeNvml, **options: Any) -> NvmlCards:
    return NvmlCards(node.tree, library, **options)


def allocatable(node: SandboxNode) -> dict[str, str]:
    return dict(node.node()["status"].get("allocatable", {}))


def records(node: SandboxNode) -> list[dict[str, Any]]:
    return list(json.loads(node.node()["metadata"]["annotations"][ANNOTATION]))


async def visible(node: SandboxNode, pod: dict[str, Any], name: str = "main") -> str:
    """Wait until a container has started, and return the cards that NVIDIA's runtime gives it."""
    await soon(lambda: node.given(pod, name) is not None)
    given = node.given(pod, name)
    assert given is not None
    return given.env["NVIDIA_VISIBLE_DEVICES"]


# contract V1.5
async def test_whole_cards_and_shares_get_the_decided_cards_by_uuid() -> None:
    library = FakeNvml([nvml_card(n, total=400 * MIB, reserved=0) for n in range(3)])
    async with (
        sandbox_node() as node,
        node.running_plugin(watched=False, vocabularies=ALL, sources=[nvml(node, library)]),
    ):
        await soon(lambda: (allocatable(node)[NVIDIA], allocatable(node)[GPU_COUNT]) == ("3", "3"))
        async with running_extender(node, ALL) as extender:
            share, _ = await schedule(node, extender, pod_json(asking(gpu_mem=300), name="share"))
            whole, _ = await schedule(node, extender, pod_json(asking(nvidia=2), name="whole"))
            beside, _ = await schedule(node, extender, pod_json(asking(gpu_mem=100), name="beside"))
            assert [await visible(node, pod) for pod in (share, beside)] == [uuid(0), uuid(0)]
            assert await visible(node, whole) == f"{uuid(1)},{uuid(2)}"
            _, reason = await schedule(node, extender, pod_json(asking(gpu_mem=1), name="late"))
            assert reason
            for name in ("share", "whole", "beside"):
                assert "gas-allocated-cards" not in node.annotations(name)


async def test_a_card_that_fails_leaves_the_node() -> None:
    library = FakeNvml([nvml_card(0), nvml_card(1)])
    async with (
        sandbox_node() as node,
        node.running_plugin(
            watched=False, vocabularies=parse_vocabularies("vendor"), sources=[nvml(node, library)]
        ) as plugin,
    ):
        await soon(lambda: allocatable(node)[NVIDIA] == "2")
        library.pending.append(Failure(uuid(1), 79))
        await plugin.scanner.scan_once()
        await soon(lambda: allocatable(node)[NVIDIA] == "1")
        await soon(lambda: [record.get("healthy", True) for record in records(node)] == [True, False])


async def test_cards_of_two_vendors_share_a_node() -> None:
    intel_cards = fake_gpus(replace(FLEX_170, memory=400 * MIB), 1)
    library = FakeNvml([nvml_card(0, total=800 * MIB, reserved=0)])
    async with sandbox_node(*intel_cards) as node:
        (sysfs,) = sysfs_cards(parse_flags([f"--prefix={node.tree}"], environ={}, host_name="h"), Environment())
        sources = [sysfs, nvml(node, library, first_number=FIRST_BESIDE_OTHERS)]
        async with node.running_plugin("--shared-dev-num=4", vocabularies=ALL, sources=sources):
            await soon(lambda: (allocatable(node)[NVIDIA], allocatable(node)[GPU_COUNT]) == ("1", "2"))
            await soon(lambda: node.allocatable()["millicores"] == "1k")
            labels = node.node()["metadata"]["labels"]
            assert labels["gpu.intel.com/gpu-numbers"] == "0"
            async with running_extender(node, ALL) as extender:
                intel = pod_json(container(i915=1, memory_max=300 * MIB, millicores=500), name="intel")
                intel["spec"]["containers"][0]["image"] = "example/main:1"
                first, _ = await schedule(node, extender, intel)
                small, _ = await schedule(node, extender, pod_json(asking(gpu_mem=100), name="small"))
                large, _ = await schedule(node, extender, pod_json(asking(gpu_mem=700), name="large"))
                assert [await node.got(pod) for pod in (first, small)] == [["card0"], ["card0"]]
                assert await visible(node, large) == uuid(0)
                assert node.annotations("large")["ALIYUN_COM_GPU_MEM_IDX"] == "1"  # card1000 is the second one
                _, reason = await schedule(node, extender, pod_json(asking(nvidia=1), name="whole"))
                assert reason == "no card has 100 percent of millicores free"


async def test_near_cards_are_those_that_nvlink_joins() -> None:
    peers = {0: 3, 1: 2, 2: 1, 3: 0}
    library = FakeNvml([nvml_card(n, peers=((0, 0x10 + peers[n], 0),)) for n in range(4)])
    vendor = parse_vocabularies("vendor")
    async with (
        sandbox_node() as node,
        node.running_plugin(watched=False, vocabularies=vendor, sources=[nvml(node, library)]),
    ):
        await soon(lambda: allocatable(node)[NVIDIA] == "4")
        async with running_extender(node, vendor) as extender:
            near = pod_json(asking(nvidia=2), name="near", annotations={"gas-card-near": "true"})
            pod, _ = await schedule(node, extender, near)
            assert await visible(node, pod) == f"{uuid(0)},{uuid(3)}"


async def test_a_link_that_is_gone_leaves_the_node() -> None:
    library = FakeNvml([nvml_card(0, on_switch=True), nvml_card(1, on_switch=True)])
    async with (
        sandbox_node() as node,
        node.running_plugin(
            watched=False, vocabularies=parse_vocabularies("vendor"), sources=[nvml(node, library)]
        ) as plugin,
    ):
        await soon(lambda: [record.get("links") for record in records(node)] == [[1], [0]])
        library.cards = [nvml_card(0), nvml_card(1)]
        await plugin.scanner.scan_once()
        await soon(lambda: [record.get("links") for record in records(node)] == [None, None])
