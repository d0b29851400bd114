"""Waiting for what happens in the background of a test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any

PATIENCE = 30.0
"""Seconds after which something that should have happened will not; much longer than it takes."""


async def eventually(holds: Callable[[], object]) -> None:
    """Wait until a condition holds. Raises TimeoutError."""
    async with asyncio.timeout(PATIENCE):
        while not holds():  # noqa: ASYNC110 -- the code under test reports nothing
            await asyncio.sleep(0.003)


async def soon(holds: Callable[[], object]) -> None:
    """Wait until a condition holds; what it reads may not exist yet. Raises TimeoutError."""

    def look() -> object:
        with suppress(Exception):
            return holds()
        return False

    await eventually(look)


async def turns(count: int = 20) -> None:
    """Let all other tasks run."""
    for _ in range(count):
        await asyncio.sleep(0)


@asynccontextmanager
async def in_background(*works: Coroutine[Any, Any, None]) -> AsyncIterator[tuple[asyncio.Task[None], ...]]:
    """Run tasks that never end by themselves while the block runs."""
    tasks = tuple(map(asyncio.create_task, works))
    try:
        yield tasks
        assert not [task for task in tasks if task.done()]
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
