"""Set the deschedule label on pods that hold cards or tiles that a telemetry label closes."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from typing import NoReturn

from cachetools import LRUCache
from prometheus_client import Counter

from gas.decision.names import DESCHEDULE_POD_LABEL, DESCHEDULE_POD_VALUE, DESCHEDULED_BY_US
from gas.extender.decider import Decider
from gas.extender.hooks import Change, Hooks, Observer
from gas.extender.node_queue import NodeQueue
from gas.extender.pods import BoundPod
from gas.objects.handler import Mirror
from gas.objects.stored import Pod
from gas.values.errors import GasError

logger = logging.getLogger(__name__)

PatchPod = Callable[..., Awaitable[bool]]
"""(namespace, name, UID, annotations, labels=…) -> whether the pod exists. Texts that are None are removed."""

RETRY_PAUSE = 5.0  # seconds after a label could not be changed
IDLE_PAUSE = 1.0  # seconds between two checks whether this replica decides by now
MOST_PATCHED = 10_000  # pods remembered as they were when patched: more than wait for the watch to show the change


class LabelledPods(Mirror[Pod, str]):
    """The nodes of bound GPU pods that have the label or the mark of it, by UID. Fed by a watch, after the decider."""

    def __init__(self, decider: Decider, on_change: Callable[[str], None]) -> None:
        super().__init__()
        self._decider = decider
        self._on_change = on_change

    def needs(self, pod: Pod) -> bool:
        return pod.uid in self.records

    def record(self, pod: Pod) -> str | None:
        is_labelled = _is_labelled(pod) or _is_labelled_by_us(pod)
        return pod.node_name if is_labelled and self._decider.pods.bound_pod(pod.uid) is not None else None

    def replaced(self, _uid: str, old: str | None, new: str | None) -> None:
        self._on_change(old or new or "")


@dataclass(eq=False)
class Descheduler(Observer):
    """Label the pods that should leave, and only those, whenever their node, its bookings or they change.

    A pod that the extender labels also gets an annotation, so that only such labels are removed: one that a user or
    another program set stays, whatever its value.
    """

    decider: Decider
    patches: Counter
    patch_pod: PatchPod
    acts: Callable[[], bool]  # returns whether this replica decides
    retry_pause: float = RETRY_PAUSE
    idle_pause: float = IDLE_PAUSE
    labelled: LabelledPods = field(init=False)
    _changed: NodeQueue = field(init=False, default_factory=NodeQueue)
    _patched: LRUCache[str, BoundPod] = field(init=False, default_factory=lambda: LRUCache(MOST_PATCHED))

    def __post_init__(self) -> None:
        self.labelled = LabelledPods(self.decider, self._changed.add)
        self.decider.pods.retain(DESCHEDULE_POD_LABEL, DESCHEDULED_BY_US)

    def node_changed(self, node: str, _change: Change) -> None:
        if self.labelled.records or self.wanted(node):  # nearly never: no pod has the label, and none should
            self._changed.add(node)

    @property
    def hooks(self) -> Hooks:
        return Hooks(observers=(self,), handlers=(self.labelled,))

    async def run(self) -> NoReturn:
        while True:
            nodes = await self._changed.take()
            if not self.acts():
                await asyncio.sleep(self.idle_pause)
                self._changed.put_back(nodes)
                continue
            failed: dict[str, None] = {}
            for node in nodes:
                for uid, bound, wanted in list(self._differences(node)):
                    if not await self._patch(uid, bound, wanted=wanted):
                        failed[node] = None
            if failed:
                await asyncio.sleep(self.retry_pause)
                self._changed.put_back(failed)

    def wanted(self, node: str) -> set[str]:
        """Return the UIDs of the pods on a node that should carry the label."""
        facts = self.decider.nodes.facts(node)
        if facts is None or not (facts.deschedule_cards or facts.deschedule_tiles):
            return set()
        return {
            uid
            for uid, booking in self.decider.ledger.on_node(node).items()
            if any(card in facts.deschedule_cards for card in booking.footprint.amounts)
            or any(tile.index in booking.footprint.tiles.get(tile.card, ()) for tile in facts.deschedule_tiles)
        }

    def _differences(self, node: str) -> Iterator[tuple[str, BoundPod, bool]]:
        wanted = self.wanted(node)
        for uid in self.decider.ledger.on_node(node):
            bound = self.decider.pods.bound_pod(uid)
            if bound is None or self._patched.get(uid) is bound:
                continue  # the watch has not shown the patch yet
            is_ours = _is_labelled_by_us(bound.object)
            is_free = is_ours or DESCHEDULE_POD_LABEL not in (bound.object.metadata.labels or {})
            if uid in wanted and is_free and not _is_labelled(bound.object):
                yield uid, bound, True
            elif uid not in wanted and is_ours:
                yield uid, bound, False

    async def _patch(self, uid: str, bound: BoundPod, *, wanted: bool) -> bool:
        pod = bound.object
        mark = DESCHEDULE_POD_VALUE if wanted else None
        try:
            if not await self.patch_pod(
                pod.metadata.namespace or "default",
                pod.metadata.name,
                uid,
                {DESCHEDULED_BY_US: mark},
                labels={DESCHEDULE_POD_LABEL: mark},
            ):
                return True
            self._patched[uid] = bound
        except GasError as error:
            logger.warning("cannot change the deschedule label: %s", error, extra={"pod": pod.key})
            return False
        self.patches.labels("put-on" if wanted else "taken-off").inc()
        logger.info(
            "added the deschedule label" if wanted else "removed the deschedule label",
            extra={"pod": pod.key, "node": pod.node_name},
        )
        return True


def _is_labelled(pod: Pod) -> bool:
    """Return whether a pod carries the label with the value that marks pods, whoever set it."""
    return (pod.metadata.labels or {}).get(DESCHEDULE_POD_LABEL) == DESCHEDULE_POD_VALUE


def _is_labelled_by_us(pod: Pod) -> bool:
    return bool(pod.annotations.get(DESCHEDULED_BY_US))
