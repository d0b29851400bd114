"""KubeShare's pods on a node, with the device plugin, and the whole way with the extender."""

from __future__ import annotations

from dataclasses import replace

import msgspec

from gas.objects.json_patch import applied
from gas.objects.stored import NewPod
from gas.vocabularies.known import parse_vocabularies
from gas.vocabularies.kubeshare.vocabulary import KUBESHARE
from sandbox.hardware.fake_sysfs import FLEX_170, fake_gpus
from tests.builders import container, pod_json
from tests.kubeshare_words import GIB, GPUID, VGPU, share, sharing, with_card
from tests.plugin.extender_of_sandbox import running_extender, schedule
from tests.plugin.node_of_sandbox import sandbox_node, soon
from tests.plugin.pods_for_plugin import decided

BOTH = parse_vocabularies("intel,kubeshare")
CARDS = fake_gpus(replace(FLEX_170, memory=4 * GIB), 2)


# contract S1.17
async def test_a_node_offers_its_cards_and_every_container_gets_the_devices_of_the_decided_card() -> None:
    async with sandbox_node(*CARDS) as node, node.running_plugin(vocabularies=BOTH):
        await soon(lambda: node.node()["status"]["allocatable"].get(VGPU) == "2k")
        await soon(lambda: node.node()["status"]["allocatable"].get("kubeshare/millicores") == "2k")
        assert node.node()["status"]["capacity"]["kubeshare/memory.max"] == str(8 * GIB)
        pod = sharing("pod", share(gpuid="abcde") | decided("card1|card1"), with_card("a"), with_card("b"))
        del pod["metadata"]["uid"]
        created = node.create(pod)
        for name in ("a", "b"):
            assert await node.got(created, name) == ["card1"]
        assert "gas-allocated-cards" not in node.annotations("pod")


# contract S1.5, S1.7, S1.15, S1.16, S1.17
async def test_shares_and_intels_pods_share_cards_from_the_filter_to_the_container() -> None:
    async with sandbox_node(*CARDS) as node, node.running_plugin("--shared-dev-num=4", vocabularies=BOTH):
        await soon(lambda: node.node()["status"]["allocatable"].get("kubeshare/millicores") == "2k")
        await soon(lambda: (node.allocatable().get("millicores"), node.allocatable().get("i915")) == ("2k", "8"))
        async with running_extender(node, BOTH) as extender:
            intel = pod_json(container(i915=1, memory_max=GIB, millicores=300), name="intel")
            intel["spec"]["containers"][0]["image"] = "example/main:1"
            first, no_reason = await schedule(node, extender, sharing("first", share("0.6", "1", str(2 * GIB))))
            second, none_either = await schedule(node, extender, intel)
            plain = sharing("plain", share("0.2"), with_card("a", None), with_card("b", None))
            words = KUBESHARE.admission
            assert words is not None
            third, why = await schedule(node, extender, applied(words.complete(msgspec.convert(plain, NewPod)), plain))
            assert (no_reason, none_either, why) == ("", "", "")
            _, reason = await schedule(node, extender, sharing("large", share("0.9")))
            assert reason == "no card has 900 millicores free"
            fitting, _ = await schedule(node, extender, sharing("fitting", share("0.1")))

            assert [await node.got(pod) for pod in (first, second, fitting)] == [["card0"], ["card0"], ["card0"]]
            assert [await node.got(third, name) for name in ("a", "b")] == [["card1"], ["card1"]]
            assert node.annotations("first")[GPUID] == node.annotations("fitting")[GPUID]
            assert node.annotations("plain")[GPUID] != node.annotations("first")[GPUID]
            assert GPUID not in node.annotations("intel")
