"""Growing pauses between attempts."""

from __future__ import annotations

import random

# Random, so that many replicas do not retry in step. Not used for anything secret.
spread = random.SystemRandom().uniform


class Backoff:
    """Pauses that double from ``first`` to ``longest`` seconds, each shortened at random by up to a half."""

    def __init__(self, first: float = 0.25, longest: float = 10.0) -> None:
        self._first = first
        self._longest = longest
        self._next = first

    def wait(self) -> float:
        """Return the seconds to wait now. The next pause will be longer."""
        wait = self._next
        self._next = min(2 * wait, self._longest)
        return wait * spread(0.5, 1.0)

    def reset(self) -> None:
        """Start again with the shortest pause."""
        self._next = self._first
