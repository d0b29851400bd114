"""Make kube-scheduler try refused pods again once cards became free.

kube-scheduler tries a refused pod again when something in the cluster changes, else after up to five minutes. It may
ask before the freed cards are in the ledger, so after a release the extender changes something itself: an annotation
of the node.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import NoReturn

from prometheus_client import Counter

from gas.cluster.errors import ApiUnavailable
from gas.daemon.logs import VERBOSE
from gas.decision.names import RELEASED
from gas.extender.decider import Decider
from gas.extender.hooks import Change, Observer
from gas.extender.node_queue import NodeQueue
from gas.values.errors import GasError
from gas.values.timing import SYSTEM_TIMING, Timing

logger = logging.getLogger(__name__)

PatchNode = Callable[[str, Mapping[str, str]], Awaitable[bool]]  # (node, annotations to set) -> whether the node exists
PAUSE = 1.0  # seconds between two patches
RETRY_PAUSE = 5.0  # seconds between two tries while the API server is away
SCHEDULER_RETRIES = 300.0  # seconds after which kube-scheduler tries a refused pod again by itself


@dataclass(eq=False)
class Requeuer(Observer):
    """Patch at most one node at a time, then pause: one change makes kube-scheduler try all refused pods."""

    decider: Decider
    wakes: Counter
    patch_node: PatchNode
    acts: Callable[[], bool]  # returns whether this replica decides; while it does not, freed nodes are forgotten
    pause: float = PAUSE
    retry_pause: float = RETRY_PAUSE
    timing: Timing = SYSTEM_TIMING
    _freed: NodeQueue = field(init=False, default_factory=NodeQueue)
    _found_waiting: frozenset[str] = field(init=False, default=frozenset())
    _is_away: bool = field(init=False, default=False)

    def node_changed(self, node: str, change: Change) -> None:
        if Change.FREED in change:
            self._freed.add(node)

    def requeue_all(self) -> None:
        """Treat every waiting pod as refused and every node as freed: this replica has just begun to decide.

        Another replica may have refused the pods, and cards may have become free while none decided.
        """
        self._found_waiting = frozenset(self.decider.pods.waiting)
        self._freed.add(*(name for name, _ in self.decider.nodes))

    async def run(self) -> NoReturn:
        while True:
            freed = await self._freed.take()
            if not self.acts():
                continue
            pause = self.pause
            if self._has_refused_pods():
                try:
                    await self._patch_one_of(freed[::-1])
                except ApiUnavailable as error:
                    level = logging.DEBUG if self._is_away else logging.WARNING
                    logger.log(level, "cannot requeue refused pods yet: %s", error)
                    self._is_away = True
                    self._freed.put_back(freed)
                    pause = self.retry_pause
            await asyncio.sleep(pause)

    def _has_refused_pods(self) -> bool:
        """Return whether a pod may be waiting that this replica or an earlier leader has refused or is refusing.

        kube-scheduler may ask before the watch shows the pod.
        """
        waiting, latest = self.decider.pods.waiting, self.timing.seconds() - SCHEDULER_RETRIES
        refusals = self.decider.refusals.items()
        refused = any(not each.is_final and (uid in waiting or each.time > latest) for uid, each in refusals)
        return refused or self.decider.filtering > 0 or not self._found_waiting.isdisjoint(waiting)

    async def _patch_one_of(self, nodes: list[str]) -> None:
        """Patch the first node that can be patched. Raises ApiUnavailable."""
        for node in nodes:
            try:
                if not await self.patch_node(node, {RELEASED: str(self.timing.nanoseconds())}):
                    continue  # the node is gone with its pods; the next one will do
            except ApiUnavailable:
                raise
            except GasError as error:
                logger.warning(
                    "cannot requeue refused pods by an annotation of a node: %s", error, extra={"node": node}
                )
                continue
            self._is_away = False
            self.wakes.inc()
            logger.log(VERBOSE, "requeued refused pods: cards are free", extra={"node": node})
            return
