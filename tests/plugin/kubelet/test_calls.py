"""The pauses between kubelet's calls in which a server may end."""

from __future__ import annotations

import asyncio

from gas.plugin.kubelet.device_server import CallTracker
from tests.plugin.scripted_kubelet import PATIENCE


class Clock:
    """A clock that stands still."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


async def _turns() -> None:
    await asyncio.sleep(0.05)


async def test_without_any_call_the_pause_is_immediate() -> None:
    await asyncio.wait_for(CallTracker(Clock()).pause(lasting=3600.0, within=3600.0), PATIENCE)


async def test_a_pause_begins_with_the_reply_to_the_last_call() -> None:
    clock = Clock()
    calls = CallTracker(clock)
    with calls.call():
        waiting = asyncio.create_task(calls.pause(lasting=1.0, within=3600.0))
        clock.now += 10.0
        await _turns()
        assert not waiting.done()
    clock.now += 0.9
    await _turns()
    assert not waiting.done()
    clock.now += 0.2
    await asyncio.wait_for(waiting, PATIENCE)


async def test_a_pause_is_not_waited_for_longer_than_allowed() -> None:
    clock = Clock()
    calls = CallTracker(clock)
    with calls.call():
        waiting = asyncio.create_task(calls.pause(lasting=1.0, within=5.0))
        await _turns()
        clock.now += 5.0
        await asyncio.wait_for(waiting, PATIENCE)


async def test_a_call_that_fails_has_ended_too() -> None:
    clock = Clock()
    calls = CallTracker(clock)
    try:
        with calls.call():
            raise RuntimeError
    except RuntimeError:
        clock.now += 1.0
    await asyncio.wait_for(calls.pause(lasting=1.0, within=3600.0), PATIENCE)
