"""What signals do to a program that is still importing its own parts, or has not begun to serve."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def quiet_end_on_signals() -> Iterator[None]:
    """SIGINT and SIGTERM end the program at once, with the status that a shell shows for them (130, 143).

    Python would print a traceback for the first; and as the first process of a container, which the kernel shields from
    signals that it does not handle, the program would not hear of the second. A main function enters this before it
    imports anything slow. Nothing is closed or taken back, so there must be nothing yet; an event loop that handles the
    signals itself takes over. When the block ends everything is as before it.
    """
    before = {number: signal.signal(number, _end) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler or signal.SIG_DFL)


def _end(number: int, _frame: FrameType | None) -> None:
    os._exit(128 + number)
