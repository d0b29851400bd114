"""Plugins one after another on one node, and two at once as in a rolling update: the newer one has kubelet."""

from __future__ import annotations

import asyncio

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
            assert old.cluster is not None
            assert old.cluster.node_writer is not None
            writes = old.cluster.node_writer.writes
            # A change of the node, which the watch of the one that stands back shows as well.
            node.annotate_node({"gas-card-capacity": "nonsense"})
            await eventually(lambda: "card0=i915:4," in capacity(node))
            await asyncio.sleep(0.5)  # a writer that is not held writes at once
            assert old.cluster.node_writer.writes == writes
        await eventually(lambda: "card0=i915:2," in capacity(node))


async def test_the_feature_file_stays_when_the_older_one_ends() -> None:
    async with sandbox_node(*UNLIKE) as node:
        file = node.directory / "gpus.txt"
        flags = ("--write-node=nfd", f"--nfd-file={file}")
        old = node.running_plugin(*flags)
        await old.__aenter__()
        async with node.running_plugin(*flags):
            await eventually(file.exists)
            await old.__aexit__(None, None, None)
            assert file.exists()
        assert not file.exists()


def capacity(node: SandboxNode) -> str:
    return str(node.node()["metadata"].get("annotations", {}).get("gas-card-capacity", ""))
