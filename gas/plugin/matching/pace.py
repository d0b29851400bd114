"""When kubelet is asked for its list of pods: never between its own calls."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress

INTERVAL = 3.0
"""Seconds between two comparisons while kubelet allocates nothing."""

QUIET = 1.0
"""Seconds without a call of kubelet before it is asked for its list: see `gas.plugin.matching.matcher.Matcher`."""


class Pace:
    """When kubelet is asked for its list: every few seconds, soon after each Allocate, and never between its calls.

    interval  seconds, see INTERVAL
    quiet     seconds, see QUIET
    clock     returns seconds
    """

    def __init__(
        self, *, interval: float = INTERVAL, quiet: float = QUIET, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.clock = clock
        self._last_call = float("-inf")
        self._interval = interval
        self._quiet = quiet
        self._now = asyncio.Event()

    def called(self) -> float:
        """Note that kubelet begins or ends a call now. Return the time by ``clock``."""
        self._last_call = self.clock()
        return self._last_call

    def soon(self) -> None:
        """Ask as soon as kubelet pauses."""
        self._now.set()

    async def until_kubelet_pauses(self) -> None:
        """Wait for a pause of kubelet. The calls of `soon` before its end are served by the question that follows."""
        while True:
            pause = self._last_call + self._quiet - self.clock()
            if pause <= 0:
                break
            await asyncio.sleep(pause)
        self._now.clear()

    async def until_next(self) -> None:
        """Wait for the interval or for a call of `soon`."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._interval):
                await self._now.wait()
