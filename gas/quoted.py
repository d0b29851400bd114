"""Text of others inside messages, cut and escaped so that it can neither flood nor forge a log."""

from __future__ import annotations

from collections.abc import Collection
from itertools import islice

_LONGEST = 40
_MOST = 3


def quoted(value: object) -> str:
    """Quote a value in at most 43 characters, with control characters escaped: ``'card0'``, ``'aaaa'…``."""
    text = value if isinstance(value, str) else str(value)
    cut = text[:_LONGEST]
    while len(repr(cut)) > _LONGEST + 2:
        cut = cut[:-1]
    return repr(cut) if cut == text else f"{cut!r}…"


def listed(values: Collection[str]) -> str:
    """List the first values, quoted, and how many more there are: ``'a', 'b', 'c' and 7 more``."""
    shown = ", ".join(quoted(value) for value in islice(values, _MOST))
    return shown if len(values) <= _MOST else f"{shown} and {len(values) - _MOST} more"
