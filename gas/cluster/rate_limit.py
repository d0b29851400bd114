"""The limit on requests that ``--qps`` and ``--burst`` ask for."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

HIGHEST = 1000
"""Both flags are capped here (contract E12.2)."""

_DEFAULT_QPS = 5.0
_DEFAULT_BURST = 10


class RateLimit:
    """A token bucket: ``burst`` requests at once, ``qps`` a second after that, in the order they came.

    clock  seconds, monotonic
    """

    def __init__(self, qps: float, burst: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._interval = 1 / min(qps, HIGHEST)
        self._ahead = (min(burst, HIGHEST) - 1) * self._interval
        self._clock = clock
        self._due = clock() - self._ahead

    async def wait(self) -> None:
        """Return when the next request may be sent. A caller that gives up has used its place."""
        await asyncio.sleep(self.reserve())

    def reserve(self) -> float:
        """Take the next place and tell how many seconds from now it is due."""
        now = self._clock()
        self._due = max(self._due, now - self._ahead)
        delay = max(0.0, self._due - now)
        self._due += self._interval
        return delay


def rate_limit(qps: float | None, burst: int | None) -> RateLimit | None:
    """The limit for two flags of which None means "not given". None: no limit, the API server has its own.

    As the flags' old meaning was: 0 stands for the default of 5 and 10, a negative qps for no limit.
    """
    if (qps is None and burst is None) or (qps is not None and qps < 0):
        return None
    return RateLimit(qps or _DEFAULT_QPS, burst if burst and burst > 0 else _DEFAULT_BURST)
