"""A made-up vocabulary goes the whole way through the plugin, beside Intel's, with no code outside its own module."""

from __future__ import annotations

from typing import Any

from gas.vocabularies.intel.vocabulary import INTEL
from sandbox.hardware.fake_sysfs import FLEX_170, fake_gpus
from tests.background import eventually, soon
from tests.builders import container, pod_json
from tests.made_up import ASSIGNED, CARDS, MADE_UP, SLICE, VARIABLE
from tests.plugin.node_of_sandbox import SandboxNode, sandbox_node
from tests.plugin.pods_for_plugin import decided

BOTH = (INTEL, MADE_UP)


def sliced(name: str, cards: str, slices: int) -> dict[str, Any]:
    requests = {"requests": {SLICE: str(slices)}, "limits": {SLICE: str(slices)}}
    return pod_json({"name": "main", "resources": requests}, name=name, annotations=decided(cards))


def allocatable(node: SandboxNode) -> str:
    return str(node.node()["status"].get("allocatable", {}).get(SLICE, ""))


async def test_pods_of_both_vocabularies_get_their_decided_cards_and_their_own_words() -> None:
    async with sandbox_node(*fake_gpus(FLEX_170, 2)) as node, node.running_plugin(vocabularies=BOTH):
        await eventually(lambda: allocatable(node) == "20")
        await eventually(lambda: node.node()["metadata"]["labels"].get(CARDS) == "0.1")
        assert node.node()["metadata"]["labels"]["gpu.intel.com/gpu-numbers"] == "0.1"

        made_up = node.create(sliced("made-up", "card1", 3))
        intel = node.create(pod_json(container(i915=1), name="intel", annotations=decided("card0")))

        assert await node.got(made_up) == ["card1"]
        assert await node.got(intel) == ["card0"]
        given = [node.given(pod) for pod in (made_up, intel)]
        assert [each.env for each in given if each] == [{VARIABLE: "1"}, {}]
        await soon(lambda: node.annotations("made-up")[ASSIGNED] == "true")
        assert node.count("allocations_total", resource="slice", outcome="as-decided") == 1
        assert node.count("allocations_total", resource="i915", outcome="as-decided") == 1
        assert ASSIGNED not in node.annotations("intel")


async def test_a_container_gets_all_its_ids_from_its_decided_card() -> None:
    async with sandbox_node(*fake_gpus(FLEX_170, 3)) as node, node.running_plugin(vocabularies=BOTH):
        await eventually(lambda: allocatable(node) == "30")

        pods = [node.create(sliced(f"p{number}", f"card{number % 3}", 5)) for number in range(6)]

        assert [await node.got(pod) for pod in pods] == [[f"card{number % 3}"] for number in range(6)]
