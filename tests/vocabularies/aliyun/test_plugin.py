"""Aliyun's pods on a node: each clause of the contract with their users that the device plugin keeps."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gas.values.amounts import MemoryUnit
from gas.vocabularies.aliyun.vocabulary import ALIYUN, Aliyun
from gas.vocabularies.intel.vocabulary import INTEL
from gas.vocabularies.protocol import DeviceOptions
from gas.vocabularies.selection import parse_vocabularies
from sandbox.hardware.fake_sysfs import FLEX_170, FakeGpu, fake_gpus
from tests.background import soon
from tests.builders import pod_json
from tests.other_words import GPU_COUNT, GPU_MEM, MIB, asking
from tests.plugin.gpus import gpu
from tests.plugin.node_of_sandbox import SandboxNode, sandbox_node
from tests.plugin.pods_for_plugin import decided

BOTH = parse_vocabularies("intel,aliyun")
SIZE = 300
"""MiB of a card: few, so that kubelet's lists are short."""

ASSIGNED = "ALIYUN_COM_GPU_MEM_ASSIGNED"


def cards(count: int, size: int = SIZE, **fields: Any) -> tuple[FakeGpu, ...]:
    return fake_gpus(replace(FLEX_170, memory=size * MIB), count, **fields)


def bound(name: str, card: int, *units: int, ts: int = 1) -> dict[str, Any]:
    """Return a pod with a container for each amount, bound as the extender binds it."""
    annotations = decided("|".join(f"card{card}" for _ in units), ts=ts) | {
        "ALIYUN_COM_GPU_MEM_IDX": str(card),
        "ALIYUN_COM_GPU_MEM_POD": str(sum(units)),
        ASSIGNED: "false",
    }
    containers = [asking("main" if not number else f"c{number}", gpu_mem=each) for number, each in enumerate(units)]
    return pod_json(*containers, name=name, annotations=annotations)


def stated(node: SandboxNode, resource: str, field: str = "allocatable") -> str:
    return str(node.node()["status"].get(field, {}).get(resource, ""))


async def offered(node: SandboxNode, units: int) -> None:
    """Wait until kubelet counts this memory."""
    await soon(lambda: stated(node, GPU_MEM) == str(units))


# contract A1.1, A1.2
async def test_the_node_states_its_memory_and_its_number_of_cards() -> None:
    async with sandbox_node(*cards(2)) as node, node.running_plugin(vocabularies=BOTH) as plugin:
        await offered(node, 2 * SIZE)
        await soon(lambda: [stated(node, GPU_COUNT, field) for field in ("allocatable", "capacity")] == ["2", "2"])
        assert stated(node, "gpu.intel.com/memory.max") != ""
        assert {server.resource for server in plugin.registrations} >= {GPU_MEM}


def test_healthy_cards_with_memory_are_counted() -> None:
    cards = [gpu(0), gpu(1, healthy=False), gpu(2, memory=None)]
    assert ALIYUN.describe(cards, DeviceOptions()).resources == {GPU_COUNT: 1}


# contract A1.3
async def test_the_unit_is_a_setting() -> None:
    spoken = (INTEL, Aliyun(unit=MemoryUnit.GIB))
    async with sandbox_node(*cards(2, 2 * 1024 + 500)) as node, node.running_plugin(vocabularies=spoken):
        await offered(node, 4)


# contract A1.12, A1.13, A1.14
async def test_of_equal_pods_each_gets_the_card_of_its_own_annotation() -> None:
    async with sandbox_node(*cards(3)) as node, node.running_plugin(vocabularies=BOTH):
        await offered(node, 3 * SIZE)
        chosen = {"c": 2, "a": 0, "b": 1, "d": 2}
        pods = {
            name: node.create(bound(name, card, 100, ts=9 - number))
            for number, (name, card) in enumerate(chosen.items())
        }
        for name, card in chosen.items():
            assert await node.got(pods[name]) == [f"card{card}"]
        await soon(lambda: all(node.annotations(name)[ASSIGNED] == "true" for name in chosen))
        for name in chosen:
            assert "gas-allocated-cards" not in node.annotations(name)
        assert node.count("allocations_total", resource="gpu-mem", outcome="as-decided") == 4


def old_decision(name: str, index: int, units: int) -> dict[str, Any]:
    """Return a pod as Aliyun's own extender binds it."""
    annotations = {
        "ALIYUN_COM_GPU_MEM_IDX": str(index),
        "ALIYUN_COM_GPU_MEM_POD": str(units),
        "ALIYUN_COM_GPU_MEM_DEV": str(SIZE),
        "ALIYUN_COM_GPU_MEM_ASSUME_TIME": "1700000000000000000",
        ASSIGNED: "false",
    }
    return pod_json(asking(gpu_mem=units), name=name, annotations=annotations)


# contract A1.14, A1.22
async def test_a_pod_that_aliyuns_extender_decided_gets_its_card_and_is_marked() -> None:
    hardware = (fake_gpus(replace(FLEX_170, device_id="0x46a6", memory=0), 1)[0], *cards(3)[1:])
    async with sandbox_node(*hardware) as node:
        waiting = node.create(old_decision("early", 1, 100))
        async with node.running_plugin(vocabularies=BOTH):
            await offered(node, 2 * SIZE)
            pods = [waiting, node.create(old_decision("a", 0, 100)), node.create(old_decision("b", 1, 100))]
            assert [await node.got(pod) for pod in pods] == [["card2"], ["card1"], ["card2"]]
            await soon(lambda: all(node.annotations(name)[ASSIGNED] == "true" for name in ("early", "a", "b")))
            assert node.annotations("a")["ALIYUN_COM_GPU_MEM_ASSUME_TIME"] == "1700000000000000000"
            assert "gas-allocated-cards" not in node.annotations("a")
            assert node.count("allocations_total", resource="gpu-mem", outcome="as-decided") == 3


# contract A1.15
async def test_a_container_gets_its_card_and_the_variables_about_it() -> None:
    async with sandbox_node(*cards(2)) as node, node.running_plugin(vocabularies=BOTH):
        await offered(node, 2 * SIZE)
        pod = node.create(bound("pod", 1, 100, 50))
        for name, units in (("main", "100"), ("c1", "50")):
            assert await node.got(pod, name) == ["card1"]
            given = node.given(pod, name)
            assert given is not None
            assert given.env == {
                "ALIYUN_COM_GPU_MEM_IDX": "1",
                "ALIYUN_COM_GPU_MEM_POD": "150",
                "ALIYUN_COM_GPU_MEM_CONTAINER": units,
                "ALIYUN_COM_GPU_MEM_DEV": str(SIZE),
            }


# contract A1.16
async def test_a_call_without_a_decision_is_counted_and_an_event_reports_the_cards() -> None:
    async with sandbox_node(*cards(3)) as node, node.running_plugin(vocabularies=BOTH):
        await offered(node, 3 * SIZE)
        await node.got(node.create(bound("decided", 1, 100)))
        pod = node.create(pod_json(asking(gpu_mem=SIZE - 100), name="stray"))
        assert await node.got(pod) == ["card1"]
        given = node.given(pod)
        assert given is not None
        assert given.env["ALIYUN_COM_GPU_MEM_IDX"] == "1"
        await soon(lambda: "GPUCardsAdopted" in [reason for reason, _ in node.events("stray")])
        await soon(lambda: node.annotations("stray").get("gas-allocated-cards") == "card1")
        assert node.count("allocations_total", resource="gpu-mem", outcome="undecided") == 1
        assert ASSIGNED not in node.annotations("stray")


# contract A1.16
async def test_containers_of_a_pod_without_a_decision_get_the_fullest_card_with_room_for_all() -> None:
    async with sandbox_node(*cards(3)) as node, node.running_plugin(vocabularies=BOTH):
        await offered(node, 3 * SIZE)
        await node.got(node.create(bound("most", 0, 150)))
        await node.got(node.create(bound("some", 2, 50)))
        containers = [asking("main", gpu_mem=140), asking("c1", gpu_mem=110)]
        pod = node.create(pod_json(*containers, name="stray"))
        assert [await node.got(pod, each) for each in ("main", "c1")] == [["card2"], ["card2"]]
        await soon(lambda: node.annotations("stray").get("gas-allocated-cards") == "card2|card2")


# contract A1.16
@pytest.mark.parametrize("flags", [(), ("--resource-manager=false",)])
async def test_a_container_without_a_decision_never_gets_two_cards(flags: tuple[str, ...]) -> None:
    async with sandbox_node(*cards(2)) as node, node.running_plugin(*flags, vocabularies=BOTH):
        await offered(node, 2 * SIZE)
        for name in ("a", "b"):
            assert len(await node.got(node.create(pod_json(asking(gpu_mem=SIZE - 100), name=name)))) == 1
        node.create(pod_json(asking(gpu_mem=200), name="stray"))
        await soon(lambda: node.pod("stray")["status"].get("reason") == "UnexpectedAdmissionError")
        assert "no card has 200 of aliyun.com/gpu-mem free" in node.pod("stray")["status"]["message"]


# contract A1.16
async def test_without_the_api_a_container_gets_its_memory_of_one_card() -> None:
    async with sandbox_node(*cards(3)) as node, node.running_plugin("--resource-manager=false", vocabularies=BOTH):
        await offered(node, 3 * SIZE)
        assert await node.got(node.create(pod_json(asking(gpu_mem=SIZE), name="stray"))) == ["card0"]
