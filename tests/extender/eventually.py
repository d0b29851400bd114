"""Waiting for what happens in the background of a test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

PATIENCE = 30.0
"""Seconds after which something that should have happened will not."""


async def eventually(holds: Callable[[], object]) -> None:
    """Wait until a condition holds. Raises TimeoutError."""
    async with asyncio.timeout(PATIENCE):
        while not holds():  # noqa: ASYNC110 -- the code under test reports nothing
            await asyncio.sleep(0.002)


async def turns(count: int = 20) -> None:
    """Let all other tasks run."""
    for _ in range(count):
        await asyncio.sleep(0)


@asynccontextmanager
async def beside(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run a task that never ends by itself while the block runs."""
    task = asyncio.create_task(work)
    try:
        yield
        assert not task.done(), task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
