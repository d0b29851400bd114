"""Kubelet's errors for pods whose devices it cannot allocate."""

from __future__ import annotations

import asyncio

import pytest

from tests.kubelet_behaviour.conftest import MakePlugin
from tests.kubelet_behaviour.node import Node
from tests.kubelet_behaviour.plugin import Allocated, Asked, Call, RefusedError
from tests.kubelet_behaviour.pods import Object, container

THREE = ("card0", "card1", "card2")


async def refused(node: Node, created: Object) -> str:
    """Return the message of a pod, which must have failed at once and for good."""
    status = (await node.until_phase(created, "Failed"))["status"]
    assert status["reason"] == "UnexpectedAdmissionError"
    assert not status.get("containerStatuses")
    message: str = status["message"]
    return message


@pytest.mark.parametrize(
    ("kind", "restart", "message"),
    [
        pytest.param(
            Allocated,
            "Never",
            "Pod was rejected: Allocate failed due to rpc error: code = FailedPrecondition desc = no cards today, "
            "which is unexpected",
            id="an-error-from-allocate",
        ),
        pytest.param(
            Allocated,
            "Always",
            "Pod was rejected: Allocate failed due to rpc error: code = FailedPrecondition desc = no cards today, "
            "which is unexpected",
            id="an-error-from-allocate-and-the-pod-shall-always-be-started-again",
        ),
        pytest.param(
            Asked,
            "Never",
            "Pod was rejected: Allocate failed due to device plugin GetPreferredAllocation rpc failed with err: "
            "rpc error: code = FailedPrecondition desc = no cards today, which is unexpected",
            id="an-error-from-get-preferred-allocation",
        ),
    ],
)
async def test_an_error_of_the_plugin_ends_the_pod(
    node: Node, plugin: MakePlugin, kind: type[Call], restart: str, message: str
) -> None:
    cards = await plugin(*THREE)

    async def fail(call: Call) -> None:
        if isinstance(call, kind):
            raise RefusedError("no cards today")

    cards.before = fail
    created = await node.create("p", restart=restart)
    assert await refused(node, created) == message
    calls = len(cards.calls)
    await asyncio.sleep(1.0)
    assert len(cards.calls) == calls
    assert await node.listed() == {}


async def test_what_earlier_containers_of_a_refused_pod_had_is_free_at_once(node: Node, plugin: MakePlugin) -> None:
    cards = await plugin(*THREE)

    async def fail_the_second(call: Call) -> None:
        if isinstance(call, Allocated) and len(cards.allocated) == 2:
            raise RefusedError("no cards today")

    cards.before = fail_the_second
    await refused(node, await node.create("p", container("a"), container("b")))
    await node.until_phase(await node.create("q", container("a", 3)), "Running")
    assert cards.allocated[-1] == set(THREE)


async def test_too_few_ids(node: Node, plugin: MakePlugin) -> None:
    cards = await plugin(*THREE)
    message = await refused(node, await node.create("p", container("a", 4)))
    assert f"requested number of devices unavailable for {node.resource}. Requested: 4, Available: 3" in message
    assert cards.calls == []


async def test_a_plugin_that_is_gone(node: Node, plugin: MakePlugin) -> None:
    cards = await plugin(*THREE)
    await cards.stop()
    await node.until_allocatable(0)
    message = await refused(node, await node.create("p"))
    assert f"no healthy devices present; cannot allocate unhealthy devices {node.resource}" in message


async def test_a_pod_runs_without_devices_of_a_resource_that_was_never_registered(node: Node) -> None:
    created = await node.create("p")
    await node.until_phase(created, "Running")
    assert await node.listed() == {"p": {"a": frozenset()}}


async def test_an_unhealthy_id_is_not_given(node: Node, plugin: MakePlugin) -> None:
    cards = await plugin(*THREE)
    cards.set_devices({"card0": True, "card1": True, "card2": False})
    await node.until_allocatable(2)
    await node.until_phase(await node.create("p"), "Running")
    assert cards.calls == [Asked(available=frozenset({"card0", "card1"})), Allocated(frozenset({"card1"}))]
