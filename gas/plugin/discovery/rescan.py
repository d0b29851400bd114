"""Looks at the node's cards again and again, off the event loop: a card in trouble can keep a reader waiting."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from gas.card_facts import Scan
from gas.plugin.daemon_thread import in_a_daemon_thread
from gas.plugin.discovery.card_memory import CardMemory

logger = logging.getLogger(__name__)

INTERVAL = 5.0
"""Seconds between two scans. Source: contract P1.12."""

SLOW = 10.0
"""Seconds after which a scan is told of as stuck. The kernel may keep a reader for ever; nothing can stop that."""


class Scanner:
    """Keeps the last whole picture of the node's cards; nobody ever sees a half-finished one.

    read       one look, `gas.plugin.discovery.sysfs.read_gpus` with its arguments; called in a thread of its own
    on_change  called on the event loop with each picture that differs from the one before; the first one always does

    scan      the last picture; empty before the first
    finished  scans that came to their end
    faults    scans that raised: a bug of ours, logged; the picture stays
    stuck     while a scan takes longer than ``slow`` seconds: the sentence that says so
    """

    def __init__(
        self,
        read: Callable[[], Scan],
        on_change: Callable[[Scan], None],
        *,
        memory: CardMemory | None = None,
        interval: float = INTERVAL,
        slow: float = SLOW,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.scan = Scan()
        self.finished = 0
        self.faults = 0
        self.stuck: str | None = None
        self._read = read
        self._on_change = on_change
        self._memory = memory or CardMemory()
        self._interval = interval
        self._slow = slow
        self._clock = clock

    async def run(self) -> None:
        """For ever, until cancelled: scan, tell, wait."""
        while True:
            await self.look()
            await asyncio.sleep(self._interval)

    async def look(self) -> None:
        """Scan once and tell what changed."""
        reading = asyncio.ensure_future(in_a_daemon_thread(self._read, name="sysfs"))
        try:
            found = await self._finish(reading)
        except Exception:
            self.faults += 1
            logger.exception("the cards of this node could not be looked at; what was known before stays")
            return
        first = self.finished == 0
        self.finished += 1
        scan = self._memory.take_in(found, self._clock())
        before, self.scan = self.scan, scan
        for problem in scan.problems:
            if problem not in before.problems:
                logger.warning("%s", problem)
        if first or scan != before:
            self._on_change(scan)

    async def _finish(self, reading: asyncio.Future[Scan]) -> Scan:
        """Wait for a scan, and say so when it is stuck. Raises what the scan raised."""
        try:
            await asyncio.wait((reading,), timeout=self._slow)
            if not reading.done():
                self.stuck = (
                    f"looking at the cards of this node has taken over {self._slow:g} s; a card does not answer"
                )
                logger.error("%s", self.stuck)
            return await reading
        finally:
            reading.cancel()
            self.stuck = None
