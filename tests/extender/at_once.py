"""Work that is done in turns, driven to its end without an event loop."""

from __future__ import annotations

from typing import TypeVar

from gas.extender.verdicts import Turns

T = TypeVar("T")


def at_once(work: Turns[T]) -> T:
    """Return the result of the work."""
    try:
        while True:
            next(work)
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]  # the type of a StopIteration's value is not known
