"""How long one question may keep all other work waiting.

Most nodes take microseconds. A pod made to be hard can take a tenth of a second on each, and there may be thousands;
the same thread answers probes and renews the Lease. So other work gets its turn in between, hard searches get fewer
steps after a while, and the scheduler gets its response before it gives up.
"""

from __future__ import annotations

from collections.abc import Callable

TURN = 0.02
"""Seconds after which other work gets its turn."""

PLENTY = 0.5
"""Seconds of a question in which each search gets all its steps."""

FEWER_STEPS = 50
"""After that, each search gets its steps divided by this number."""

PATIENCE = 3.0
"""Seconds after which the remaining nodes are not evaluated; kube-scheduler gives an extender 5 s by default. Results
are remembered, so the next question about such a pod gets further."""


class TimeBudget:
    """The time that one question may take.

    step_limit  of a search while there is plenty of time
    clock       returns seconds; the question begins now
    """

    def __init__(self, step_limit: int, clock: Callable[[], float]) -> None:
        self._step_limit = step_limit
        self._clock = clock
        self._started = self._turn = clock()

    def steps(self) -> int:
        """Return how many steps the next search may take; 0 if there is no time left."""
        spent = self._clock() - self._started
        if spent >= PATIENCE:
            return 0
        return self._step_limit if spent < PLENTY else max(self._step_limit // FEWER_STEPS, 1)

    def turn_is_over(self) -> bool:
        """Return whether other work should get its turn now; `begin_turn` when this question goes on."""
        return self._clock() - self._turn >= TURN

    def begin_turn(self) -> None:
        """Start to count the next turn of this question."""
        self._turn = self._clock()
