"""The cluster's pods as the books see them: pod events become arrows of the ledger."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from cachetools import LRUCache

from gas.decision.names import DESCHEDULE_POD_LABEL, DESCHEDULE_POD_VALUE, WRITTEN_ANNOTATIONS
from gas.errors import GasError
from gas.extender.written_cards import TilesOfCards, written_cards
from gas.intel.names import PREFIX
from gas.intel.need import read_booked_need
from gas.ledger import Ledger, State
from gas.objects import ObjectMeta, Pod, PodSpec
from gas.placement.need import PodNeed
from gas.vocabulary import BadNeed

logger = logging.getLogger(__name__)

MOST_SHARED_NEEDS = 4096
"""Pods of one template share one need object, for as many templates as this."""

MOST_GONE = 10_000
"""UIDs of pods gone or ended that are remembered: more than go away while one answer is on its way to us."""


class Trouble(NamedTuple):
    """Why a bound pod's annotations are not what is booked.

    unannotated  whether it never said which cards it holds, rather than something that cannot be believed
    """

    sentence: str
    unannotated: bool = False


@dataclass(frozen=True, slots=True)
class BoundPod:
    """A pod on a node that asks for cards, cut down to what the books need.

    object       the pod with nothing but its names, its node and the annotations and label of ours
    need         as read from its containers
    trouble      None when what is booked is what its annotations say
    descheduled  whether it carries the deschedule label
    """

    object: Pod
    need: PodNeed
    trouble: Trouble | None = None

    @property
    def descheduled(self) -> bool:
        return (self.object.metadata.labels or {}).get(DESCHEDULE_POD_LABEL) == DESCHEDULE_POD_VALUE


class Pods:
    """Which GPU pods wait, which are bound, and what the bound ones hold. Fed by a watch; the books are in the ledger.

    What was decided stays booked while the pod lives: a later edit of its annotations is trouble to report, not to
    believe. A receipt of what kubelet really gave is believed. A pod that is bound without a readable annotation is
    kept as trouble and books nothing, since nobody knows its cards.

    Besides the watch, answers to single questions come here too, and they may be older than what the watch has shown.
    A pod only ever goes from waiting to bound to gone, so what would be a step back is not believed.

    waiting        GPU pods without a node, by UID
    in_trouble     bound GPU pods whose annotations are not what is booked, by UID
    descheduled    the UIDs of bound GPU pods that carry the deschedule label
    on_bound       is called with the node's name when a bound pod is new or has changed
    on_release     is called with the node's name when a pod's cards become free
    on_gone        is called with the UID of a pod that no longer waits, bound or gone
    on_correction  is called with a bound pod when the books follow its receipt
    tiles_of_cards what each node has, see `TilesOfCards`
    on_trouble     is called with a bound pod and a sentence, once for each trouble
    on_vanished    is called with UID and ``namespace/name`` of a reserved pod that a complete list does not have
    """

    def __init__(
        self,
        ledger: Ledger,
        *,
        tiles_of_cards: TilesOfCards = lambda _node: None,
        on_bound: Callable[[str], None] = lambda _node: None,
        on_release: Callable[[str], None] = lambda _node: None,
        on_gone: Callable[[str], None] = lambda _uid: None,
        on_correction: Callable[[Pod], None] = lambda _pod: None,
        on_trouble: Callable[[Pod, str], None] = lambda _pod, _sentence: None,
    ) -> None:
        self.waiting: dict[str, Pod] = {}
        self.in_trouble: dict[str, BoundPod] = {}
        self.descheduled: set[str] = set()
        self._bound: dict[str, BoundPod] = {}
        self._gone: LRUCache[str, None] = LRUCache(MOST_GONE)
        self._needs: LRUCache[PodNeed, PodNeed] = LRUCache(MOST_SHARED_NEEDS)
        self.tiles_of_cards = tiles_of_cards
        self._ledger = ledger
        self._on_bound = on_bound
        self._on_release = on_release
        self._on_gone = on_gone
        self._on_correction = on_correction
        self._on_trouble = on_trouble
        self.on_vanished: Callable[[str, str], None] = lambda _uid, _pod: None

    def replaced(self, pods: list[Pod]) -> None:
        """The complete set of pods, newer than all the watch has told: pods that vanished meanwhile are released."""
        there = {pod.uid for pod in pods}
        for pod in pods:
            self._gone.pop(pod.uid, None)  # a cluster that was restored from a backup has its pods back
            self.changed(pod)
        for uid in [*self.waiting.keys() - there, *self._bound.keys() - there]:
            self._forget(uid)
        for uid, booking in list(self._ledger.bookings()):
            if uid not in there and booking.state is State.RESERVED:
                self.on_vanished(uid, booking.pod)

    def learn(self, pods: list[Pod]) -> None:
        """A list made beside the watch, maybe older than it in parts: what is missing in it need not be gone."""
        for pod in pods:
            if pod.uid not in self._bound:
                self.changed(pod)

    def changed(self, pod: Pod) -> None:
        if not asks_for_gpu(pod) or pod.uid in self._gone:
            return
        if pod.is_over:
            self._forget(pod.uid)
        elif pod.node_name:
            self._see_bound(pod)
        elif pod.uid not in self._bound:
            self.waiting[pod.uid] = pod

    def deleted(self, pod: Pod) -> None:
        if asks_for_gpu(pod):
            self._forget(pod.uid)

    def bound(self) -> Iterator[tuple[str, BoundPod]]:
        """Every (uid, bound pod) that asks for cards."""
        return iter(self._bound.items())

    def bound_pod(self, uid: str) -> BoundPod | None:
        return self._bound.get(uid)

    def _see_bound(self, pod: Pod) -> None:
        if self.waiting.pop(pod.uid, None) is not None:
            self._on_gone(pod.uid)
        known = self._bound.get(pod.uid)
        cut = _cut_down(pod)
        if known is not None and known.object == cut:
            return
        try:
            need = known.need if known else read_booked_need(pod)
        except BadNeed as bad:
            self._keep(pod.uid, BoundPod(cut, PodNeed(()), Trouble(f"its need cannot be read: {bad}")))
            return
        if not need.wants_cards:
            return
        need = self._needs.setdefault(need, need)
        self._keep(pod.uid, BoundPod(cut, need, self._book(pod.uid, cut, need)))

    def _book(self, uid: str, pod: Pod, need: PodNeed) -> Trouble | None:
        """Tell the ledger what the pod's annotations say, as far as they are believed. Answers the trouble, if any."""
        booked = self._ledger.booking(uid)
        if booked is not None and booked.node != pod.node_name:  # reserved here, then bound elsewhere by somebody else
            self._ledger.release(uid)
            self._on_release(booked.node)
            booked = None
        try:
            written = written_cards(pod, need, self.tiles_of_cards)
        except GasError as malformed:
            if booked is None:
                return Trouble(f"its cards are not booked: {malformed}")
            self._ledger.confirm(uid)
            return Trouble(f"it stays booked as decided, its annotations were damaged later: {malformed}")
        held = written.footprint
        if held is None:
            if booked is None and written.doubt:
                return Trouble(f"its cards are not booked: {written.doubt}")
            if booked is None:
                return Trouble("it is bound without cards written on it, so its cards are not booked", unannotated=True)
            self._ledger.confirm(uid)
            return Trouble("it stays booked as decided, its annotations were taken away later")
        if booked is None or booked.state is State.RESERVED:
            self._ledger.hold(uid, pod.key, pod.node_name, held)
            if booked is not None and booked.footprint != held:
                self._on_release(pod.node_name)
        elif booked.footprint != held:
            if not written.is_receipt:
                return Trouble("it stays booked as decided, its annotations were changed later")
            logger.warning(
                "kubelet gave a pod other cards than decided; the books follow",
                extra={"pod": pod.key, "node": pod.node_name},
            )
            self._on_correction(pod)
            self._ledger.hold(uid, pod.key, pod.node_name, held)
            self._on_release(pod.node_name)
        return Trouble(written.doubt) if written.doubt else None

    def _keep(self, uid: str, bound: BoundPod) -> None:
        before = self._bound.get(uid)
        self._bound[uid] = bound
        if bound.descheduled:
            self.descheduled.add(uid)
        else:
            self.descheduled.discard(uid)
        if bound.trouble is None:
            self.in_trouble.pop(uid, None)
        else:
            self.in_trouble[uid] = bound
            if before is None or before.trouble != bound.trouble:
                logger.warning(
                    "trouble with a bound GPU pod: %s",
                    bound.trouble.sentence,
                    extra={"pod": bound.object.key, "node": bound.object.node_name},
                )
                self._on_trouble(bound.object, bound.trouble.sentence)
        self._on_bound(bound.object.node_name)

    def _forget(self, uid: str) -> None:
        self._gone[uid] = None
        self.waiting.pop(uid, None)
        self._bound.pop(uid, None)
        self.in_trouble.pop(uid, None)
        self.descheduled.discard(uid)
        self._on_gone(uid)
        if (booking := self._ledger.release(uid)) is not None:
            self._on_release(booking.node)


def asks_for_gpu(pod: Pod) -> bool:
    """Whether any container asks for any resource of ours."""
    for containers in (pod.spec.containers, pod.spec.init_containers):
        for container in containers or ():
            if container.resources is not None and any(
                name.startswith(PREFIX) for name in container.resources.requests or ()
            ):
                return True
    return False


def rebuilt_books(pods: Pods) -> Ledger:
    """Books made from the pods' objects alone, as a restart would make them."""
    fresh = Ledger()
    for uid, bound in pods.bound():
        try:
            written = written_cards(bound.object, bound.need, pods.tiles_of_cards)
        except GasError:
            continue
        if written.footprint is not None:
            fresh.hold(uid, bound.object.key, bound.object.node_name, written.footprint)
    return fresh


def _cut_down(pod: Pod) -> Pod:
    labels = pod.metadata.labels or {}
    return Pod(
        metadata=ObjectMeta(
            name=pod.metadata.name,
            namespace=pod.metadata.namespace,
            uid=pod.metadata.uid,
            labels={DESCHEDULE_POD_LABEL: labels[DESCHEDULE_POD_LABEL]} if DESCHEDULE_POD_LABEL in labels else None,
            annotations={name: text for name, text in pod.annotations.items() if name in WRITTEN_ANNOTATIONS},
        ),
        spec=PodSpec(node_name=pod.node_name),
    )
