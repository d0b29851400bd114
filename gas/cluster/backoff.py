from gas.values.timing import SYSTEM_TIMING, Timing


class Backoff:
    """Pauses that double from ``first`` to ``longest`` seconds, each shortened at random by up to a half."""

    def __init__(self, first: float = 0.25, longest: float = 10.0, timing: Timing = SYSTEM_TIMING) -> None:
        self._first = first
        self._longest = longest
        self._next = first
        self._spread = timing.spread

    def wait(self) -> float:
        """Return the seconds to wait now. The next pause will be longer."""
        wait = self._next
        self._next = min(2 * wait, self._longest)
        return wait * self._spread(0.5, 1.0)

    def reset(self) -> None:
        self._next = self._first
