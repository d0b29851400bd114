"""PodResources' entries of pods that are being admitted, run, and are over."""

from __future__ import annotations

import asyncio

from tests.kubelet_behaviour.conftest import MakePlugin
from tests.kubelet_behaviour.node import Listed, Node
from tests.kubelet_behaviour.plugin import Allocated, Call, RefusedError
from tests.kubelet_behaviour.pods import container, init, sidecar

THREE = ("card0", "card1", "card2")
NONE: frozenset[str] = frozenset()


def ids(*names: str) -> frozenset[str]:
    return frozenset(names)


async def test_a_pod_is_listed_while_it_is_admitted_and_each_container_once_it_has_its_devices(
    node: Node, plugin: MakePlugin
) -> None:
    cards = await plugin(*THREE)
    seen: list[Listed] = []

    async def look(call: Call) -> None:
        seen.append(await node.listed())

    cards.before = look
    created = await node.create("p", container("a"), container("b"), init=[sidecar("s")])
    await node.until_phase(created, "Running")
    assert seen[:2] == [{"p": {"s": NONE, "a": NONE, "b": NONE}}] * 2
    assert seen[2:4] == [{"p": {"s": ids("card2"), "a": NONE, "b": NONE}}] * 2
    assert seen[4:] == [{"p": {"s": ids("card2"), "a": ids("card1"), "b": NONE}}] * 2
    assert await node.listed() == {"p": {"s": ids("card2"), "a": ids("card1"), "b": ids("card0")}}


async def test_ordinary_init_containers_are_never_listed(node: Node, plugin: MakePlugin) -> None:
    cards = await plugin(*THREE)
    seen: list[Listed] = []

    async def look(call: Call) -> None:
        seen.append(await node.listed())

    cards.before = look
    created = await node.create("p", container("a"), init=[init("i")])
    await node.until_phase(created, "Running")
    assert seen == [{"p": {"a": NONE}}] * 3, "asked for i, allocated to i, allocated to a: always the same"
    assert await node.listed() == {"p": {"a": ids("card2")}}


async def test_pods_without_devices_are_listed_too(node: Node) -> None:
    await node.until_phase(await node.create("p", container("a", 0)), "Running")
    assert await node.listed() == {"p": {"a": NONE}}


async def test_refused_pods_are_not_listed(node: Node, plugin: MakePlugin) -> None:
    cards = await plugin(*THREE)

    async def fail(call: Call) -> None:
        if isinstance(call, Allocated):
            raise RefusedError("no")

    cards.before = fail
    created = await node.create("p")
    await node.until_phase(created, "Failed")
    assert await node.listed() == {}


async def test_pods_that_are_over_are_not_listed(node: Node, plugin: MakePlugin) -> None:
    await plugin(*THREE)
    created = await node.create("p", container("a", seconds=0.2))
    await node.until_phase(created, "Succeeded")
    await node.until_listed({})


async def test_too_frequent_calls_are_refused_for_a_moment(node: Node) -> None:
    refused = await node.refusals(200)
    assert set(refused) == {"RESOURCE_EXHAUSTED: rejected by rate limit"}
    assert len(refused) < 200 - 10 + 1, "10 are answered at once"
    await asyncio.sleep(0.2)
    assert await node.refusals(5) == []


async def test_while_kubelet_waits_for_a_plugin_a_pod_that_went_away_is_still_listed(
    node: Node, plugin: MakePlugin
) -> None:
    cards = await plugin(*THREE)
    gone = await node.create("gone")
    await node.until_phase(gone, "Running")
    seen: list[Listed] = []

    async def look(call: Call) -> None:
        if not seen:
            await node.delete(gone, force=True)
            await node.until_gone(gone)
        seen.append(await node.listed())

    cards.before = look
    await node.until_phase(await node.create("p"), "Running")
    assert seen[0] == {"gone": {"a": ids("card2")}, "p": {"a": NONE}}
    await node.until_listed({"p": {"a": ids("card1")}})
