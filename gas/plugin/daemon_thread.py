"""Run work that may never end, such as reading from a failing card or disk, in a thread of its own.

asyncio's own pool of threads would keep the program from ending until the work is done.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from functools import partial
from typing import TypeVar

_Result = TypeVar("_Result")


async def in_a_daemon_thread(work: Callable[[], _Result], *, name: str) -> _Result:
    """Return the result of ``work``, or raise its error. The thread does not keep the program from ending.

    If the waiting is cancelled, the work goes on and its result is dropped.
    """
    loop = asyncio.get_running_loop()
    result: asyncio.Future[_Result] = loop.create_future()

    def settle(set_result: Callable[[], None]) -> None:
        if not result.cancelled():
            set_result()

    def run() -> None:
        try:
            set_result = partial(result.set_result, work())
        except Exception as error:  # noqa: BLE001 - raised again where the result is awaited
            set_result = partial(result.set_exception, error)
        try:
            loop.call_soon_threadsafe(settle, set_result)
        except RuntimeError:
            return  # the loop is closed: the program has ended meanwhile

    threading.Thread(target=run, name=name, daemon=True).start()
    return await result
