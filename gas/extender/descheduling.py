"""Puts the deschedule label on pods that hold what a telemetry label wants emptied, and takes it off again."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping

from gas.decision.names import DESCHEDULE_POD_LABEL, DESCHEDULE_POD_VALUE
from gas.errors import GasError
from gas.extender.metrics import Metrics
from gas.extender.nodes import Nodes
from gas.extender.pods import BoundPod, Pods
from gas.ledger import Ledger

logger = logging.getLogger(__name__)

PatchLabels = Callable[[str, str, str, Mapping[str, str | None]], Awaitable[bool]]
"""(namespace, name, UID, labels to set or, with None, to take away) -> whether there is such a pod."""

RETRY_PAUSE = 5.0
"""Seconds after a label could not be changed."""

IDLE_PAUSE = 1.0
"""Seconds between two looks whether this replica acts by now."""


class Descheduler:
    """Compares what pods are labelled with what they should be, whenever their node, their books or they change."""

    def __init__(
        self,
        nodes: Nodes,
        pods: Pods,
        ledger: Ledger,
        metrics: Metrics,
        *,
        patch_labels: PatchLabels,
        acts: Callable[[], bool],
        retry_pause: float = RETRY_PAUSE,
        idle_pause: float = IDLE_PAUSE,
    ) -> None:
        self._nodes = nodes
        self._pods = pods
        self._ledger = ledger
        self._metrics = metrics
        self._patch_labels = patch_labels
        self._acts = acts
        self._retry_pause = retry_pause
        self._idle_pause = idle_pause
        self._to_check: dict[str, None] = {}
        self._something = asyncio.Event()

    def check(self, node: str) -> None:
        """Something of this node, its books or its pods changed."""
        if not self._pods.descheduled and not self._empties(node):
            return  # nearly always: no pod has the label, and none should
        self._to_check[node] = None
        self._something.set()

    async def run(self) -> None:
        while True:
            await self._something.wait()
            self._something.clear()
            if not self._acts():
                await asyncio.sleep(self._idle_pause)
                self._something.set()
                continue
            failed: list[str] = []
            checked, self._to_check = self._to_check, {}
            for node in checked:
                for uid, bound, wanted in list(self._differences(node)):
                    if not await self._patch(uid, bound, wanted=wanted):
                        failed.append(node)
            if failed:
                self._to_check.update(dict.fromkeys(failed))
                await asyncio.sleep(self._retry_pause)
                self._something.set()

    def wanted(self, node: str) -> set[str]:
        """The UIDs of the pods on a node that should carry the label."""
        facts = self._nodes.facts(node)
        if facts is None or not self._empties(node):
            return set()
        return {
            uid
            for uid, booking in self._ledger.on_node(node).items()
            if any(card in facts.deschedule_cards for card in booking.footprint.amounts)
            or any(
                tile.card in booking.footprint.tiles and tile.index in booking.footprint.tiles[tile.card]
                for tile in facts.deschedule_tiles
            )
        }

    def _empties(self, node: str) -> bool:
        """Whether a label of the node wants anything of it emptied."""
        facts = self._nodes.facts(node)
        if facts is None or not (facts.deschedule_cards or facts.deschedule_tiles):
            return False
        return self._nodes.deschedules(node)

    def _differences(self, node: str) -> Iterator[tuple[str, BoundPod, bool]]:
        wanted = self.wanted(node)
        for uid in self._ledger.on_node(node):
            bound = self._pods.bound_pod(uid)
            if bound is not None and bound.descheduled != (uid in wanted):
                yield uid, bound, uid in wanted

    async def _patch(self, uid: str, bound: BoundPod, *, wanted: bool) -> bool:
        pod = bound.object
        labels = {DESCHEDULE_POD_LABEL: DESCHEDULE_POD_VALUE if wanted else None}
        try:
            if not await self._patch_labels(pod.metadata.namespace or "default", pod.metadata.name, uid, labels):
                return True
        except GasError as error:
            logger.warning("cannot change the deschedule label: %s", error, extra={"pod": pod.key})
            return False
        self._metrics.deschedule_patches.labels("put-on" if wanted else "taken-off").inc()
        logger.info(
            "deschedule label put on" if wanted else "deschedule label taken off",
            extra={"pod": pod.key, "node": pod.node_name},
        )
        return True
