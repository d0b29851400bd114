"""Wakes pods that were refused before, once cards became free.

kube-scheduler tries a refused pod again when something in the cluster changes, else after up to five minutes. It may
ask before the freed cards are in our books, so after a release we change something ourselves: an annotation of the
node.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping

from gas.cluster.errors import ApiUnavailable
from gas.daemon.logs import VERBOSE
from gas.decision.names import RELEASED
from gas.errors import GasError
from gas.extender.metrics import Metrics

logger = logging.getLogger(__name__)

PatchNode = Callable[[str, Mapping[str, str]], Awaitable[bool]]
"""(node name, annotations to set) -> whether there is such a node."""


RETRY_PAUSE = 5.0
"""Seconds between two tries while the API server is away."""


class Waker:
    """Patches at most one node each ``pause`` seconds: one change makes kube-scheduler try all refused pods.

    While the API server is away it is tried again every ``retry_pause`` seconds.
    """

    def __init__(
        self,
        patch_node: PatchNode,
        metrics: Metrics,
        *,
        anybody_waits: Callable[[], bool],
        pause: float = 1.0,
        retry_pause: float = RETRY_PAUSE,
    ) -> None:
        self._patch_node = patch_node
        self._metrics = metrics
        self._anybody_waits = anybody_waits
        self._pause = pause
        self._retry_pause = retry_pause
        self._freed: dict[str, None] = {}
        self._in_vain = False
        self._wake = asyncio.Event()

    def released(self, node: str) -> None:
        """Cards of a node became free."""
        self._freed.pop(node, None)
        self._freed[node] = None
        self._wake.set()

    async def run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            freed, self._freed = self._freed, {}
            pause = self._pause
            if self._anybody_waits():
                try:
                    await self._patch_one_of(list(reversed(freed)))
                except ApiUnavailable as error:
                    logger.log(
                        logging.DEBUG if self._in_vain else logging.WARNING, "cannot wake refused pods yet: %s", error
                    )
                    self._in_vain = True
                    self._freed = freed | self._freed
                    self._wake.set()
                    pause = self._retry_pause
            await asyncio.sleep(pause)

    async def _patch_one_of(self, nodes: list[str]) -> None:
        """Patch the first node that can be. Raises ApiUnavailable."""
        for node in nodes:
            try:
                if not await self._patch_node(node, {RELEASED: str(time.time_ns())}):
                    continue  # it went away with its pods; the next one will do
            except ApiUnavailable:
                raise
            except GasError as error:
                logger.warning("cannot wake refused pods by a node's annotation: %s", error, extra={"node": node})
                continue
            self._in_vain = False
            self._metrics.wakes.inc()
            logger.log(VERBOSE, "told the scheduler that cards are free", extra={"node": node})
            return
