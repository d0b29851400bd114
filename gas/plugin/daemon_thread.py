"""Run work that may never end, such as reading from a failing card or disk, in a thread of its own.

asyncio's own pool of threads would keep the program from ending until the work is done.
"""

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Callable, Hashable
from concurrent.futures import Future, wait
from typing import Generic, TypeVar

from gas.values.errors import GasError

_Result = TypeVar("_Result")


class NoReply(GasError):
    pass


def start_daemon_thread(work: Callable[[], _Result], *, name: str) -> Future[_Result]:
    """Start the work in a thread that does not keep the program from ending, and return its future result."""
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
    """Return the result of the work, or raise its error. The work goes on if the caller is cancelled."""
    return await asyncio.wrap_future(start_daemon_thread(work, name=name))


async def wait_while_stuck(work: asyncio.Future[_Result], slow: float, on_slow: Callable[[], None]) -> _Result:
    """Return the result of the work, or raise its error; call ``on_slow`` if that takes more than ``slow`` seconds."""
    try:
        await asyncio.wait((work,), timeout=slow)
        if not work.done():
            on_slow()
        return await work
    finally:
        work.cancel()


class Questions(Generic[_Result]):
    """Ask a driver, in a thread for each question. A key whose question has no reply is not asked again."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._asked: dict[Hashable, Future[_Result]] = {}
        self.late: Counter[Hashable] = Counter()  # by key, how many deadlines in a row have passed without a reply

    def ask(self, key: Hashable, call: Callable[[], _Result]) -> bool:
        """Begin a call, unless an earlier one with this key has no reply yet. Return whether it began."""
        if is_new := key not in self._asked:
            self._asked[key] = start_daemon_thread(call, name=self._name)
        return is_new

    def reply(self, key: Hashable, deadline: float) -> _Result:
        """Return a key's result, maybe of an earlier call. Raises its error, or NoReply at the monotonic deadline."""
        asked = self._asked[key]
        wait((asked,), max(0.0, deadline - time.monotonic()))
        if not asked.done():
            self.late[key] += 1
            raise NoReply("the driver does not reply")
        del self._asked[key]
        self.late.pop(key, None)
        return asked.result()
