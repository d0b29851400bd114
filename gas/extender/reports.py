"""Queues between the decider, which does no I/O, and the tasks that act on what it reports."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from gas.extender.announcer import Announcement, allocation_corrected, booking_mismatch, invalid_labels
from gas.extender.hooks import Observer
from gas.extender.metrics import Metrics
from gas.objects.stored import Pod


class NodeQueue:
    """A queue of node names, each at most once, for one task that takes them all together."""

    def __init__(self) -> None:
        self._names: dict[str, None] = {}
        self._arrived = asyncio.Event()

    def add(self, *names: str) -> None:
        """Append nodes; one that is queued already moves to the end."""
        for name in names:
            self._names.pop(name, None)
            self._names[name] = None
        if names:
            self._arrived.set()

    def put_back(self, names: Iterable[str]) -> None:
        """Queue nodes again, before those that came since they were taken."""
        self._names = dict.fromkeys(names) | self._names
        if self._names:
            self._arrived.set()

    async def take(self) -> list[str]:
        """Wait for nodes, then return and forget all of them, in the order in which they were added."""
        await self._arrived.wait()
        self._arrived.clear()
        names, self._names = list(self._names), {}
        return names


class Reports(Observer):
    """Count what the decider reports, and queue the events that people get of it."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self.announcements: asyncio.Queue[Announcement] = asyncio.Queue()

    def node_is_invalid(self, node: str, problems: tuple[str, ...]) -> None:
        self.announcements.put_nowait(invalid_labels(node, problems))

    def allocation_corrected(self, pod: Pod) -> None:
        self._metrics.corrections.inc()
        self.announcements.put_nowait(allocation_corrected(pod))

    def booking_mismatch(self, pod: Pod, sentence: str) -> None:
        self.announcements.put_nowait(booking_mismatch(pod, sentence))
