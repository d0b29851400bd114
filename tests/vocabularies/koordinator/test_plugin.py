"""Koordinator's pods on a node: each clause of the contract with their users that the device plugin keeps."""

from __future__ import annotations

import json
from dataclasses import replace

from gas.values.card_facts import CardFacts
from gas.vocabularies.combined import Vocabularies
from gas.vocabularies.protocol import DeviceOptions
from gas.vocabularies.selection import parse_vocabularies
from sandbox.hardware.fake_sysfs import FLEX_170, fake_gpus
from tests.background import soon
from tests.builders import pod_json
from tests.other_words import sharing
from tests.plugin.gpus import gpu
from tests.plugin.node_of_sandbox import SandboxNode, sandbox_node

BOTH = parse_vocabularies("intel,koordinator")
ALONE = Vocabularies(parse_vocabularies("koordinator"))
GB = 10**9
CARDS = fake_gpus(replace(FLEX_170, memory=8 * GB), 2)


def stated(node: SandboxNode, field: str = "allocatable") -> dict[str, str]:
    """Return Koordinator's resources of the node, without the prefix."""
    prefix = "koordinator.sh/"
    return {
        name.removeprefix(prefix): text
        for name, text in node.node()["status"].get(field, {}).items()
        if name.startswith(prefix)
    }


ALL = {"gpu.shared": "200", "gpu-core": "200", "gpu-memory-ratio": "200", "gpu": "200", "gpu-memory": "16G"}


# contract O1.2
async def test_the_node_states_100_shares_of_each_card_and_the_sums_beside_them() -> None:
    async with sandbox_node(*CARDS) as node, node.running_plugin(vocabularies=BOTH):
        await soon(lambda: stated(node) == stated(node, "capacity") == ALL)


# contract O1.2
def test_8_cards_are_800_shares() -> None:
    cards = [gpu(number) for number in range(8)]
    assert sum(ALONE.ids_per_card(card, DeviceOptions())["koordinator.sh/gpu.shared"] for card in cards) == 800
    assert ALONE.describe(cards, DeviceOptions()).resources["koordinator.sh/gpu-core"] == 800


# contract O1.25
async def test_a_pod_that_koordinator_decided_gets_its_cards() -> None:
    async with sandbox_node(*CARDS) as node, node.running_plugin(vocabularies=BOTH):
        await soon(lambda: stated(node) == ALL)
        for name, minor in {"a": 1, "b": 0, "c": 1}.items():
            allocated = {"gpu": [{"minor": minor, "resources": {"koordinator.sh/gpu-core": "10"}}]}
            annotations = {"scheduling.koordinator.sh/device-allocated": json.dumps(allocated)}
            share = sharing(shared=1, core=10, ratio=10)
            pod = node.create(pod_json(share, name=name, annotations=annotations))
            assert await node.got(pod) == [f"card{minor}"]
        assert node.count("allocations_total", resource="gpu.shared", outcome="as-decided") == 3


# contract O1.27
async def test_each_app_container_sees_all_cards_of_its_pod() -> None:
    allocated = json.dumps({"gpu": [{"minor": 0}, {"minor": 1}]})
    decisions = (
        {"scheduling.koordinator.sh/device-allocated": allocated},
        {"gas-container-cards": "card1|card0", "gas-ts": "1"},
    )
    async with sandbox_node(*CARDS) as node, node.running_plugin(vocabularies=BOTH):
        await soon(lambda: stated(node) == ALL)
        for number, annotations in enumerate(decisions):
            share = [sharing(name, shared=1, ratio=10) for name in ("a", "b")]
            pod = node.create(pod_json(*share, name=f"p{number}", annotations=annotations))
            for container in ("a", "b"):
                assert await node.got(pod, container) == ["card0", "card1"]
        assert node.count("allocations_total", resource="gpu.shared", outcome="as-decided") == 4


# contract O1.31
def test_labels_describe_cards_that_are_alike() -> None:
    arc = gpu(0, model="Arc B580")
    nvidia = gpu(1, driver="nvidia", driver_version="550.54.15", model="NVIDIA H800")
    prefix = "node.koordinator.sh/gpu-"

    def labels(*cards: CardFacts) -> dict[str, str]:
        described = ALONE.describe(cards, DeviceOptions()).labels
        assert all(map(ALONE.owns_label, described))
        return {name.removeprefix(prefix): text for name, text in described.items()}

    assert labels(arc, arc) == {"model": "Arc-B580", "vendor": "intel"}
    assert labels(nvidia) == {"model": "NVIDIA-H800", "vendor": "nvidia", "driver-version": "550.54.15"}
    assert labels(arc, nvidia) == {}


# contract O1.21
def test_unhealthy_cards_do_not_count_and_cards_of_unknown_memory_have_none() -> None:
    cards = [gpu(0), gpu(1, healthy=False), gpu(2, memory=None)]
    assert [sum(ALONE.ids_per_card(card, DeviceOptions()).values()) for card in cards] == [100, 0, 100]
    assert ALONE.describe(cards, DeviceOptions()).resources == {
        "koordinator.sh/gpu": 200,
        "koordinator.sh/gpu-core": 200,
        "koordinator.sh/gpu-memory-ratio": 100,
        "koordinator.sh/gpu-memory": 8 * GB,
    }
    assert ALONE.describe([gpu(0, healthy=False)], DeviceOptions()).resources == {}


def test_only_the_sums_are_written_by_the_plugin() -> None:
    owned = {name for name in ALONE.managed_resources if ALONE.owns_resource(name)}
    assert owned == set(ALONE.managed_resources) - {"koordinator.sh/gpu.shared"}
    assert not ALONE.owns_resource("koordinator.sh/rdma")
    assert ALONE.fewer_ids("koordinator.sh/gpu.shared") == ""
    assert ALONE.monitoring_resources(split=True) == ()
