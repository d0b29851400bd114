"""Waits for something that another process does."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def wait_for(what: str, question: Callable[[], T | None], *, seconds: float = 90, every: float = 0.1) -> T:
    """Ask until the answer is neither None nor false, and return it. Raises TimeoutError."""
    end = time.monotonic() + seconds
    while True:
        answer = question()
        if answer:
            return answer
        if time.monotonic() > end:
            raise TimeoutError(f"waited {seconds:g} s in vain: {what}; the last answer was {answer!r}")
        time.sleep(every)
