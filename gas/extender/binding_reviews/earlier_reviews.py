"""The end of the reviews that a process before this one has allowed.

A review of a Binding books cards in memory alone, and its Binding may be written long after the process that allowed it
was killed or stopped to lead. Such a Binding demands the version in which the pod was read. So every pod that waits is
given another version; then no such Binding can be written any more.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from gas.extender.binding_reviews.bindings import LATEST_WRITE
from gas.extender.binding_reviews.reviews import ChangeVersion
from gas.extender.readiness import ListPods
from gas.objects.stored import Pod
from gas.values.errors import GasError

logger = logging.getLogger(__name__)

RETRY_PAUSE = 1.0
"""Seconds after a list or a write that failed."""

MOST_WRITES = 32
"""Pods whose versions are changed at the same time."""


class EarlierReviews:
    """The reviews of Bindings that other processes have allowed.

    list_waiting    returns the GPU pods without a node
    change_version  see `ChangeVersion`
    """

    def __init__(
        self,
        list_waiting: ListPods,
        change_version: ChangeVersion,
        *,
        retry_pause: float = RETRY_PAUSE,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._list_waiting = list_waiting
        self._change_version = change_version
        self._retry_pause = retry_pause
        self._clock = clock

    async def end(self) -> None:
        """Change the versions of all waiting pods, or let so much time pass that no earlier Binding is written."""
        until = self._clock() + LATEST_WRITE
        left: list[Pod] | None = None
        while self._clock() < until:
            try:
                if left is None:
                    left = [pod for pod in await self._list_waiting() if not pod.node_name and not pod.is_over]
                if not (left := await _unchanged(left, self._change_version)):
                    return
            except GasError as error:
                logger.warning("cannot list the pods that wait: %s", error)
            except Exception:
                logger.exception("cannot process the pods that wait")
            await asyncio.sleep(self._retry_pause)


async def _unchanged(pods: list[Pod], change_version: ChangeVersion) -> list[Pod]:
    """Change the versions of pods, and return those for which that failed."""
    pending = iter(pods)
    left: list[Pod] = []
    last: list[GasError] = []

    async def work() -> None:
        for pod in pending:
            try:
                await change_version(pod.metadata.namespace or "default", pod.metadata.name, pod.uid)
            except GasError as error:
                left.append(pod)
                last[:] = [error]

    async with asyncio.TaskGroup() as tasks:
        for _ in range(min(MOST_WRITES, len(pods))):
            tasks.create_task(work())
    if left:
        logger.warning("cannot end earlier reviews of %d pods' bindings yet: %s", len(left), last[0])
    return left
