"""Whole cards of a vendor's own plugin: extender, API server and kubelet, with that plugin beside ours."""

from __future__ import annotations

from gas.vocabularies.selection import parse_vocabularies
from sandbox.hardware.fake_sysfs import FLEX_170, fake_gpus
from tests.background import soon
from tests.builders import container, pod_json
from tests.kubelet_behaviour.plugin import Plugin
from tests.other_words import NVIDIA, asking
from tests.plugin.extender_of_sandbox import running_extender, schedule
from tests.plugin.node_of_sandbox import SandboxNode, sandbox_node

BOTH = parse_vocabularies("intel,vendor")


def cards_written(node: SandboxNode, name: str) -> str:
    return node.annotations(name)["gas-container-cards"]


# contract V1.1, V1.2, V1.4
async def test_the_vendors_plugin_hands_out_as_many_cards_as_the_extender_has_booked() -> None:
    async with sandbox_node(*fake_gpus(FLEX_170, 1)) as node, node.running_plugin(vocabularies=BOTH):
        ids = ("GPU-a", "GPU-b")
        async with Plugin(node.kubelet_dir / "device-plugins", NVIDIA, ids) as vendors:
            await vendors.register()
            await soon(lambda: node.node()["status"]["allocatable"].get(NVIDIA) == "2")
            await soon(lambda: node.allocatable().get("millicores") == "1k")
            async with running_extender(node, BOTH) as extender:
                await schedule(node, extender, pod_json(asking(nvidia=1), name="one"))
                intel = pod_json(container(i915=1, millicores=1000), name="intel")
                intel["spec"]["containers"][0]["image"] = "example/main:1"
                bound, _ = await schedule(node, extender, intel)
                await schedule(node, extender, pod_json(asking(nvidia=1), name="two"))
                _, reason = await schedule(node, extender, pod_json(asking(nvidia=1), name="three"))
                assert reason == "no card has 100 percent of millicores free"
                assert [cards_written(node, name) for name in ("one", "intel", "two")] == ["card1", "card0", "card2"]
                await soon(lambda: frozenset().union(*vendors.allocated) == frozenset(ids))
                assert await node.got(bound) == ["card0"]
                assert not node.events("one")
                node.delete("one")
                fourth, reason = await schedule(node, extender, pod_json(asking(nvidia=1), name="four"))
                assert (cards_written(node, "four"), reason) == ("card1", "")
                await soon(lambda: node.given(fourth) is not None)
