"""Plugins that register, change and disappear."""

from __future__ import annotations

import asyncio

import pytest
from grpc import aio

from tests.kubelet_behaviour.conftest import MakePlugin, before_1_37, since_1_37
from tests.kubelet_behaviour.node import Node, until
from tests.kubelet_behaviour.plugin import Plugin
from tests.kubelet_behaviour.pods import container

TWO = ("card0", "card1")


async def test_kubelet_asks_for_options_and_watches_within_the_registration(node: Node, plugin: MakePlugin) -> None:
    cards = await plugin(*TWO)
    assert cards.connections == ["options", "watch"]
    assert await node.amounts() == ("2", "2")


async def test_a_plugin_that_does_not_listen_yet_cannot_register(node: Node) -> None:
    silent = Plugin(node.plugins, node.resource, TWO)
    with pytest.raises(aio.AioRpcError):
        await silent.register()


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        pytest.param({"version": "v1alpha1"}, "v1alpha1", id="another-version-of-the-api"),
        pytest.param({"resource": "cards"}, "cards", id="a-name-without-a-prefix"),
    ],
)
async def test_a_registration_that_kubelet_refuses(node: Node, change: dict[str, str], sentence: str) -> None:
    async with Plugin(node.plugins, node.resource, TWO) as cards:
        with pytest.raises(aio.AioRpcError, match=sentence):
            await cards.register(**change)


async def test_health_and_number_of_ids_show_in_the_node(node: Node, plugin: MakePlugin) -> None:
    cards = await plugin(*TWO)
    cards.set_devices({"card0": True, "card1": False})
    await node.until_allocatable(1)
    assert await node.amounts() == ("2", "1")
    cards.set_devices({"card0": True})
    await until_amounts(node, "1", "1")
    cards.set_devices({"card0": True, "card1": True, "card2": True})
    await until_amounts(node, "3", "3")


async def test_a_pod_keeps_an_id_that_turns_unhealthy_or_vanishes(node: Node, plugin: MakePlugin) -> None:
    cards = await plugin(*TWO)
    created = await node.create("p")
    await node.until_phase(created, "Running")
    for devices in ({"card0": True, "card1": False}, {"card0": True}):
        cards.set_devices(devices)
        await node.until_allocatable(1)
        assert await node.listed() == {"p": {"a": frozenset({"card1"})}}
        assert (await node.get(created))["status"]["phase"] == "Running"


@before_1_37
async def test_a_plugin_that_registers_again_is_connected_a_second_time(node: Node, plugin: MakePlugin) -> None:
    cards = await plugin(*TWO)
    await cards.register()

    async def is_watched_again() -> bool:
        return cards.connections == ["options", "watch"] * 2

    await until(is_watched_again)
    await asyncio.sleep(0.5)
    assert await node.amounts() == ("2", "2")


async def test_of_two_plugins_of_one_resource_the_later_is_asked(node: Node, plugin: MakePlugin) -> None:
    older = await plugin(*TWO)
    newer = await plugin(*TWO)
    await node.until_phase(await node.create("p"), "Running")
    assert older.calls == []
    assert newer.allocated == [{"card1"}]


@since_1_37
async def test_a_plugin_that_registers_again_is_refused_and_its_end_is_not_noticed(
    node: Node, plugin: MakePlugin
) -> None:
    cards = await plugin(*TWO)
    with pytest.raises(aio.AioRpcError, match="device plugin already connected"):
        await cards.register()
    assert await node.amounts() == ("2", "2")
    await cards.stop()
    await asyncio.sleep(1.0)
    assert await node.amounts() == ("2", "2"), "kubelet would still give out the devices of a plugin that is gone"


@before_1_37
async def test_when_the_older_of_two_plugins_ends_the_newer_is_given_up_until_it_registers_again(
    node: Node, plugin: MakePlugin
) -> None:
    older = await plugin(*TWO)
    newer = await plugin(*TWO)
    await until_watched(newer)
    await older.stop()
    await node.until_allocatable(0)
    await asyncio.sleep(1.0)
    assert await node.amounts() == ("2", "0")
    await newer.register()
    await node.until_allocatable(2)


@since_1_37
async def test_when_the_older_of_two_plugins_ends_the_newer_goes_on(node: Node, plugin: MakePlugin) -> None:
    older = await plugin(*TWO)
    newer = await plugin(*TWO)
    await until_watched(newer)
    await older.stop()
    await asyncio.sleep(1.0)
    assert await node.amounts() == ("2", "2")
    await node.until_phase(await node.create("p"), "Running")
    assert newer.allocated == [{"card1"}]


async def test_a_plugin_that_was_away_finds_the_books_as_they_were(node: Node, plugin: MakePlugin) -> None:
    cards = await plugin(*TWO)
    created = await node.create("p")
    await node.until_phase(created, "Running")
    await cards.stop()
    await node.until_allocatable(0)
    assert await node.amounts() == ("2", "0"), "the capacity stays"
    assert await node.listed() == {"p": {"a": frozenset({"card1"})}}
    again = await plugin(*TWO)
    await node.until_phase(await node.create("q"), "Running")
    assert again.allocated == [{"card0"}]
    assert (await node.get(created))["status"]["phase"] == "Running"


async def test_what_others_write_as_capacity_becomes_allocatable(node: Node) -> None:
    await node.client.patch(f"/api/v1/nodes/{node.name}/status", {"status": {"capacity": {node.resource: "7"}}})
    await until_amounts(node, "7", "7")
    await node.client.patch(f"/api/v1/nodes/{node.name}/status", {"status": {"capacity": {node.resource: None}}})
    await until_amounts(node, None, None)


async def test_a_container_gets_the_plugins_reply_and_the_others_of_its_pod_nothing(
    node: Node, plugin: MakePlugin
) -> None:
    cards = await plugin(*TWO)
    cards.answer.envs["CARDS"] = "given"
    cards.answer.devices.add(host_path="/dev/null", container_path="/dev/dri/card0", permissions="rw")
    cards.answer.mounts.add(host_path="/etc/hostname", container_path="/mounted", read_only=True)
    created = await node.create("p", container("a"), container("none", 0))
    running = await node.until_phase(created, "Running")
    inside, other = await node.look_inside(running, "a"), await node.look_inside(running, "none")
    assert inside.env["CARDS"] == "given"
    assert "/dev/dri/card0" in inside.devices
    assert inside.mounts["/mounted"] == "/etc/hostname"
    assert "CARDS" not in other.env
    assert "/dev/dri/card0" not in other.devices
    assert "/mounted" not in other.mounts


async def until_watched(plugin: Plugin) -> None:
    async def look() -> bool:
        return plugin.streams == 1

    await until(look)
    await asyncio.sleep(0.3)  # kubelet has its first message


async def until_amounts(node: Node, capacity: str | None, allocatable: str | None) -> None:
    async def look() -> bool:
        return await node.amounts() == (capacity, allocatable)

    await until(look)
