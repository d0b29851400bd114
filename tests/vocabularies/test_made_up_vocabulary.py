"""A made-up vocabulary goes the whole way: extender, API server, kubelet and device plugin, beside Intel's."""

from __future__ import annotations

from typing import Any

from gas.vocabularies.intel.vocabulary import INTEL
from sandbox.hardware.fake_sysfs import FLEX_170, fake_gpus
from tests.background import soon
from tests.builders import container, pod_json
from tests.made_up import ASSIGNED, CARD, MADE_UP, SLICE, VARIABLE
from tests.plugin.extender_of_sandbox import running_extender, schedule
from tests.plugin.node_of_sandbox import sandbox_node

BOTH = (INTEL, MADE_UP)


def sliced(name: str, slices: int) -> dict[str, Any]:
    requests = {"requests": {SLICE: str(slices)}, "limits": {SLICE: str(slices)}}
    return pod_json({"name": "main", "image": "example/main:1", "resources": requests}, name=name)


def shared(name: str, millicores: int) -> dict[str, Any]:
    pod = pod_json(container(i915=1, millicores=millicores), name=name)
    pod["spec"]["containers"][0]["image"] = "example/main:1"
    return pod


async def test_pods_of_two_vocabularies_share_cards_from_the_filter_to_the_container() -> None:
    async with (
        sandbox_node(*fake_gpus(FLEX_170, 2)) as node,
        node.running_plugin("--shared-dev-num=4", vocabularies=BOTH),
    ):
        await soon(lambda: node.node()["status"].get("allocatable", {}).get(SLICE) == "20")
        await soon(lambda: node.allocatable().get("millicores") == "2k")
        async with running_extender(node, BOTH) as extender:
            seven, _ = await schedule(node, extender, sliced("seven", 7))
            assert node.annotations("seven")["gas-container-cards"] == "card0"
            assert node.annotations("seven")[CARD] == "0"

            half, _ = await schedule(node, extender, shared("half", 500))
            assert node.annotations("half")["gas-container-cards"] == "card1"  # card0 has 300 millicores left
            assert CARD not in node.annotations("half")

            three, _ = await schedule(node, extender, sliced("three", 3))
            assert node.annotations("three")[CARD] == "0"  # which is full now

            _, reason = await schedule(node, extender, sliced("six", 6))
            assert reason == "no card has 600 millicores free"

            assert [await node.got(pod) for pod in (seven, half, three)] == [["card0"], ["card1"], ["card0"]]
            assert (given := node.given(seven)) is not None
            assert given.env == {VARIABLE: "0"}
            await soon(lambda: node.annotations("three").get(ASSIGNED) == "true")
            assert ASSIGNED not in node.annotations("half")
