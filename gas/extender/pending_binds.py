"""Pods that passed a filter and whose bind has not come yet.

kube-scheduler sends the bind of a pod beside the filter of the next one, often after it: the bind may need a connection
of its own. If both were decided from the bookings as they are, both pods would be promised the same card, and the
second bind would have to be refused; with ``ignorable: true`` kube-scheduler then binds the pod itself, without cards.
So a filter waits a moment for the binds before it.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable

PATIENCE = 0.25
"""Seconds after a filter's response for which its bind is waited for; it takes a few milliseconds."""

MOST_MISSED = 3
"""After so many binds in a row that did not come, no filter waits until one comes again: either this extender does not
bind, or something later delays every pod, and waiting would delay it even more."""


class PendingBinds:
    """Binds that should come any moment. Books nothing: a filter changes no booking."""

    def __init__(self, *, patience: float = PATIENCE, clock: Callable[[], float] = time.monotonic) -> None:
        self._patience = patience
        self._clock = clock
        self._until: dict[str, float] = {}
        self._missed = 0
        self._change = asyncio.Event()

    def passed(self, uid: str) -> None:
        """Expect a bind of this pod: a filter found nodes for it."""
        self._until[uid] = self._clock() + self._patience

    def settled(self, uid: str) -> None:
        """Stop waiting for a pod: its bind came, and its cards are reserved or refused."""
        self._missed = 0
        if self._until.pop(uid, None) is not None:
            self._change.set()

    async def wait(self, uid: str) -> None:
        """Wait until the bind of every other pod has come or is late."""
        while (left := self._left(uid)) > 0:
            self._change.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._change.wait(), left)

    def _left(self, uid: str) -> float:
        """Return the seconds that are worth waiting; forget pods whose bind is late."""
        now = self._clock()
        for late in [other for other, until in self._until.items() if until <= now]:
            del self._until[late]
            self._missed += 1
        if self._missed >= MOST_MISSED:
            return 0.0
        return max((until - now for other, until in self._until.items() if other != uid), default=0.0)
