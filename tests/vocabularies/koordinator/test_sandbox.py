"""Koordinator's pods the whole way: webhook, extender, API server, kubelet and device plugin, beside Intel's."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import msgspec

from gas.objects.stored import NewPod
from gas.vocabularies.combined import Vocabularies
from gas.vocabularies.known import parse_vocabularies
from gas.vocabularies.pod_checks import PodChecks
from gas.vocabularies.protocol import NeedOptions
from sandbox.hardware.fake_sysfs import FLEX_170, fake_gpus
from tests.builders import container, pod_json
from tests.extender.admission.reviews import apply, as_json
from tests.other_words import sharing
from tests.plugin.extender_of_sandbox import running_extender, schedule
from tests.plugin.node_of_sandbox import sandbox_node, soon

BOTH = parse_vocabularies("intel,koordinator")
MB = 10**6
CARDS = (*fake_gpus(replace(FLEX_170, memory=800 * MB), 1), *fake_gpus(replace(FLEX_170, memory=400 * MB), 1, first=1))
ALLOCATED = "scheduling.koordinator.sh/device-allocated"


def created(document: dict[str, Any]) -> dict[str, Any]:
    """Return a pod as the webhook completes it."""
    changed: dict[str, Any] = as_json(document)
    for operation in PodChecks(Vocabularies(BOTH), NeedOptions()).complete(msgspec.convert(document, NewPod)):
        apply(changed, as_json(operation))
    return changed


def asking(name: str, **asked: Any) -> dict[str, Any]:
    return created(pod_json(sharing(**asked), name=name))


# contract O1.3, O1.4, O1.7, O1.16, O1.20, O1.24
async def test_pods_of_two_vocabularies_share_cards_from_the_filter_to_the_container() -> None:
    async with sandbox_node(*CARDS) as node, node.running_plugin("--shared-dev-num=4", vocabularies=BOTH):
        await soon(lambda: node.node()["status"]["allocatable"].get("koordinator.sh/gpu-core") == "200")
        await soon(lambda: node.allocatable().get("millicores") == "2k")
        await soon(lambda: node.node()["status"]["allocatable"].get("koordinator.sh/gpu.shared") == "200")
        async with running_extender(node, BOTH) as extender:
            intel = pod_json(container(i915=1, memory_max=200 * MB, millicores=300), name="intel")
            intel["spec"]["containers"][0]["image"] = "example/main:1"
            first, _ = await schedule(node, extender, intel)
            second, _ = await schedule(node, extender, asking("second", ratio=25, core=20))
            both, reason = await schedule(node, extender, asking("both", ratio=100, core=100, shared=2))
            assert reason == ""
            _, reason = await schedule(node, extender, asking("late", memory=201 * MB))
            assert reason == "no card has 0.2 GB of memory.max free"
            off = pod_json(sharing(memory=MB), name="off")
            _, reason = await schedule(node, extender, off)
            assert reason.startswith("container 'main': koordinator.sh/gpu-memory needs koordinator.sh/gpu.shared")

            assert [await node.got(pod) for pod in (first, second, both)] == [["card0"], ["card0"], ["card0", "card1"]]
            devices = json.loads(node.annotations("both")[ALLOCATED])["gpu"]
            assert [each["resources"]["koordinator.sh/gpu-memory"] for each in devices] == [
                str(400 * MB),
                str(200 * MB),
            ]
            assert ALLOCATED not in node.annotations("intel")
            assert not any("gas-allocated-cards" in node.annotations(name) for name in ("intel", "second", "both"))
