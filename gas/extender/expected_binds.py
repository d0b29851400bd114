"""Pods that passed a filter and whose bind has not come yet.

kube-scheduler sends the bind of a pod beside the filter of the next one, often behind it: the bind may need a
connection of its own. Answered from the books as they are, both pods would be promised the same card, and the second
bind would have to be refused; with ``ignorable: true`` kube-scheduler then binds the pod itself, without cards. So a
filter waits a moment for the binds before it.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable

PATIENCE = 0.25
"""Seconds from a filter's answer within which its bind is waited for; it takes a few milliseconds."""

MOST_MISSED = 3
"""After so many binds in a row that did not come nobody waits until one comes again: binding is not our job then, or
something behind us slows every pod down, and waiting would slow it down even more."""


class ExpectedBinds:
    """Which binds should come any moment. Books nothing: the filter stays a question."""

    def __init__(self, *, patience: float = PATIENCE, clock: Callable[[], float] = time.monotonic) -> None:
        self._patience = patience
        self._clock = clock
        self._until: dict[str, float] = {}
        self._missed = 0
        self._change = asyncio.Event()

    def passed(self, uid: str) -> None:
        """A filter found room for the pod: its bind should follow."""
        self._until[uid] = self._clock() + self._patience

    def settled(self, uid: str) -> None:
        """The bind came, and its cards are reserved or refused."""
        self._missed = 0
        if self._until.pop(uid, None) is not None:
            self._change.set()

    async def wait(self, uid: str) -> None:
        """Until the bind of every other pod has come or is late."""
        while (left := self._left(uid)) > 0:
            self._change.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._change.wait(), left)

    def _left(self, uid: str) -> float:
        """Seconds that are worth waiting; pods whose bind is late are forgotten."""
        now = self._clock()
        for late in [other for other, until in self._until.items() if until <= now]:
            del self._until[late]
            self._missed += 1
        if self._missed >= MOST_MISSED:
            return 0.0
        return max((until - now for other, until in self._until.items() if other != uid), default=0.0)
