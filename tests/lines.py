"""A bound on work that no machine's speed changes: the lines of the product that run."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any


@contextmanager
def at_most(lines: int) -> Iterator[None]:
    """Fail as soon as functions of the product that the block calls have run more lines than this."""
    left = lines

    def trace(frame: FrameType, event: str, _arg: object) -> Any:
        nonlocal left
        if event == "call":
            return trace if frame.f_globals.get("__name__", "").startswith("gas.") else None
        left -= event == "line"
        assert left >= 0, f"more than {lines} lines of the product have run"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(before)
