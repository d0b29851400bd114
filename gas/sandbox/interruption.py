"""Ctrl-C and its relatives: whatever runs is taken down in order, once."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine
from typing import Any, TypeVar

Result = TypeVar("Result")


def run_until_interrupted(work: Coroutine[Any, Any, Result]) -> Result:
    """Run it on an event loop of its own. Raises KeyboardInterrupt after SIGINT, SIGTERM or SIGHUP.

    All three cancel the work, so that what it had started does not stay behind. Further ones change nothing while it
    ends: impatience would leave half of it running.
    """

    async def interruptible() -> Result:
        task = asyncio.current_task()

        def interrupt() -> None:
            if task is not None and not task.cancelling():
                task.cancel()

        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, interrupt)
        return await work

    try:
        return asyncio.run(interruptible())
    except asyncio.CancelledError as cancelled:
        raise KeyboardInterrupt from cancelled
