"""A reboot after which the kernel gives the cards other numbers, with kubelet and plugin in both orders."""

from __future__ import annotations

import asyncio
import shutil
from dataclasses import replace
from typing import Any

import pytest

from gas.plugin import assembly
from gas.values.card_records import ANNOTATION, parse_card_records
from gas.values.cards import Card
from sandbox.api.failure import ApiFailure
from sandbox.api.routes import Access
from sandbox.hardware.fake_sysfs import FLEX_170, FakeGpu, fake_gpus, write_tree
from sandbox.kubelet.containers import Containers
from tests.background import eventually, soon
from tests.builders import container, pod_json
from tests.fake_gpus import ARC_A770
from tests.plugin.node_of_sandbox import NODE, SandboxNode, sandbox_node
from tests.plugin.pods_for_plugin import decided

MOVED, STAYING, REMOVED = fake_gpus(FLEX_170, 3)
NEW = replace(fake_gpus(ARC_A770, 1, first=3)[0], card=0)
BEFORE = (MOVED, STAYING, REMOVED)
AFTER = (NEW, STAYING, replace(MOVED, card=4))


def placed(name: str, card: str) -> dict[str, Any]:
    return pod_json(container(i915=1), name=name, annotations=decided(card))


def recorded(node: SandboxNode) -> dict[int, str]:
    records, problems = parse_card_records(node.node()["metadata"]["annotations"][ANNOTATION])
    assert problems == ()
    return {record.card: record.pci_address for record in records if record.healthy}  # others are missing for a while


def addresses(gpus: tuple[FakeGpu, ...]) -> dict[int, str]:
    return {gpu.card: gpu.pci_address for gpu in gpus}


def phase(node: SandboxNode, name: str) -> str:
    return str(node.pod(name)["status"]["phase"])


async def rebooted(node: SandboxNode) -> None:
    """End all containers and kubelet, and put the cards after the reboot in place."""
    await node.stop_kubelet()
    node.containers = Containers()
    shutil.rmtree(node.tree)
    write_tree(node.tree, AFTER)


@pytest.mark.parametrize("plugin_first", [False, True], ids=["kubelet-first", "plugin-first"])
async def test_pods_of_before_end_before_their_number_means_another_card(*, plugin_first: bool) -> None:
    async with sandbox_node(*BEFORE) as node:
        async with node.running_plugin():
            pods = [node.create(placed(f"old-{number}", f"card{number}")) for number in range(3)]
            assert [await node.got(pod) for pod in pods] == [["card0"], ["card1"], ["card2"]]
            await eventually(lambda: all(phase(node, f"old-{number}") == "Running" for number in range(3)))
            await soon(lambda: recorded(node) == addresses(BEFORE))
        await rebooted(node)
        if not plugin_first:
            await node.start_kubelet()
            await eventually(lambda: phase(node, "old-0") == "Failed")
        async with node.running_plugin(watched=False) as plugin:
            if plugin_first:
                await eventually(lambda: plugin.publisher.withheld == {Card(0)})
                await node.start_kubelet()
            await eventually(lambda: [phase(node, f"old-{number}") for number in (0, 2)] == ["Failed", "Failed"])
            await eventually(lambda: plugin.readiness.why_not() is None and not plugin.publisher.withheld)
            await soon(lambda: recorded(node) == addresses(AFTER))
            await eventually(lambda: node.allocatable().get("i915") == "3")
            new = node.create(placed("new", "card0"))
            assert await node.got(new) == ["card0"]
            if plugin_first:
                await eventually(lambda: "GPUCardsRenumbered" in dict(node.events(NODE)))


@pytest.mark.parametrize("kind", ["pods", "nodes"])
async def test_numbers_are_compared_when_the_api_server_replies_late(
    monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(assembly, "RECORDED_WITHIN", 0.05)
    replies = asyncio.Event()

    async def late(access: Access) -> ApiFailure | None:
        if access.user == "plugin" and access.resource == kind:
            await replies.wait()
        return None

    async with sandbox_node(*BEFORE) as node:
        async with node.running_plugin():
            pod = node.create(placed("old-0", "card0"))
            assert await node.got(pod) == ["card0"]
            await eventually(lambda: phase(node, "old-0") == "Running")
        await rebooted(node)
        node.server.settings.intercept = late
        async with node.running_plugin(watched=False) as plugin:
            await soon(lambda: list(plugin.node.pods) if kind == "nodes" else recorded(node) == addresses(AFTER))
            assert not plugin.publisher.withheld
            replies.set()
            await eventually(lambda: plugin.publisher.withheld == {Card(0)})
            await node.start_kubelet()
            await eventually(lambda: phase(node, "old-0") == "Failed")
            await eventually(lambda: not plugin.publisher.withheld)


async def test_a_card_that_is_replaced_while_its_pod_runs_is_given_to_no_other_pod() -> None:
    async with sandbox_node(*BEFORE) as node, node.running_plugin("--shared-dev-num=2") as plugin:
        pod = node.create(placed("old", "card0"))
        assert await node.got(pod) == ["card0"]
        await eventually(lambda: phase(node, "old") == "Running")
        shutil.rmtree(node.tree)
        write_tree(node.tree, AFTER)
        await plugin.scanner.scan_once()
        await eventually(lambda: node.allocatable().get("i915") == "4")
        node.delete("old")
        await eventually(lambda: node.allocatable().get("i915") == "6")
