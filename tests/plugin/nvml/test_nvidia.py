"""NVIDIA's cards the whole way: a double of their driver's library, plugin, kubelet, API server and extender."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from gas.extender.command_line import parse_flags as parse_extender_flags
from gas.objects.json_patch import applied
from gas.objects.stored import NewPod
from gas.plugin.assembly import sysfs_cards
from gas.plugin.discovery.sysfs import SysfsCards
from gas.plugin.flags import Environment, parse_flags
from gas.plugin.nvml.nvml_cards import NvmlCards
from gas.plugin.nvml.nvml_library import Failure, NvmlFault, NvmlUse, UseSample
from gas.plugin.usage.usage_monitor import UsageMonitor
from gas.values.amounts import MemoryUnit
from gas.values.card_records import ANNOTATION
from gas.values.cards import FIRST_BESIDE_OTHERS
from gas.vocabularies.aliyun.vocabulary import Aliyun
from gas.vocabularies.combined import Vocabularies
from gas.vocabularies.pod_checks import PodChecks
from gas.vocabularies.protocol import NeedOptions, Vocabulary
from gas.vocabularies.selection import parse_vocabularies
from sandbox.hardware.fake_sysfs import FLEX_170, FakeGpu, fake_gpus
from tests.background import soon
from tests.builders import container, pod_json, requesting
from tests.deploy.manifests import arguments
from tests.kubeshare_words import share
from tests.other_words import GPU_COUNT, GPU_MEM, MIB, NVIDIA, asking, sharing
from tests.plugin.extender_of_sandbox import running_extender, schedule
from tests.plugin.node_of_sandbox import NODE, SandboxNode, sandbox_node
from tests.plugin.nvml.nvml_double import GIB, LOST, FakeNvml, instance, nvml_card, uuid
from tests.plugin.pods_for_plugin import container_id, decided
from tests.plugin.usage.processes import Processes

ALL = parse_vocabularies("intel,aliyun,vendor")
HALF_A_CARD: dict[str, dict[str, Any]] = {
    "aliyun-nvidia": pod_json(asking(gpu_mem=40), name="half"),
    "koordinator-nvidia": pod_json(sharing(core=50, memory=40 * GIB), name="half"),
    "kubeshare-nvidia": pod_json(
        requesting({}) | {"image": "example/main:1"}, name="half", annotations=share("0.5", memory=str(40 * GIB))
    ),
}
"""A pod with half of a card of 80 GiB, as a user writes it, by the overlay for its words."""


def nvml(node: SandboxNode, library: FakeNvml, **options: Any) -> NvmlCards:
    return NvmlCards(node.tree, library, **options)


def allocatable(node: SandboxNode) -> dict[str, str]:
    return dict(node.node()["status"].get("allocatable", {}))


def records(node: SandboxNode) -> list[dict[str, Any]]:
    return list(json.loads(node.node()["metadata"]["annotations"][ANNOTATION]))


def health(node: SandboxNode) -> list[bool]:
    return [record.get("healthy", True) for record in records(node)]


def described(node: SandboxNode) -> tuple[Any, Any]:
    """Return the records of the node's cards, and the resources that the plugin wrote."""
    amounts = node.node()["status"]["capacity"]
    return records(node), {name: amount for name, amount in amounts.items() if name != NVIDIA}


async def visible(node: SandboxNode, pod: dict[str, Any], name: str = "main") -> str:
    """Wait until a container has started, and return the cards that NVIDIA's runtime gives it."""
    await soon(lambda: node.given(pod, name) is not None)
    given = node.given(pod, name)
    assert given is not None
    return given.env["NVIDIA_VISIBLE_DEVICES"]


def completed(pod: dict[str, Any], vocabularies: Sequence[Vocabulary]) -> dict[str, Any]:
    """Return a new pod as the webhook leaves it."""
    patch = PodChecks(Vocabularies(vocabularies), NeedOptions()).complete(msgspec.convert(pod, NewPod))
    changed: dict[str, Any] = applied(patch, pod)
    return changed


# contract V1.5
async def test_whole_cards_and_shares_get_the_decided_cards_by_uuid() -> None:
    library = FakeNvml([nvml_card(n, total=400 * MIB, reserved=0) for n in range(3)])
    async with (
        sandbox_node() as node,
        node.running_plugin(watched=False, vocabularies=ALL, sources=[nvml(node, library)]),
    ):
        await soon(lambda: (allocatable(node)[NVIDIA], allocatable(node)[GPU_COUNT]) == ("3", "3"))
        async with running_extender(node, ALL) as extender:
            small, _ = await schedule(node, extender, pod_json(asking(gpu_mem=300), name="share"))
            whole, _ = await schedule(node, extender, pod_json(asking(nvidia=2), name="whole"))
            beside, _ = await schedule(node, extender, pod_json(asking(gpu_mem=100), name="beside"))
            assert [await visible(node, pod) for pod in (small, beside)] == [uuid(0), uuid(0)]
            assert await visible(node, whole) == f"{uuid(1)},{uuid(2)}"
            _, reason = await schedule(node, extender, pod_json(asking(gpu_mem=1), name="late"))
            assert reason
            for name in ("share", "whole", "beside"):
                assert "gas-allocated-cards" not in node.annotations(name)


# contract A1.28
@pytest.mark.parametrize(("counts_reserved", "units"), [(False, "14"), (True, "15")])
async def test_a_card_has_the_units_that_its_driver_leaves_or_all_as_with_aliyun(
    counts_reserved: bool,
    units: str,
) -> None:
    library = FakeNvml([nvml_card(0, total=15 * GIB, reserved=400 * MIB)])
    spoken = [Aliyun(unit=MemoryUnit.GIB)]
    async with sandbox_node() as node:
        sources = [nvml(node, library, counts_reserved=counts_reserved)]
        async with node.running_plugin(vocabularies=spoken, sources=sources):
            await soon(lambda: allocatable(node).get(GPU_MEM) == units)


# contract A1.24
async def test_more_memory_than_kubelet_accepts_ids_for_is_not_offered_and_whole_cards_are() -> None:
    spoken = parse_vocabularies("aliyun,vendor")
    library = FakeNvml([nvml_card(n, total=80 * 1024 * MIB, reserved=0) for n in range(3)])
    async with (
        sandbox_node() as node,
        node.running_plugin(vocabularies=spoken, sources=[nvml(node, library)]) as plugin,
    ):
        assert (allocatable(node)[NVIDIA], allocatable(node).get(GPU_MEM, "0")) == ("3", "0")
        assert plugin.readiness.why_not() is None
        await soon(lambda: "GPUDevicesNotOffered" in dict(node.events(NODE)))
        assert dict(node.events(NODE))["GPUDevicesNotOffered"] == (
            "aliyun.com/gpu-mem is not offered: kubelet accepts lists of up to 4194304 bytes, found 245760 devices in"
            " 5864910 bytes; set --aliyun-unit=GiB for plugin and extender"
        )
        async with running_extender(node, spoken) as extender:
            whole, _ = await schedule(node, extender, pod_json(asking(nvidia=2), name="whole"))
            assert await visible(node, whole) == f"{uuid(0)},{uuid(1)}"


async def test_a_card_that_fails_leaves_the_node_and_returns() -> None:
    library = FakeNvml([nvml_card(0, recovery=0), nvml_card(1, recovery=0)])
    clock = [0.0]
    async with (
        sandbox_node() as node,
        node.running_plugin(
            watched=False,
            vocabularies=parse_vocabularies("vendor"),
            sources=[nvml(node, library, clock=lambda: clock[0])],
        ) as plugin,
    ):
        await soon(lambda: allocatable(node)[NVIDIA] == "2")
        library.pending.append(Failure(uuid(1), 79))
        await plugin.scanner.scan_once()
        await soon(lambda: allocatable(node)[NVIDIA] == "1")
        await soon(lambda: health(node) == [True, False])
        await soon(lambda: "GPUCardUnhealthy" in dict(node.events(NODE)))
        fault = "card1: it reported Xid 79; restart the node; it returns 60 s after that"
        assert dict(node.events(NODE))["GPUCardUnhealthy"] == fault
        for clock[0] in (10, 71):
            await plugin.scanner.scan_once()
        await soon(lambda: health(node) == [True, True])
        await soon(lambda: ("GPUCardHealthy", "card1: it is healthy again") in node.events(NODE))
        assert [node.count(f"card_{each}_total", driver="nvidia") for each in ("losses", "returns")] == [1, 1]


async def test_cards_of_a_driver_that_is_gone_stay_recorded_whichever_plugin_runs() -> None:
    library = FakeNvml([nvml_card(0), nvml_card(1)])
    spoken = parse_vocabularies("intel,vendor,koordinator")
    async with sandbox_node() as node:
        async with node.running_plugin(vocabularies=spoken, sources=[nvml(node, library)]) as plugin:
            await soon(lambda: health(node) == [True, True])
            library.faults["count"] = NvmlFault("nvmlDeviceGetCount: Unknown Error", code=999)
            await plugin.scanner.scan_once()
            await soon(lambda: (allocatable(node)[NVIDIA], health(node)) == ("0", [False, False]))
            await soon(lambda: "GPUContainerFault" in dict(node.events(NODE)))
            assert plugin.readiness.why_not() is None
            assert (node.count("container_fault"), node.count("card_losses_total", driver="nvidia")) == (1, 2)
        before = described(node)
        library.faults["open"] = NvmlFault("nvmlInitWithFlags: no library", code=12)
        for source in (nvml(node, library), SysfsCards(node.tree)):
            async with node.running_plugin(watched=False, vocabularies=spoken, sources=[source]) as plugin:
                node.label_node({"gpu.intel.com/gpu-numbers": "7"})
                await soon(lambda: "gpu.intel.com/gpu-numbers" not in node.node()["metadata"].get("labels", {}))
                assert described(node) == before
        library.faults.clear()
        async with node.running_plugin(vocabularies=spoken, sources=[nvml(node, library)]):
            await soon(lambda: health(node) == [True, True])


async def test_cards_of_two_vendors_share_a_node() -> None:
    intel_cards = fake_gpus(replace(FLEX_170, memory=400 * MIB), 1)
    library = FakeNvml([nvml_card(0, total=800 * MIB, reserved=0)])
    async with sandbox_node(*intel_cards) as node:
        (sysfs,) = sysfs_cards(parse_flags([f"--prefix={node.tree}"], environ={}, host_name="h"), Environment())
        sources = [sysfs, nvml(node, library, first_number=FIRST_BESIDE_OTHERS)]
        async with node.running_plugin("--shared-dev-num=4", vocabularies=ALL, sources=sources):
            await soon(lambda: (allocatable(node)[NVIDIA], allocatable(node)[GPU_COUNT]) == ("1", "2"))
            await soon(lambda: node.allocatable()["millicores"] == "1k")
            labels = node.node()["metadata"]["labels"]
            assert labels["gpu.intel.com/gpu-numbers"] == "0"
            async with running_extender(node, ALL) as extender:
                intel = pod_json(container(i915=1, memory_max=300 * MIB, millicores=500), name="intel")
                intel["spec"]["containers"][0]["image"] = "example/main:1"
                first, _ = await schedule(node, extender, intel)
                small, _ = await schedule(node, extender, pod_json(asking(gpu_mem=100), name="small"))
                large, _ = await schedule(node, extender, pod_json(asking(gpu_mem=700), name="large"))
                assert [await node.got(pod) for pod in (first, small)] == [["card0"], ["card0"]]
                assert await visible(node, large) == uuid(0)
                assert node.annotations("large")["ALIYUN_COM_GPU_MEM_IDX"] == "0"  # NVIDIA's cards come first
                _, reason = await schedule(node, extender, pod_json(asking(nvidia=1), name="whole"))
                assert reason == "no card has 100 percent of millicores free"


@pytest.mark.parametrize(
    ("intels_cards", "more_flags"),
    [
        pytest.param((), (), id="one vendor"),
        pytest.param(fake_gpus(FLEX_170, 1), ("--card-sources=sysfs,nvml",), id="both vendors"),
    ],
)
@pytest.mark.parametrize("overlay", HALF_A_CARD)
async def test_with_an_overlays_flags_its_words_and_native_pods_get_the_decided_cards(
    overlay: str, intels_cards: Sequence[FakeGpu], more_flags: Sequence[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    library = FakeNvml([nvml_card(number, total=80 * GIB, reserved=0) for number in range(2)])
    monkeypatch.setattr("gas.plugin.nvml.nvml_library.Nvml", lambda: library)
    plugin_flags = [*arguments(overlay, "gas-plugin-nvidia"), *more_flags]
    vocabularies = parse_extender_flags(arguments(overlay, "gpu-aware-scheduling")).vocabularies
    async with sandbox_node(*intels_cards) as node, node.running_plugin(*plugin_flags, watched=False):
        await soon(lambda: (allocatable(node)[NVIDIA], len(records(node))) == ("2", 2 + len(intels_cards)))
        half = completed(HALF_A_CARD[overlay], vocabularies)
        await soon(lambda: half["spec"]["containers"][0]["resources"]["limits"].keys() <= allocatable(node).keys())
        async with running_extender(node, vocabularies) as extender:
            pods = [
                await schedule(node, extender, pod)
                for pod in (half, pod_json(asking(nvidia=1), name="native"), pod_json(asking(nvidia=1), name="late"))
            ]
            assert [reason == "" for _, reason in pods] == [True, True, False]
            assert [await visible(node, pod) for pod, _ in pods[:2]] == [uuid(0), uuid(1)]
            if intels_cards:
                await soon(lambda: node.allocatable()["millicores"] == "1k")
                intel = pod_json(container(i915=1, millicores=500) | {"image": "example/main:1"}, name="intel")
                intel, _ = await schedule(node, extender, intel)
                assert await node.got(intel) == ["card0"]


async def test_instances_are_shared_and_never_given_as_whole_cards() -> None:
    spoken = parse_vocabularies("koordinator,aliyun,kubeshare,vendor")
    parts = (instance(0, 1, total=300 * MIB), instance(0, 2, total=100 * MIB, millicores=142))
    library = FakeNvml([nvml_card(0, has_mig=True, instances=parts), nvml_card(1, total=300 * MIB, reserved=0)])
    async with (
        sandbox_node() as node,
        node.running_plugin(watched=False, vocabularies=spoken, sources=[nvml(node, library)]),
    ):
        await soon(lambda: allocatable(node)[NVIDIA] == "1")
        await soon(lambda: (allocatable(node)[GPU_COUNT], allocatable(node)["koordinator.sh/gpu-core"]) == ("3", "157"))
        assert [each.get("millicores") for each in records(node)] == [None, 428, 142]
        async with running_extender(node, spoken) as extender:
            whole, _ = await schedule(node, extender, pod_json(asking(nvidia=1), name="whole"))
            _, none_left = await schedule(node, extender, pod_json(asking(nvidia=1), name="late"))
            large, _ = await schedule(node, extender, pod_json(asking(gpu_mem=200), name="large"))
            half = sharing(shared=1, core=50, memory=MIB)
            _, too_much = await schedule(node, extender, pod_json(half, name="half"))
            small, _ = await schedule(node, extender, pod_json(sharing(shared=1, core=14, memory=MIB), name="small"))
            assert await visible(node, whole) == uuid(1)
            assert none_left
            assert await visible(node, large) == parts[0].uuid
            assert "millicores" in too_much
            assert await visible(node, small) == parts[1].uuid


# contract D1.22
async def test_native_pods_share_cards_if_these_have_several_places(monkeypatch: pytest.MonkeyPatch) -> None:
    library = FakeNvml([nvml_card(0), nvml_card(1)])
    monkeypatch.setattr("gas.plugin.nvml.nvml_library.Nvml", lambda: library)
    words = ("--vocabularies=vendor", "--vendor-shared-dev-num=4")
    async with sandbox_node() as node, node.running_plugin("--card-sources=nvml", *words):
        assert allocatable(node)[NVIDIA] == "8"
        async with running_extender(node, parse_extender_flags(words).vocabularies) as extender:
            pods = [
                await schedule(node, extender, pod_json(asking(nvidia=1), name=f"p{number}")) for number in range(4)
            ]
            assert [await visible(node, pod) for pod, _ in pods] == [uuid(0)] * 4
            next_one, _ = await schedule(node, extender, pod_json(asking(nvidia=1), name="next"))
            assert await visible(node, next_one) == uuid(1)


async def test_what_pods_use_of_a_card_is_shown_and_too_much_of_it_is_an_event(monkeypatch: pytest.MonkeyPatch) -> None:
    library = FakeNvml([nvml_card(0), nvml_card(1)])
    monkeypatch.setattr("gas.plugin.nvml.nvml_library.Nvml", lambda: library)
    flags = ("--card-sources=nvml", "--usage", "--vocabularies=koordinator")
    async with sandbox_node() as node, node.running_plugin(*flags) as plugin:
        wanted = sharing(shared=1, core=50, memory=GIB)
        pod = node.create(pod_json(wanted, name="greedy", annotations=decided("card1")))
        assert await visible(node, pod) == uuid(1)
        processes = Processes(node.tree / "proc")
        group = f"0::/kubepods/burstable/pod{pod['metadata']['uid']}/{container_id(1)}\n"
        processes.add(10, None, cgroup_text=group)
        processes.add(11, None)
        library.uses[uuid(1)] = NvmlUse({10: 2 * GIB, 11: GIB, 12: GIB})
        monitor: UsageMonitor = plugin.hooks[-1].tasks[0].__self__  # type: ignore[attr-defined]
        await monitor.walk_once()
        used = {"memoryUsed": 2 * GIB, "memoryRequested": GIB, "clients": 1, "engines": {}}
        (shown,) = json.loads(plugin.documents()["/usage"]())["pods"]
        assert (shown["name"], shown["cards"]) == ("greedy", {"card1": used})
        assert node.count("pod_memory_used_bytes", namespace="default", pod="greedy", card="card1") == 2 * GIB
        await soon(lambda: [reason for reason, _ in node.events("greedy")] == ["GPUMemoryOverRequest"])
        at = int(time.time() * 1e6) + 1_000_000
        library.uses[uuid(1)] = NvmlUse({10: GIB}, [UseSample(10, at, {"sm": 100})])
        library.faults[uuid(0)] = LOST
        await monitor.walk_once()
        assert monitor.problems[0].endswith(
            "the card is lost, its driver no longer reaches it; reset it, or restart the node; who uses it is not known"
        )
        (shown,) = json.loads(plugin.documents()["/usage"]())["pods"]
        assert shown["cards"]["card1"]["engines"].keys() == {"sm"}


async def test_near_cards_are_those_that_nvlink_joins() -> None:
    peers = {0: 3, 1: 2, 2: 1, 3: 0}
    library = FakeNvml([nvml_card(n, peers=((0, 0x10 + peers[n], 0),)) for n in range(4)])
    vendor = parse_vocabularies("vendor")
    async with (
        sandbox_node() as node,
        node.running_plugin(watched=False, vocabularies=vendor, sources=[nvml(node, library)]),
    ):
        await soon(lambda: allocatable(node)[NVIDIA] == "4")
        async with running_extender(node, vendor) as extender:
            near = pod_json(asking(nvidia=2), name="near", annotations={"gas-card-near": "true"})
            pod, _ = await schedule(node, extender, near)
            assert await visible(node, pod) == f"{uuid(0)},{uuid(3)}"


async def test_a_link_that_is_gone_leaves_the_node() -> None:
    library = FakeNvml([nvml_card(0, on_switch=True), nvml_card(1, on_switch=True)])
    async with (
        sandbox_node() as node,
        node.running_plugin(
            watched=False, vocabularies=parse_vocabularies("vendor"), sources=[nvml(node, library)]
        ) as plugin,
    ):
        await soon(lambda: [record.get("links") for record in records(node)] == [[1], [0]])
        library.cards = [nvml_card(0), nvml_card(1)]
        await plugin.scanner.scan_once()
        await soon(lambda: [record.get("links") for record in records(node)] == [None, None])
