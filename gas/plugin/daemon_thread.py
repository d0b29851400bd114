"""Work that may never come back, such as reading from a card or a disk in trouble, in a thread of its own.

asyncio's own pool of threads would keep the program from ending until the work is done.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from functools import partial
from typing import TypeVar

_Answer = TypeVar("_Answer")


async def in_a_daemon_thread(work: Callable[[], _Answer], *, name: str) -> _Answer:
    """The answer of ``work``, or what it raises. The thread does not keep the program from ending.

    When the waiting is cancelled the work goes on, and nobody learns how it ended.
    """
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[_Answer] = loop.create_future()

    def settle(set_answer: Callable[[], None]) -> None:
        if not answer.cancelled():
            set_answer()

    def run() -> None:
        try:
            set_answer = partial(answer.set_result, work())
        except Exception as error:  # noqa: BLE001 - handed on to whoever waits
            set_answer = partial(answer.set_exception, error)
        try:
            loop.call_soon_threadsafe(settle, set_answer)
        except RuntimeError:
            return  # the loop is closed: the program has ended meanwhile

    threading.Thread(target=run, name=name, daemon=True).start()
    return await answer
