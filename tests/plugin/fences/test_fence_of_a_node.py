"""The plugin with --fence, in a node inside the process."""

from __future__ import annotations

import json

import pytest

from gas.daemon.flags import UsageError
from gas.plugin.fences.fence import MalformedFence
from gas.plugin.flags import parse_flags
from gas.plugin.nvml.nvml_cards import NvmlCards
from gas.vocabularies.selection import parse_vocabularies
from tests.background import soon
from tests.builders import pod_json
from tests.other_words import sharing
from tests.plugin.node_of_sandbox import sandbox_node
from tests.plugin.nvml.nvml_double import GIB, FakeNvml, nvml_card, uuid
from tests.plugin.pods_for_plugin import decided

KOORDINATOR = parse_vocabularies("koordinator")


async def test_a_container_gets_the_fence_beside_its_card() -> None:
    async with sandbox_node() as node:
        file = node.directory / "fence.json"
        file.write_text(json.dumps({"variables": {"L": "{memory}"}, "cdiDevices": ["a.com/b=c"]}), encoding="utf-8")
        library = FakeNvml([nvml_card(0)])
        async with node.running_plugin(
            f"--fence={file}", vocabularies=KOORDINATOR, sources=[NvmlCards(node.tree, library)]
        ):
            pod = node.create(pod_json(sharing(shared=1, memory=GIB), name="a", annotations=decided("card0")))
            await soon(lambda: node.given(pod) is not None)
            given = node.given(pod)
            assert given is not None
            assert given.env == {"L": str(GIB), "NVIDIA_VISIBLE_DEVICES": uuid(0)}
            assert given.cdi_devices == ("a.com/b=c",)


# contract O1.30
async def test_only_a_pod_that_chooses_a_preset_gets_one_with_chosen() -> None:
    async with sandbox_node() as node:
        sources = [NvmlCards(node.tree, FakeNvml([nvml_card(0)]))]
        async with node.running_plugin("--fence=chosen", vocabularies=KOORDINATOR, sources=sources):
            for isolation, limit in (("none", None), ("HAMi-core", "1024M")):
                labels = {"koordinator.sh/gpu-isolation-provider": isolation}
                share = sharing(shared=1, memory=GIB)
                pod = node.create(pod_json(share, name=isolation.lower(), labels=labels, annotations=decided("card0")))
                assert await node.got(pod) == []
                given = node.given(pod)
                assert given is not None
                assert given.env.get("CUDA_DEVICE_MEMORY_LIMIT_0") == limit


async def test_the_plugin_does_not_start_with_a_file_that_it_cannot_read() -> None:
    async with sandbox_node() as node:
        with pytest.raises(MalformedFence, match=r"--fence: /nowhere\.json: the file cannot be read"):
            async with node.running_plugin("--fence=/nowhere.json"):
                pass


@pytest.mark.parametrize("value", ["", "x", "fence.json"])
def test_a_value_that_is_neither_preset_nor_path_is_refused(value: str) -> None:
    with pytest.raises(UsageError, match="expected chosen, hami-core, mps or the absolute path of a file"):
        parse_flags([f"--fence={value}"], environ={}, host_name="n")


def test_without_the_pods_there_is_no_fence() -> None:
    flags = parse_flags(["--fence=mps", "--resource-manager=false"], environ={}, host_name="n")
    assert flags.warnings == ("ignored: --fence; with --resource-manager=false the plugin does not know the pods",)
