"""HAMi's pods the whole way: a double of NVIDIA's library, plugin with a fence, kubelet, API server and extender."""

from __future__ import annotations

from typing import Any

from gas.plugin.nvml.nvml_cards import NvmlCards
from gas.vocabularies.hami.texts import parse_register
from gas.vocabularies.selection import parse_vocabularies
from tests.background import soon
from tests.hami_words import ALLOCATED, REGISTER, asking, wanting
from tests.kubelet_behaviour.plugin import Plugin
from tests.plugin.extender_of_sandbox import running_extender, schedule
from tests.plugin.node_of_sandbox import NODE, SandboxNode, sandbox_node
from tests.plugin.nvml.nvml_double import GIB, FakeNvml, nvml_card, uuid

HAMI = parse_vocabularies("intel,hami")


async def given(node: SandboxNode, pod: dict[str, Any], name: str = "main") -> dict[str, str]:
    """Wait until a container has started, and return its variables."""
    await soon(lambda: node.given(pod, name) is not None)
    found = node.given(pod, name)
    assert found is not None
    return dict(found.env)


# contract H1.12, H3.1, H3.7, H4.2
async def test_containers_get_the_decided_cards_and_limits() -> None:
    library = FakeNvml([nvml_card(number, total=24 * GIB, reserved=0) for number in range(2)])
    async with (
        sandbox_node() as node,
        node.running_plugin(
            "--fence=hami-core", watched=False, vocabularies=HAMI, sources=[NvmlCards(node.tree, library)]
        ),
    ):
        await soon(lambda: node.node()["status"]["allocatable"].get("nvidia.com/gpu") == "20")
        registered = parse_register(node.node()["metadata"]["annotations"][REGISTER])
        assert [(each.id, each.count, each.devmem) for each in registered] == [(uuid(n), 10, 24576) for n in (0, 1)]
        async with running_extender(node, HAMI) as extender:
            one, _ = await schedule(node, extender, wanting("one", gpu=1, mem=3000, cores=30, prio=1))
            two = wanting("two", asking("a", gpu=2, mem=1000), asking("b", gpu=1, mem=500, cores=5))
            two, _ = await schedule(node, extender, two)
            _, reason = await schedule(node, extender, wanting("whole", gpu=1))
            assert reason == "no card has 1000 millicores free"
            variables = await given(node, one)
            assert variables["NVIDIA_VISIBLE_DEVICES"] == uuid(0)
            assert variables["CUDA_TASK_PRIORITY"] == "1"
            assert variables["CUDA_DEVICE_MEMORY_LIMIT_0"] == "3000M"
            assert variables["CUDA_DEVICE_SM_LIMIT"] == "30"
            first, second = [await given(node, two, name) for name in ("a", "b")]
            assert {name: text for name, text in first.items() if name.startswith("CUDA_DEVICE_MEMORY")} == {
                "CUDA_DEVICE_MEMORY_LIMIT_0": "1000M",
                "CUDA_DEVICE_MEMORY_LIMIT_1": "1000M",
            }
            assert first["NVIDIA_VISIBLE_DEVICES"] == f"{uuid(0)},{uuid(1)}"
            assert "CUDA_DEVICE_SM_LIMIT" not in first
            assert (second["CUDA_DEVICE_MEMORY_LIMIT_0"], second["CUDA_DEVICE_SM_LIMIT"]) == ("500M", "5")
            written = node.annotations("two")[ALLOCATED]
            assert written == f"{uuid(1)},NVIDIA,1000,0:{uuid(0)},NVIDIA,1000,0:;{uuid(1)},NVIDIA,500,5:;"


# contract H3.5
async def test_pods_that_hamis_plugin_served_keep_their_cards_under_ours() -> None:
    library = FakeNvml([nvml_card(number, total=24 * GIB, reserved=0) for number in range(2)])
    async with sandbox_node() as node:
        ids = [f"{uuid(card)}-{place}" for card in (0, 1) for place in range(10)]
        annotations = {"hami.io/vgpu-node": NODE, ALLOCATED: f"{uuid(1)},NVIDIA,20000,0:;"}
        async with Plugin(node.kubelet_dir / "device-plugins", "nvidia.com/gpu", ids, prefer=None) as hamis:
            await hamis.register()
            await soon(lambda: node.node()["status"].get("allocatable", {}).get("nvidia.com/gpu") == "20")
            old = node.create(wanting("old", gpu=1, mem=20000, annotations=annotations))
            await soon(lambda: node.given(old) is not None)
        await soon(lambda: node.node()["status"]["allocatable"].get("nvidia.com/gpu", "0") == "0")
        plugin = node.running_plugin(watched=False, vocabularies=HAMI, sources=[NvmlCards(node.tree, library)])
        async with plugin, running_extender(node, HAMI) as extender:
            await soon(lambda: REGISTER in node.node()["metadata"].get("annotations", {}))
            await soon(lambda: node.node()["status"]["allocatable"].get("nvidia.com/gpu") == "20")
            large, _ = await schedule(node, extender, wanting("large", gpu=1, mem=10000))
            assert (await given(node, large))["NVIDIA_VISIBLE_DEVICES"] == uuid(0)
            _, reason = await schedule(node, extender, wanting("late", gpu=1, mem=20000))
            assert reason == "no card has 20000 MiB of nvidia.com/gpumem free"
            assert node.annotations("old") == annotations
            assert not node.events("old")
