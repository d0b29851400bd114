"""What the sandbox's kubelet still knows after a restart."""

from __future__ import annotations

import asyncio

from gas.plugin.kubelet.listing import Listing
from gas.plugin.kubelet.pod_resources import PodResources
from gas.sandbox.fake_sysfs import FLEX_170, fake_gpus
from tests.builders import container, pod_json
from tests.plugin.node_of_sandbox import sandbox_node
from tests.plugin.pods_for_plugin import decided

NAMES = ("first", "second", "third")


async def test_every_pod_that_runs_on_keeps_its_devices() -> None:
    async with sandbox_node(*fake_gpus(FLEX_170, 3)) as node, node.running_plugin():
        for card, name in enumerate(NAMES):
            pod = pod_json(container(i915=1), name=name, annotations=decided(f"card{card}", ts=card))
            await node.got(node.create(pod))
        await node.stop_kubelet()
        await node.start_kubelet()
        resources = PodResources(node.kubelet_dir / "pod-resources/kubelet.sock")
        listing: Listing | None = None
        try:
            for _ in range(250):
                listing = await resources.pods()
                if listing is not None and len(listing) == len(NAMES):
                    break
                await asyncio.sleep(0.02)
        finally:
            await resources.close()
        assert listing is not None
        listed = {
            key: {str(id_) for ids in containers["main"].values() for id_ in ids} for key, containers in listing.items()
        }
        assert listed == {f"default/{name}": {f"card{card}-0"} for card, name in enumerate(NAMES)}
