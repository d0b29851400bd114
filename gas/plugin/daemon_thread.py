"""Run work that may never end, such as reading from a failing card or disk, in a thread of its own.

asyncio's own pool of threads would keep the program from ending until the work is done.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

_Result = TypeVar("_Result")


def start_daemon_thread(work: Callable[[], _Result], *, name: str) -> Future[_Result]:
    """Start the work, and return its future result. The thread does not keep the program from ending."""
    result: Future[_Result] = Future()
    result.set_running_or_notify_cancel()

    def run() -> None:
        try:
            result.set_result(work())
        except BaseException as error:  # noqa: BLE001 - raised again where the result is read
            result.set_exception(error)

    threading.Thread(target=run, name=name, daemon=True).start()
    return result


async def in_a_daemon_thread(work: Callable[[], _Result], *, name: str) -> _Result:
    """Return the result of the work, or raise its error. If the waiting is cancelled, the work goes on."""
    return await asyncio.wrap_future(start_daemon_thread(work, name=name))
