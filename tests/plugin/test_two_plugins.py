"""Plugins one after another on one node, and two at once as in a rolling update: the newer one has kubelet."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from gas.plugin.assembly import Plugin
from gas.plugin.kubelet.registration import State
from sandbox.hardware.fake_sysfs import FLEX_170, MAX_1550_XE, fake_gpus
from tests.plugin.node_of_sandbox import SandboxNode, sandbox_node
from tests.plugin.scripted_kubelet import eventually

UNLIKE = (*fake_gpus(FLEX_170, 1), *fake_gpus(MAX_1550_XE, 1, first=1))


async def test_the_one_that_stands_back_leaves_the_node_to_the_other_one() -> None:
    async with sandbox_node(*UNLIKE) as node, node.running_plugin("--shared-dev-num=2") as old:
        await eventually(lambda: "card0=i915:2," in capacity(node))
        async with node.running_plugin("--shared-dev-num=4"):
            await eventually(lambda: {each.state for each in old.registrations.values()} == {State.STANDING_BACK})
            await eventually(lambda: "card0=i915:4," in capacity(node))
            writes = dict(_samples(old))["gas_plugin_node_writes_total"]
            # A change of the node, which the watch of the one that stands back shows as well.
            node.annotate_node({"gas-card-capacity": "nonsense"})
            await eventually(lambda: "card0=i915:4," in capacity(node))
            await asyncio.sleep(0.5)  # a writer that is not held writes at once
            assert dict(_samples(old))["gas_plugin_node_writes_total"] == writes
        await eventually(lambda: "card0=i915:2," in capacity(node))


def capacity(node: SandboxNode) -> str:
    return str(node.node()["metadata"].get("annotations", {}).get("gas-card-capacity", ""))


def _samples(plugin: Plugin) -> Iterator[tuple[str, float]]:
    return ((name, value) for name, _, value in plugin.node.samples())
