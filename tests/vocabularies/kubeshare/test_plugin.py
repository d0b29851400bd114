"""KubeShare's pods on a node, with the device plugin, and the whole way with the extender."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gas.placement.inventory import Inventory
from gas.values.card_facts import CardFacts
from gas.vocabularies.kubeshare.vocabulary import KUBESHARE
from gas.vocabularies.protocol import NodeFacts
from gas.vocabularies.selection import parse_vocabularies
from sandbox.hardware.fake_sysfs import FLEX_170, fake_gpus
from tests.background import soon
from tests.builders import pod
from tests.kubeshare_words import GIB, VGPU, share, sharing, with_card
from tests.plugin.gpus import gpu, nvidia_gpu
from tests.plugin.node_of_sandbox import sandbox_node
from tests.plugin.pods_for_plugin import decided

BOTH = parse_vocabularies("intel,kubeshare")
CARDS = fake_gpus(replace(FLEX_170, memory=4 * GIB), 2)


# contract S1.17
@pytest.mark.parametrize(
    ("card", "variables"), [(nvidia_gpu(0), {"NVIDIA_DRIVER_CAPABILITIES": "compute,utility"}), (gpu(0), {})]
)
def test_containers_with_nvidias_cards_use_of_the_driver_what_they_use_with_kubeshare(
    card: CardFacts, variables: dict[str, str]
) -> None:
    node = NodeFacts(inventory=Inventory(capacity={}))
    assert KUBESHARE.environment(pod(with_card()), "main", [card], node) == variables


# contract S1.17
async def test_a_node_offers_its_cards_and_every_container_gets_the_devices_of_the_decided_card() -> None:
    async with sandbox_node(*CARDS) as node, node.running_plugin(vocabularies=BOTH):
        await soon(lambda: node.node()["status"]["allocatable"].get(VGPU) == "2k")
        await soon(lambda: node.node()["status"]["allocatable"].get("kubeshare/millicores") == "2k")
        assert node.node()["status"]["capacity"]["kubeshare/memory.max"] == str(8 * GIB)
        asked = sharing("pod", share(gpuid="abcde") | decided("card1|card1"), with_card("a"), with_card("b"))
        del asked["metadata"]["uid"]
        created = node.create(asked)
        for name in ("a", "b"):
            assert await node.got(created, name) == ["card1"]
        assert "gas-allocated-cards" not in node.annotations("pod")
