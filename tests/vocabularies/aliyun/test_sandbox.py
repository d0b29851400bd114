"""Aliyun's pods the whole way: extender, API server, kubelet and device plugin, beside Intel's."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from gas.vocabularies.known import parse_vocabularies
from sandbox.hardware.fake_sysfs import FLEX_170, fake_gpus
from tests.builders import container, pod_json
from tests.other_words import GPU_COUNT, MIB, asking
from tests.plugin.extender_of_sandbox import running_extender, schedule
from tests.plugin.node_of_sandbox import SandboxNode, sandbox_node, soon

BOTH = parse_vocabularies("intel,aliyun")
CARDS = fake_gpus(replace(FLEX_170, memory=400 * MIB), 2)


def is_assigned(node: SandboxNode, name: str) -> bool:
    return node.annotations(name)["ALIYUN_COM_GPU_MEM_ASSIGNED"] == "true"


# contract A1.4, A1.9, A1.13, A1.15, A1.17, A1.21
async def test_pods_of_two_vocabularies_share_cards_from_the_filter_to_the_container() -> None:
    async with sandbox_node(*CARDS) as node, node.running_plugin("--shared-dev-num=4", vocabularies=BOTH):
        await soon(lambda: node.node()["status"]["allocatable"].get(GPU_COUNT) == "2")
        await soon(lambda: node.allocatable().get("millicores") == "2k")
        async with running_extender(node, BOTH) as extender:
            intel = pod_json(container(i915=1, memory_max=150 * MIB, millicores=300), name="intel")
            intel["spec"]["containers"][0]["image"] = "example/main:1"
            first, _ = await schedule(node, extender, pod_json(asking(gpu_mem=200), name="first"))
            second, _ = await schedule(node, extender, intel)
            third, _ = await schedule(
                node, extender, pod_json(asking("a", gpu_mem=100), asking("b", gpu_mem=200), name="third")
            )
            _, reason = await schedule(node, extender, pod_json(asking(gpu_mem=101), name="large"))
            assert reason == "no card has 0.1 GB of memory.max free"
            fitting, _ = await schedule(node, extender, pod_json(asking(gpu_mem=50), name="fitting"))

            assert [await node.got(pod) for pod in (first, second, fitting)] == [["card0"], ["card0"], ["card0"]]
            assert [await node.got(third, name) for name in ("a", "b")] == [["card1"], ["card1"]]
            for name in ("first", "third", "fitting"):
                await soon(partial(is_assigned, node, name))
                assert "gas-allocated-cards" not in node.annotations(name)
            assert "ALIYUN_COM_GPU_MEM_IDX" not in node.annotations("intel")
            assert node.annotations("third")["ALIYUN_COM_GPU_MEM_POD"] == "300"
            assert node.annotations("third")["ALIYUN_COM_GPU_MEM_DEV"] == "400"
