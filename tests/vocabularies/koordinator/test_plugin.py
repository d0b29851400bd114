"""Koordinator's pods on a node: each clause of the contract with their users that the device plugin keeps."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gas.vocabularies.combined import Vocabularies
from gas.vocabularies.protocol import DeviceOptions
from gas.vocabularies.selection import parse_vocabularies
from sandbox.hardware.fake_sysfs import FLEX_170, fake_gpus, remove_gpu
from tests.builders import pod_json
from tests.other_words import sharing
from tests.plugin.gpus import gpu
from tests.plugin.node_of_sandbox import SandboxNode, sandbox_node, soon
from tests.plugin.pods_for_plugin import decided

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


# contract O1.21
async def test_the_node_loses_the_shares_of_a_card_that_fails() -> None:
    async with sandbox_node(*CARDS) as node, node.running_plugin(vocabularies=BOTH) as plugin:
        await soon(lambda: stated(node) == ALL)
        remove_gpu(node.tree, CARDS[1])
        await plugin.scanner.scan_once()
        half = {"gpu.shared": "100", "gpu-core": "100", "gpu-memory-ratio": "100", "gpu": "100", "gpu-memory": "8G"}
        await soon(lambda: stated(node) == stated(node, "capacity") == half)


def bound(name: str, cards: str, *, ts: int = 1, **asked: Any) -> dict[str, Any]:
    """Return a pod that the extender has bound."""
    return pod_json(sharing(**asked), name=name, annotations=decided(cards, ts=ts))


# contract O1.4
async def test_each_pod_gets_the_cards_that_are_written_on_it() -> None:
    async with sandbox_node(*CARDS) as node, node.running_plugin(vocabularies=BOTH):
        await soon(lambda: stated(node) == ALL)
        both = node.create(bound("both", "card0,card1", memory="2G", core=100, shared=2))
        assert await node.got(both) == ["card0", "card1"]
        second = node.create(bound("second", "card1", ts=2, ratio=10, shared=1))
        first = node.create(bound("first", "card0", ts=3, ratio=10, shared=1))
        assert [await node.got(pod) for pod in (second, first)] == [["card1"], ["card0"]]
        given = node.given(both)
        assert given is not None
        assert given.env == {}
        assert node.count("allocations_total", resource="gpu.shared", outcome="as-decided") == 3
        assert not any("gas-allocated-cards" in node.annotations(name) for name in ("both", "first", "second"))


def test_only_the_sums_are_written_by_the_plugin() -> None:
    owned = {name for name in ALONE.managed_resources if ALONE.owns_resource(name)}
    assert owned == set(ALONE.managed_resources) - {"koordinator.sh/gpu.shared"}
    assert not ALONE.owns_resource("koordinator.sh/rdma")
    assert ALONE.fewer_ids("koordinator.sh/gpu.shared") == ""
    assert ALONE.monitoring_resources(split=True) == ()
