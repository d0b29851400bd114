"""Text of others inside messages, cut and escaped so that it can neither flood nor forge a log."""

from __future__ import annotations

from collections.abc import Collection
from itertools import islice

LONGEST_RESOURCE = 63
"""Characters of the longest name of a resource in Kubernetes, without its prefix."""

LONGEST_KEY = 63 + 1 + 253
"""Characters of the longest ``namespace/name`` in Kubernetes."""

_LONGEST = 40
_MOST = 3


def quoted(value: object) -> str:
    """Quote a value in at most 43 characters, with control characters escaped: ``'card0'``, ``'aaaa'…``."""
    text = value if isinstance(value, str) else str(value)
    cut = text[:_LONGEST]
    while len(repr(cut)) > _LONGEST + 2:
        cut = cut[:-1]
    return repr(cut) if cut == text else f"{cut!r}…"


def shown(name: str, longest: int = LONGEST_RESOURCE) -> str:
    """Return a name as it is, or quoted if it is longer than real ones or has control characters."""
    return name if len(name) <= longest and name.isprintable() else quoted(name)


def listed(values: Collection[str]) -> str:
    """List the first values, quoted, and how many more there are: ``'a', 'b', 'c' and 7 more``."""
    shown = ", ".join(quoted(value) for value in islice(values, _MOST))
    return shown if len(values) <= _MOST else f"{shown} and {len(values) - _MOST} more"
