"""A filter waits a moment for the binds before it, unless that is of no use."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gas.extender.filter import MOST_MISSED, PendingBinds
from tests.builders import container, node, pod_json
from tests.extender.binding import HeldBindings
from tests.extender.decider import DrivenDecider
from tests.listed import list_all

LONG = 3600.0
GIVE_UP = 30.0
"""Seconds after which a test that waits for something fails."""


class Expecting:
    """Binds that are expected within an hour, by a clock that a test sets."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.binds = PendingBinds(patience=LONG, clock=lambda: self.now)

    async def waits(self, uid: str) -> bool:
        """Return whether a filter for this pod would wait."""
        waiting = asyncio.create_task(self.binds.wait(uid))
        await asyncio.sleep(0)
        done = waiting.done()
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        return not done

    async def miss(self, count: int) -> None:
        for number in range(count):
            self.binds.passed(f"missed-{number}")
        self.now += LONG
        assert not await self.waits("any")


@pytest.fixture
def expecting() -> Expecting:
    return Expecting()


async def test_no_filter_waits_when_no_bind_is_pending(expecting: Expecting) -> None:
    assert not await expecting.waits("u1")


async def test_a_filter_waits_for_the_bind_of_the_pod_before_it(expecting: Expecting) -> None:
    expecting.binds.passed("u1")
    waiting = asyncio.create_task(expecting.binds.wait("u2"))
    await asyncio.sleep(0)
    assert not waiting.done()
    expecting.binds.came("u1")
    await asyncio.wait_for(waiting, GIVE_UP)


async def test_it_waits_for_the_binds_of_all_pods_before_it(expecting: Expecting) -> None:
    for uid in ("u1", "u2"):
        expecting.binds.passed(uid)
    waiting = asyncio.create_task(expecting.binds.wait("u3"))
    await asyncio.sleep(0)
    expecting.binds.came("u1")
    for _ in range(5):
        await asyncio.sleep(0)
    assert not waiting.done()
    expecting.binds.came("u2")
    await asyncio.wait_for(waiting, GIVE_UP)


async def test_several_filters_wait_at_once(expecting: Expecting) -> None:
    expecting.binds.passed("u1")
    waiting = [asyncio.create_task(expecting.binds.wait(f"w{number}")) for number in range(5)]
    await asyncio.sleep(0)
    expecting.binds.came("u1")
    await asyncio.wait_for(asyncio.gather(*waiting), GIVE_UP)


async def test_a_pod_does_not_wait_for_its_own_bind(expecting: Expecting) -> None:
    expecting.binds.passed("u1")
    assert not await expecting.waits("u1")


async def test_it_waits_no_longer_than_its_patience() -> None:
    binds = PendingBinds(patience=0.001)
    binds.passed("u1")
    await asyncio.wait_for(binds.wait("u2"), GIVE_UP)


async def test_a_bind_that_is_late_is_not_waited_for(expecting: Expecting) -> None:
    expecting.binds.passed("u1")
    expecting.now += LONG
    assert not await expecting.waits("u2")


async def test_after_some_binds_that_did_not_come_no_filter_waits(expecting: Expecting) -> None:
    await expecting.miss(MOST_MISSED - 1)
    expecting.binds.passed("u1")
    assert await expecting.waits("u2")
    await expecting.miss(1)
    expecting.binds.passed("u1")
    assert not await expecting.waits("u2")


async def test_once_a_bind_comes_filters_wait_again(expecting: Expecting) -> None:
    await expecting.miss(MOST_MISSED)
    expecting.binds.passed("u1")
    assert not await expecting.waits("u2")
    expecting.binds.came("u9")
    assert await expecting.waits("u2")


async def test_a_pod_that_passed_two_filters_is_expected_once(expecting: Expecting) -> None:
    for _ in range(MOST_MISSED + 1):
        expecting.binds.passed("u1")
    expecting.now += LONG
    assert not await expecting.waits("u2")
    expecting.binds.passed("u3")
    assert await expecting.waits("u2")


def gpu_pod(number: int) -> dict[str, Any]:
    return pod_json(container(i915=1), name=f"pod-{number}", uid=f"u{number}")


async def test_the_next_pod_is_not_promised_the_same_card() -> None:
    decider = DrivenDecider(patience=LONG)
    for number in (1, 2):
        decider.cluster.add(gpu_pod(number))
    decider.follow([node("n1", cards=1)])
    assert (await decider.ask(gpu_pod(1), "n1"))["NodeNames"] == ["n1"]
    second = asyncio.create_task(decider.ask(gpu_pod(2), "n1"))
    await asyncio.sleep(0)
    held = HeldBindings(decider.cluster)
    bind = asyncio.create_task(decider.bind(gpu_pod(1), "n1"))
    assert (await asyncio.wait_for(second, GIVE_UP))["NodeNames"] == [], "the cards are reserved before the write"
    held.let_go()
    assert await bind == ""


async def test_a_bind_that_failed_is_not_waited_for() -> None:
    decider = DrivenDecider(patience=LONG)
    decider.cluster.add(gpu_pod(1))
    decider.follow([node("n1", cards=1)])
    await decider.ask(gpu_pod(1), "n1")
    second = asyncio.create_task(decider.ask(gpu_pod(2), "n1"))
    await asyncio.sleep(0)
    assert "node absent is not known" in await decider.bind(gpu_pod(1), "absent")
    assert (await asyncio.wait_for(second, GIVE_UP))["NodeNames"] == ["n1"]


@pytest.mark.parametrize(
    "asking",
    [
        pytest.param(pod_json(container(i915=1)), id="refused"),
        pytest.param(pod_json(container()), id="wants-no-card"),
        pytest.param(pod_json(container(i915=-1)), id="makes-no-sense"),
    ],
)
async def test_no_bind_is_expected_of_a_pod_that_got_no_promise_of_cards(asking: dict[str, Any]) -> None:
    decider = DrivenDecider(patience=LONG)
    list_all(decider.nodes, [node("n1", cards="")])
    await decider.ask(asking, "n1")
    await asyncio.wait_for(decider.ask(gpu_pod(2), "n1"), GIVE_UP)
