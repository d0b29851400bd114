"""How long to wait before the next try."""

from __future__ import annotations

import random

# Many replicas must not come back in step; nothing secret hangs on it.
spread = random.SystemRandom().uniform


class Backoff:
    """Waits that double from ``first`` to ``longest`` seconds, each shortened at random by up to a half."""

    def __init__(self, first: float = 0.25, longest: float = 10.0) -> None:
        self._first = first
        self._longest = longest
        self._next = first

    def wait(self) -> float:
        """Seconds to wait now; the next wait will be longer."""
        wait = self._next
        self._next = min(2 * wait, self._longest)
        return wait * spread(0.5, 1.0)

    def reset(self) -> None:
        """Things work again: start small the next time."""
        self._next = self._first
