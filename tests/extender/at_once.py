"""Coroutines that only let others run now and then, driven to their end without an event loop."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, TypeVar

Answer = TypeVar("Answer")


def at_once(coroutine: Coroutine[Any, Any, Answer]) -> Answer:
    """What the coroutine answers."""
    try:
        while True:
            coroutine.send(None)
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]  # the type of a StopIteration's value is not known
