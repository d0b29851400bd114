"""Kubelet's state after it is killed and started again."""

from __future__ import annotations

from tests.kubelet_behaviour.conftest import MakePlugin
from tests.kubelet_behaviour.node import Listed, Node, until
from tests.kubelet_behaviour.pods import Object, container, init, sidecar

TWO = ("card0", "card1")
HAS = {"p": {"a": frozenset({"card1"})}}


async def test_it_removes_every_socket_and_ends_the_watch(node: Node, plugin: MakePlugin) -> None:
    cards = await plugin(*TWO)
    old, kept = cards.socket, node.plugins / "somebodys-file"
    kept.touch()
    await node.restart()

    async def is_alone() -> bool:
        return cards.streams == 0

    await until(is_alone)
    assert not old.exists()
    assert kept.exists()
    await node.until_allocatable(0)


async def test_pods_run_on_and_the_books_are_right_once_the_plugin_is_back(node: Node, plugin: MakePlugin) -> None:
    cards = await plugin(*TWO)
    created = await node.create("p")
    before = await node.until_phase(created, "Running")
    await node.restart()
    again = await plugin(*TWO)
    await node.until_phase(await node.create("q"), "Running")
    after = await node.get(created)
    assert ids_of_containers(after) == ids_of_containers(before)
    assert after["status"]["phase"] == "Running"
    assert (cards.allocated, again.allocated) == ([frozenset({"card1"})], [frozenset({"card0"})])
    assert await node.listed() == {**HAS, "q": {"a": frozenset({"card0"})}}


async def test_pod_resources_is_empty_at_first_and_then_has_the_ids_again(node: Node, plugin: MakePlugin) -> None:
    await plugin(*TWO)
    await node.until_phase(await node.create("p"), "Running")
    await node.restart()
    seen: list[Listed] = []

    async def look() -> bool:
        seen.append(await node.listed())
        return seen[-1] == HAS

    await until(look)
    assert seen[0] == {}
    assert all(each in ({}, HAS) for each in seen)


async def test_new_pods_are_refused_until_the_plugin_is_back(node: Node, plugin: MakePlugin) -> None:
    await plugin(*TWO)
    await node.restart()
    created = await node.create("p")
    status = (await node.until_phase(created, "Failed"))["status"]
    assert f"no healthy devices present; cannot allocate unhealthy devices {node.resource}" in status["message"]


async def test_a_pod_that_ends_later_frees_its_ids(node: Node, plugin: MakePlugin) -> None:
    await plugin(*TWO)
    created = await node.create("p", container("a", seconds=4))
    await node.until_phase(created, "Running")
    await node.restart()
    await node.until_phase(created, "Succeeded")
    await node.until_listed({})


async def test_a_sidecar_runs_on(node: Node, plugin: MakePlugin) -> None:
    await plugin(*TWO)
    created = await node.create("p", container("a"), init=[sidecar("s")])
    before = await node.until_phase(created, "Running")
    await node.restart()
    await node.until_listed({"p": {"s": frozenset({"card1"}), "a": frozenset({"card0"})}})
    assert ids_of_containers(await node.get(created)) == ids_of_containers(before)


async def test_a_pod_whose_init_container_had_devices_fails_when_kubelet_comes_to_it_before_the_plugin_is_back(
    node: Node, plugin: MakePlugin
) -> None:
    await plugin(*TWO)
    created = await node.create("p", container("a"), init=[init("i")])
    await node.until_phase(created, "Running")
    await node.restart()
    status = (await node.until_phase(created, "Failed"))["status"]
    assert status["reason"] == "UnexpectedAdmissionError"
    assert "no healthy devices present" in status["message"]


async def test_a_pod_whose_init_container_had_devices_runs_on_when_the_plugin_is_back_within_a_second(
    node: Node, plugin: MakePlugin
) -> None:
    cards = await plugin(*TWO)
    created = await node.create("p", container("a"), init=[init("i")])
    before = await node.until_phase(created, "Running")
    calls = list(cards.calls)
    await cards.stop()
    await node.restart()
    await cards.serve()
    await cards.register()
    await node.until_listed(HAS)
    after = await node.get(created)
    assert after["status"]["phase"] == "Running"
    assert ids_of_containers(after) == ids_of_containers(before)
    assert cards.calls == calls


def ids_of_containers(pod: Object) -> list[str]:
    return [each["containerID"] for each in pod["status"]["containerStatuses"]]
