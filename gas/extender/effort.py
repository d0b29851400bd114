"""How long one question may keep everybody else waiting.

Most nodes take microseconds. A pod made to be hard can take a tenth of a second on each, and there may be thousands;
the same thread answers probes and keeps the Lease. So others get their turn in between, hard searches get fewer steps
after a while, and the scheduler gets an answer before it gives up.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TypeVar

Answer = TypeVar("Answer")

TURN = 0.02
"""Seconds after which others get their turn."""

PLENTY = 0.5
"""Seconds of a question in which each search gets all its steps."""

LESS_EFFORT = 50
"""After that it gets one in so many steps."""

PATIENCE = 3.0
"""Seconds after which the nodes that are left are not looked at; kube-scheduler gives an extender 5 s by default. What
was found is remembered, so the next question about such a pod gets further."""


class Effort:
    """The time that one question has taken so far.

    step_limit  of a search while there is plenty of time
    """

    def __init__(self, step_limit: int, *, clock: Callable[[], float] = time.perf_counter) -> None:
        self._step_limit = step_limit
        self._clock = clock
        self._started = self._turn = clock()

    async def spend(self, judge: Callable[[int], Answer]) -> Answer:
        """Call ``judge`` with the steps it may take, 0 when there is no time left; then maybe let others run."""
        spent = self._clock() - self._started
        if spent >= PATIENCE:
            return judge(0)
        answer = judge(self._step_limit if spent < PLENTY else max(self._step_limit // LESS_EFFORT, 1))
        if self._clock() - self._turn >= TURN:
            await asyncio.sleep(0)
            self._turn = self._clock()
        return answer
