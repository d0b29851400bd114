"""The event loop in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from typing import Any

import pytest

from simulation.chance import Chance
from simulation.loop import PROCESS, Livelock, Process, VirtualLoop


class Stage:
    """A loop with processes, and what they did: (time, process, word)."""

    def __init__(self, seed: int = 1) -> None:
        self.loop = VirtualLoop(Chance(seed, "loop"))
        self.done: list[tuple[float, str, str]] = []

    def note(self, word: str) -> None:
        self.done.append((self.loop.time(), PROCESS.get().name, word))

    async def tick(self, period: float, times: int) -> None:
        try:
            for number in range(times):
                await asyncio.sleep(period)
                self.note(f"tick {number}")
        finally:
            self.note("end")

    def play(self, main: Coroutine[Any, Any, None]) -> None:
        self.loop.run_until_complete(main)

    def close(self, *processes: Process) -> None:
        self.loop.bury(*processes)
        tasks = asyncio.all_tasks(self.loop)
        for task in tasks:
            task.cancel()
        if tasks:
            self.loop.run_until_complete(asyncio.wait(tasks))
        self.loop.close()


def test_time_passes_only_when_nothing_is_left_to_do() -> None:
    stage, process = Stage(), Process("a")
    stage.loop.start(process, stage.tick(3600.0, 2))
    stage.play(asyncio.sleep(10_000))
    assert stage.done == [(3600.0, "a", "tick 0"), (7200.0, "a", "tick 1"), (7200.0, "a", "end")]
    stage.close()


def test_a_killed_process_runs_nothing_any_more_not_even_finally() -> None:
    stage, process = Stage(), Process("a")
    stage.loop.start(process, stage.tick(1.0, 5))

    async def main() -> None:
        await asyncio.sleep(2.5)
        process.kill()
        await asyncio.sleep(10)

    stage.play(main())
    assert [word for _, _, word in stage.done] == ["tick 0", "tick 1"]
    stage.close(process)


def test_a_paused_process_goes_on_later_and_sees_the_later_time() -> None:
    stage, process = Stage(), Process("a")
    stage.loop.start(process, stage.tick(1.0, 2))

    async def main() -> None:
        await asyncio.sleep(0.5)
        process.paused = True
        await asyncio.sleep(7)
        stage.loop.resume(process)
        await asyncio.sleep(5)

    stage.play(main())
    assert stage.done[:2] == [(7.5, "a", "tick 0"), (8.5, "a", "tick 1")]
    stage.close()


def first_of_two(seed: int) -> str:
    stage = Stage(seed)
    processes = [Process("a"), Process("b")]
    for process in processes:
        stage.loop.start(process, stage.tick(1.0, 1))
    stage.play(asyncio.sleep(2))
    stage.close()
    return stage.done[0][1]


def test_the_seed_decides_which_process_runs_first_at_the_same_moment() -> None:
    firsts = [first_of_two(seed) for seed in range(20)]
    assert set(firsts) == {"a", "b"}
    assert firsts == [first_of_two(seed) for seed in range(20)]


def test_within_a_process_callbacks_keep_their_order() -> None:
    stage, process = Stage(), Process("a")

    async def several() -> None:
        for number in range(5):
            asyncio.get_running_loop().call_soon(stage.note, str(number))

    stage.loop.start(process, several())
    stage.play(asyncio.sleep(1))
    assert [word for _, _, word in stage.done] == ["0", "1", "2", "3", "4"]
    stage.close()


def test_a_forgotten_generator_is_closed_in_the_process_that_forgets_it() -> None:
    stage, process = Stage(), Process("a")

    async def numbers() -> AsyncIterator[int]:
        try:
            yield 1
        finally:
            stage.note("closed")

    async def forget() -> None:
        async for _ in numbers():
            break

    stage.loop.start(process, forget())
    stage.play(asyncio.sleep(1))
    assert stage.done == [(0.0, "a", "closed")]
    stage.close()


def test_an_endless_loop_without_time_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("simulation.loop.MOST_AT_ONCE", 1000)
    stage = Stage()
    found: list[str] = []

    async def spin() -> None:
        asyncio.get_running_loop().call_soon(again)

    def again() -> None:
        if not found:
            asyncio.get_running_loop().call_soon(again)

    stage.loop.start(Process("a"), spin())
    with pytest.raises(Livelock):
        stage.play(asyncio.sleep(1))
    found.append("the endless loop")
    stage.close()
