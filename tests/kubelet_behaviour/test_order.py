"""The order of kubelet's calls for the containers of a pod, and the ids that it offers."""

from __future__ import annotations

import asyncio

import pytest

from tests.kubelet_behaviour.conftest import MakePlugin
from tests.kubelet_behaviour.node import Node, until
from tests.kubelet_behaviour.plugin import Allocated, Asked, Call
from tests.kubelet_behaviour.pods import Object, container, init, sidecar

THREE = ("card0", "card1", "card2")


def asked(*available: str, must_include: tuple[str, ...] = (), size: int = 1) -> Asked:
    return Asked(available=frozenset(available), must_include=frozenset(must_include), size=size)


def allocated(*ids: str) -> Allocated:
    return Allocated(frozenset(ids))


@pytest.mark.parametrize(
    ("before", "containers", "calls"),
    [
        pytest.param(
            (),
            (container("a"), container("b")),
            [asked(*THREE), allocated("card2"), asked("card0", "card1"), allocated("card1")],
            id="app-containers-in-the-order-of-the-spec",
        ),
        pytest.param(
            (init("i"),),
            (container("a"), container("b")),
            [asked(*THREE), allocated("card2"), allocated("card2"), asked("card0", "card1"), allocated("card1")],
            id="an-app-container-takes-what-an-init-container-had-without-a-question",
        ),
        pytest.param(
            (sidecar("s"),),
            (container("a"),),
            [asked(*THREE), allocated("card2"), asked("card0", "card1"), allocated("card1")],
            id="a-sidecar-keeps-what-it-has",
        ),
        pytest.param(
            (init("i0"), sidecar("s"), init("i1")),
            (container("a"),),
            [
                *(asked(*THREE), allocated("card2"), allocated("card2")),
                *(asked("card0", "card1"), allocated("card1"), allocated("card1")),
            ],
            id="a-sidecar-takes-what-an-init-container-before-it-had",
        ),
        pytest.param(
            (init("i"),),
            (container("a", 2),),
            [
                *(asked(*THREE), allocated("card2")),
                *(asked(*THREE, must_include=("card2",), size=2), allocated("card1", "card2")),
            ],
            id="what-an-init-container-had-must-be-in-the-larger-wish",
        ),
        pytest.param(
            (),
            (container("a", 3),),
            [asked(*THREE, size=3), allocated(*THREE)],
            id="a-plugin-is-asked-also-where-there-is-no-choice",
        ),
        pytest.param(
            (init("i0"), init("i1")),
            (container("a"),),
            [asked(*THREE), allocated("card2"), allocated("card2"), allocated("card2")],
            id="init-containers-share",
        ),
        pytest.param(
            (),
            (container("none", 0), container("a")),
            [asked(*THREE), allocated("card2")],
            id="containers-without-devices-are-passed-over",
        ),
    ],
)
async def test_calls(
    node: Node, plugin: MakePlugin, before: tuple[Object, ...], containers: tuple[Object, ...], calls: list[Call]
) -> None:
    cards = await plugin(*THREE)
    created = await node.create("p", *containers, init=before)
    await node.until_phase(created, "Running")
    assert cards.calls == calls


async def test_the_first_app_container_takes_any_of_what_an_init_container_had(node: Node, plugin: MakePlugin) -> None:
    cards = await plugin(*THREE)
    created = await node.create("p", container("a", 1), container("b", 2), init=[init("i", 2)])
    await node.until_phase(created, "Running")
    first, second, of_a, third, of_b = cards.calls
    assert (first, second) == (asked(*THREE, size=2), allocated("card1", "card2"))
    assert isinstance(of_a, Allocated)
    (taken,) = of_a.ids
    (other,) = {"card1", "card2"} - {taken}
    assert third == asked("card0", other, must_include=(other,), size=2)
    assert of_b == allocated("card0", other)


async def test_a_plugin_that_does_not_want_to_be_asked_is_not(node: Node, plugin: MakePlugin) -> None:
    cards = await plugin(*THREE, prefer=None)
    created = await node.create("p")
    await node.until_phase(created, "Running")
    (call,) = cards.calls
    assert isinstance(call, Allocated)
    assert len(call.ids) == 1


async def test_the_calls_of_different_pods_never_interleave(node: Node, plugin: MakePlugin) -> None:
    cards = await plugin(*(f"card{number}" for number in range(8)))

    async def slow(call: Call) -> None:
        seen.append(frozenset(await node.listed()))
        await asyncio.sleep(0.05)

    seen: list[frozenset[str]] = []
    cards.before = slow
    pods = await asyncio.gather(*(node.create(f"p{number}", container("a"), container("b")) for number in range(4)))
    for created in pods:
        await node.until_phase(created, "Running")
    assert [type(call) for call in cards.calls] == [Asked, Allocated] * 8
    owners = await node.listed()
    in_order = [next(pod for pod in owners if ids in owners[pod].values()) for ids in cards.allocated]
    assert in_order == [pod for number in range(4) for pod in [in_order[2 * number]] * 2]
    assert len(set(in_order)) == 4


async def test_nothing_else_starts_while_a_plugin_thinks(node: Node, plugin: MakePlugin) -> None:
    cards = await plugin(*THREE)
    thinking, done = asyncio.Event(), asyncio.Event()

    async def think(call: Call) -> None:
        thinking.set()
        await done.wait()

    cards.before = think
    first = await node.create("first")
    await asyncio.wait_for(thinking.wait(), 20)
    other = await node.create("other", container("a", 0))
    await asyncio.sleep(1.0)
    assert (await node.get(other))["status"]["phase"] == "Pending"
    assert "other" not in await node.listed()
    done.set()
    await node.until_phase(first, "Running")
    await node.until_phase(other, "Running")


async def test_a_container_that_is_started_again_keeps_its_devices_without_any_call(
    node: Node, plugin: MakePlugin
) -> None:
    cards = await plugin(*THREE)
    created = await node.create("p", container("a", fails_once=True), restart="Always")
    await until_restarted(node, created)
    assert cards.calls == [asked(*THREE), allocated("card2")]
    assert await node.listed() == {"p": {"a": frozenset({"card2"})}}


async def test_a_plugin_that_wants_it_is_called_before_every_start(node: Node, plugin: MakePlugin) -> None:
    cards = await plugin(*THREE, pre_start=True)
    created = await node.create("p", container("a", fails_once=True), restart="Always")
    await until_restarted(node, created)
    assert [type(call).__name__ for call in cards.calls] == ["Asked", "Allocated", "PreStarted", "PreStarted"]
    assert {call.ids for call in cards.calls if not isinstance(call, Asked)} == {frozenset({"card2"})}


async def until_restarted(node: Node, created: Object) -> None:
    async def look() -> bool:
        statuses = (await node.get(created))["status"].get("containerStatuses", ())
        return any(each["restartCount"] == 1 and "running" in each["state"] for each in statuses)

    await until(look)
