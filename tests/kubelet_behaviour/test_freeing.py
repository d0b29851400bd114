"""The moment at which the ids of a pod are free for the next one."""

from __future__ import annotations

import asyncio

from tests.kubelet_behaviour.conftest import MakePlugin
from tests.kubelet_behaviour.node import Node, until
from tests.kubelet_behaviour.pods import container

HAS = {"a": frozenset({"card0"})}


async def test_the_ids_of_a_pod_are_free_as_soon_as_the_api_shows_that_it_is_over(
    node: Node, plugin: MakePlugin
) -> None:
    cards = await plugin("card0")
    for name in ("p", "q", "r"):
        await node.until_phase(await node.create(name, container("a", seconds=0.2)), "Succeeded")
    assert cards.allocated == [{"card0"}] * 3


async def test_the_ids_of_a_deleted_pod_are_free_before_it_is_gone(node: Node, plugin: MakePlugin) -> None:
    cards = await plugin("card0")
    for name in ("p", "q"):
        created = await node.create(name)
        await node.until_phase(created, "Running")
        await node.delete(created)
        await node.until_gone(created)
    assert cards.allocated == [{"card0"}] * 2


async def test_a_pod_that_is_ending_keeps_its_ids(node: Node, plugin: MakePlugin) -> None:
    await plugin("card0")
    created = await node.create("p", container("a", stops_in=1.5), grace=10)
    await node.until_phase(created, "Running")
    await asyncio.sleep(0.5)
    await node.delete(created)
    await asyncio.sleep(0.7)
    assert await node.listed() == {"p": HAS}
    late = await node.create("late")
    await node.until_phase(late, "Failed")
    await node.until_gone(created)
    assert await node.listed() == {}
    await node.until_phase(await node.create("q"), "Running")


async def test_a_container_that_ended_keeps_its_ids_while_another_of_its_pod_runs(
    node: Node, plugin: MakePlugin
) -> None:
    await plugin("card0")
    created = await node.create("p", container("a", seconds=0.1), container("b", 0))
    await node.until_phase(created, "Running")

    async def has_ended() -> bool:
        statuses = (await node.get(created))["status"]["containerStatuses"]
        return any("terminated" in each["state"] for each in statuses)

    await until(has_ended)
    assert await node.listed() == {"p": {**HAS, "b": frozenset()}}
    await node.until_phase(await node.create("q"), "Failed")


async def test_a_forced_delete_frees_at_once(node: Node, plugin: MakePlugin) -> None:
    cards = await plugin("card0")
    created = await node.create("p", container("a", stops_in=3), grace=10)
    await node.until_phase(created, "Running")
    await asyncio.sleep(0.5)
    await node.delete(created, force=True)
    await node.until_listed({})
    await node.until_phase(await node.create("q"), "Running")
    assert cards.allocated == [{"card0"}, {"card0"}]
