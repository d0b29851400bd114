"""When kubelet calls, so that a server can end between two pods."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_LOOK = 0.01


class Calls:
    """Kubelet makes the calls for one pod one after the other, milliseconds apart."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._now_answered = 0
        self._last_end = float("-inf")

    @contextmanager
    def answering(self) -> Iterator[None]:
        """One call, from its arrival to its answer."""
        self._now_answered += 1
        try:
            yield
        finally:
            self._now_answered -= 1
            self._last_end = self._clock()

    async def pause(self, *, lasting: float, within: float) -> None:
        """Until there was no call for `lasting` seconds, which may be now; `within` seconds at most."""
        end = self._clock() + within
        while True:
            now = self._clock()
            is_pause = not self._now_answered and now >= self._last_end + lasting
            if is_pause or now >= end:
                return
            await asyncio.sleep(_LOOK)
