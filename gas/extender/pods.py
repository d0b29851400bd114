"""Book the cluster's pods in the ledger: watch events become its transitions."""

from __future__ import annotations

import logging
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

from cachetools import LRUCache

from gas.decision.annotations import MalformedAnnotation, MalformedTiles, is_decided, parse_timestamp, read_receipt
from gas.decision.names import CONTAINER_CARDS, TIMESTAMP
from gas.extender.bookings import Bookings, Event
from gas.extender.bookings import State as Life
from gas.extender.hooks import Change, Corrected, Mismatch, Observer
from gas.ledger.ledger import Booking, Ledger, State
from gas.objects.stored import VISIBLE_CARDS, ObjectId, ObjectMeta, Pod, PodSpec
from gas.placement.choice import Footprint, footprint
from gas.placement.need import PodNeed
from gas.values.amounts import TILES
from gas.values.errors import GasError
from gas.values.quoted import listed, quoted
from gas.vocabularies.combined import Vocabularies
from gas.vocabularies.pod_parts import requests_any
from gas.vocabularies.protocol import BadNeed, NodeFacts, Vocabulary

logger = logging.getLogger(__name__)

MOST_SHARED = 4096  # pods of one template share one need object, for as many templates as this
MOST_GONE = 10_000  # UIDs of pods gone or ended that are remembered: more than go away while a response is on its way


class Trouble(NamedTuple):
    """A problem with the annotations of a bound pod."""

    sentence: str
    is_booked: bool = False  # True if the cards that its annotations say are booked nevertheless
    unannotated: bool = False  # True if the pod has no card annotation, False if it has one that is invalid
    lacks_cards: bool = False  # True if the node does not have cards that the annotations name


_NOT_REQUESTED = Trouble("its cards are not booked: its annotations ask for them, but no container requests any")


@dataclass(frozen=True, slots=True)
class BoundPod:
    """A pod on a node that asks for cards, cut down to what the ledger and the parts need."""

    object: Pod  # the pod with only its names, its node, and the annotations and labels that matter here
    need: PodNeed
    vocabulary: Vocabulary  # in which the pod is written
    trouble: Trouble | None = None  # None if what is booked is what its annotations say


class Pods:
    """The GPU pods that wait and those that are bound. Fed by a watch; it books the cards of bound pods in the ledger.

    A decision stays booked while the pod lives, and so do the pod's affinity labels and its card's name: a later edit
    of its annotations is reported as trouble and changes nothing. A receipt of what kubelet really gave is followed.
    Cards that only annotations ask for are booked if this process has decided them, because without a request kubelet
    gives none. A pod that is bound without a readable annotation is in trouble and books nothing, since its cards are
    not known. A pod whose tiles could not be read is booked without them until an edit makes them readable.

    Responses to single requests come here as well, and may be older than what the watch has shown. A pod only goes from
    waiting to bound to gone, so a step back is ignored.
    """

    def __init__(
        self,
        ledger: Ledger,
        bookings: Bookings,
        vocabularies: Vocabularies,
        *,
        off: Vocabularies | None = None,  # those that are switched off; pods that were decided in them keep their cards
        facts: Callable[[str], NodeFacts | None] = lambda _node: None,  # returns what is known of a node
        observer: Observer | None = None,
        # is called with the UID of a pod that no longer waits: it is bound or gone
        on_gone: Callable[[str], object] = lambda _uid: None,
        # is called with a pod that waits, whenever it is shown
        follow_nomination: Callable[[Pod], None] = lambda _pod: None,
    ) -> None:
        self.waiting: dict[str, Pod] = {}  # GPU pods without a node, by UID
        self.in_trouble: dict[str, BoundPod] = {}  # bound GPU pods with a problem in their annotations, by UID
        self._bound: dict[str, BoundPod] = {}
        self._relative: set[str] = set()  # UIDs of bound pods whose bookings depend on their node's cards
        self._lacks_tiles: set[str] = set()  # UIDs of pods that are booked without their tiles, which were malformed
        self._apart: set[str] = set()  # UIDs of pods that `learn` was shown and the watch was not yet
        self._gone: LRUCache[str, None] = LRUCache(MOST_GONE)
        self._needs: LRUCache[PodNeed, PodNeed] = LRUCache(MOST_SHARED)
        self._ledger = ledger
        self._bookings = bookings
        self._vocabularies = vocabularies
        self._off = off or Vocabularies(())
        # labels and annotations of bound pods that are retained
        self._retained = vocabularies.metadata | self._off.metadata
        self._facts = facts
        self._observer = observer or Observer()
        self._on_gone = on_gone
        self._follow_nomination = follow_nomination

    def listed(self, pods: list[Pod]) -> None:
        """Process a part of a complete list, newer than any watch event."""
        for pod in pods:
            self._gone.pop(pod.uid, None)  # a cluster that was restored from a backup has its pods back
            self.changed(pod)

    def complete(self, listed: list[ObjectId]) -> None:
        """Release the pods that are not in the complete list, in the order in which they came.

        One that the watch has not shown yet may be newer than the list.
        """
        there = {pod.uid for pod in listed}
        for uid in [uid for uid in (*self.waiting, *self._bound) if uid not in there]:
            if uid in self._apart:
                self._bookings.report(uid, Event.VANISHED, (self.waiting.get(uid) or self._bound[uid].object).key)
            else:
                self.forget(uid)
        for uid, booking in self._ledger.of_pods():
            if uid not in there and booking.state is State.RESERVED:
                self._bookings.report(uid, Event.VANISHED)

    def learn(self, pods: list[Pod]) -> None:
        """Process pods read apart from the watch, of which any may be older or newer than what the watch has shown.

        A pod that is missing need not be gone. One that has ended has ended, whatever the watch has shown.
        """
        for pod in pods:
            known = self.waiting.get(pod.uid)
            is_older = known is not None and not pod.node_name and _version(pod) < _version(known)
            if pod.is_over or (pod.uid not in self._bound and not is_older):
                is_apart = pod.uid in self._apart or not self.knows(pod.uid)
                self.changed(pod)
                if is_apart and self.knows(pod.uid):
                    self._apart.add(pod.uid)

    def is_gone(self, uid: str) -> bool:
        """Return whether a pod was deleted or has ended, if that is remembered."""
        return uid in self._gone

    def changed(self, pod: Pod) -> None:
        self._apart.discard(pod.uid)
        if pod.uid in self._gone:
            return
        if (vocabulary := self._vocabulary_of(pod)) is None:
            self._without_words(pod)
        elif pod.is_over:
            self.forget(pod.uid)
        elif pod.node_name:
            self._see_bound(pod, vocabulary)
        elif pod.uid not in self._bound:
            self.waiting[pod.uid] = pod
            self._follow_nomination(pod)

    def node_changed(self, node: str) -> None:
        """Process a possible change of the cards of a node.

        Pods that take a part of what its cards have, or whose cards another system names in its own way, are booked
        again. Pods whose cards the node lacked or could not name are read again, because the cards may have come back.
        """
        for uid, bound in list(self.in_trouble.items()):
            trouble = bound.trouble
            if bound.object.node_name == node and trouble and (trouble.lacks_cards or trouble.unannotated):
                self._follow_amounts(uid, bound, node)
                trouble = self._book(uid, bound.object, bound.need, bound.vocabulary)
                self._keep(uid, replace(bound, trouble=trouble))
        for uid in self._relative:
            bound, booked = self._bound[uid], self._ledger.booking(uid)
            if booked is None or booked.node != node or booked.state is State.RESERVED:
                continue
            if bound.trouble is not None and not bound.trouble.is_booked:
                continue
            found = written_cards(bound.object, bound.need, bound.vocabulary, self._facts(node)).footprint
            is_written = CONTAINER_CARDS in bound.object.annotations  # then other cards mean that some are missing
            if found is not None and not (is_written and found.amounts.keys() != booked.footprint.amounts.keys()):
                found = replace(found, company=booked.footprint.company, named=booked.footprint.named)
                self._bookings.hold(uid, booked.pod, node, found)

    def _follow_amounts(self, uid: str, bound: BoundPod, node: str) -> None:
        """Book what the pod takes of the same cards now, since parts of cards that are not known count as nothing."""
        booked = self._ledger.booking(uid)
        if not bound.need.has_ratios or booked is None or booked.node != node or booked.state is State.RESERVED:
            return
        try:
            found = written_cards(bound.object, bound.need, bound.vocabulary, self._facts(node)).footprint
        except GasError:
            return
        if found is not None and found.amounts.keys() == booked.footprint.amounts.keys():
            self._bookings.hold(uid, booked.pod, node, replace(booked.footprint, amounts=found.amounts))

    def needs(self, pod: Pod) -> bool:
        """Return whether a pod asks for cards, or did when it was last seen: its annotations may have been removed."""
        return self._vocabulary_of(pod) is not None or self.knows(pod.uid)

    def retain(self, *names: str) -> None:
        """Retain these labels and annotations of bound pods as well. To be called before the first pod is shown."""
        self._retained |= frozenset(names)

    def suspended(self) -> Counter[str]:
        """Return how many of the `waiting` pods kube-scheduler does not look at, by the reason why not."""
        return Counter(why for pod in self.waiting.values() if (why := pod.suspended))

    def knows(self, uid: str) -> bool:
        return uid in self.waiting or uid in self._bound

    def deleted(self, pod: Pod) -> None:
        if self.needs(pod):
            self.forget(pod.uid)

    def bound(self) -> Iterator[tuple[str, BoundPod]]:
        return iter(self._bound.items())

    def bound_pod(self, uid: str) -> BoundPod | None:
        return self._bound.get(uid)

    def rebuilt_ledger(self) -> Ledger:
        """Return a ledger made from the pods' objects alone, as a restart would make it."""
        fresh = Ledger()
        for uid, bound in self._bound.items():
            if bound.trouble == _NOT_REQUESTED:
                continue
            pod = bound.object
            try:
                written = written_cards(pod, bound.need, bound.vocabulary, self._facts(pod.node_name))
            except GasError:
                continue
            if written.footprint is not None:
                fresh.hold(uid, pod.key, pod.node_name, written.footprint)
        return fresh

    def _vocabulary_of(self, pod: Pod) -> Vocabulary | None:
        """Return the vocabulary that a pod is written in, one that is off if the pod was given cards by it.

        None for a bound pod that takes its cards from a ResourceClaim: they are no cards of the ledger.
        """
        if pod.node_name and not pod.annotations.get(TIMESTAMP) and self._vocabularies.is_claimed(pod):
            return None
        vocabulary = self._vocabularies.vocabulary_of(pod)
        if vocabulary is not None or not pod.metadata.annotations or not pod.node_name:
            return vocabulary
        bound = self._bound.get(pod.uid)
        is_off = is_decided(pod) and (bound is None or bound.vocabulary in self._off)
        return self._off.vocabulary_of(pod) if is_off else None

    def _without_words(self, pod: Pod) -> None:
        """Process a pod whose annotations no longer ask for cards. If it is bound, its booking stays."""
        if (bound := self._bound.get(pod.uid)) is not None and not pod.is_over:
            sentence = "its annotations that ask for cards were removed after binding; its booking is unchanged"
            self._keep(pod.uid, replace(bound, object=self._cut_down(pod), trouble=Trouble(sentence)))
        elif self.knows(pod.uid):
            self.forget(pod.uid)
            if not pod.is_over:
                del self._gone[pod.uid]  # it may ask for cards again

    def _see_bound(self, pod: Pod, vocabulary: Vocabulary) -> None:
        self.waiting.pop(pod.uid, None)
        self._bookings.nominate(pod.uid, pod.key, "")
        self._on_gone(pod.uid)
        known = self._bound.get(pod.uid)
        cut = self._cut_down(pod)
        if known is not None and known.object == cut:
            return
        is_off = vocabulary in self._off
        try:
            need = (self._off if is_off else self._vocabularies).booked_need(pod)
        except BadNeed as bad:
            unread = Trouble(f"its cards are not booked, because its requests cannot be read: {bad}")
            self._keep(pod.uid, BoundPod(cut, PodNeed(()), vocabulary, unread))
            return
        if not need.wants_cards:
            return
        need = self._needs.setdefault(need, need)
        is_requested = any(requests_any(pod, resource) for resource in vocabulary.managed_resources)
        is_requested = is_requested or vocabulary.is_fixed(pod)
        trouble = self._book(pod.uid, cut, need, vocabulary, is_requested=is_requested)
        if trouble is None and (sentence := vocabulary.contradiction(pod)):
            trouble = Trouble(sentence)
        if trouble is None and is_off:
            trouble = Trouble(vocabulary.when_off, is_booked=True)
        self._keep(pod.uid, BoundPod(cut, need, vocabulary, trouble))

    def _book(
        self, uid: str, pod: Pod, need: PodNeed, vocabulary: Vocabulary, *, is_requested: bool = True
    ) -> Trouble | None:
        """Book what the pod's annotations say, as far as that is trusted. Return the trouble, if any.

        is_requested  whether its containers request cards: anyone who may edit a pod can make annotations ask for them
        """
        booked = self._ledger.booking(uid)
        if booked is not None and booked.node != pod.node_name:  # reserved here, but bound elsewhere by others
            self._bookings.report(uid, Event.ELSEWHERE)
            booked = None
        try:
            written = written_cards(pod, need, vocabulary, self._facts(pod.node_name))
        except GasError as malformed:
            if booked is None:
                return Trouble(f"its cards are not booked: {malformed}")
            self._bookings.report(uid, Event.BOUND)
            return Trouble(
                f"its annotations were changed after binding and cannot be read ({malformed}); its booking is unchanged"
            )
        if booked is None and not is_requested and (written.footprint is not None or written.lacks_cards):
            return _NOT_REQUESTED
        trouble = self._follow(uid, pod, written, booked)
        return trouble and trouble._replace(lacks_cards=written.lacks_cards)

    def _follow(self, uid: str, pod: Pod, written: WrittenCards, booked: Booking | None) -> Trouble | None:
        """Book what is written on a pod, if it may replace what is booked. Return the trouble, if any."""
        footprint, doubt = written.footprint, written.doubt
        if (
            footprint is not None
            and booked is not None
            and booked.state is State.HELD
            and (booked.footprint.company, booked.footprint.named) != (footprint.company, footprint.named)
        ):
            footprint = replace(footprint, company=booked.footprint.company, named=booked.footprint.named)
            doubt = (
                doubt or "its company labels or its card's name were changed after binding; its booking is unchanged"
            )
        same_cards = (  # of a pod that is booked without its tiles
            uid in self._lacks_tiles
            and booked is not None
            and footprint is not None
            and replace(footprint, tiles={}) == booked.footprint
        )
        if written.lacks_tiles and booked is not None and not same_cards:
            self._bookings.report(uid, Event.BOUND)
            return Trouble(
                "its annotation of tiles was changed after binding and cannot be read; its booking is unchanged"
            )
        if footprint is None:
            if booked is None and doubt:
                return Trouble(f"its cards are not booked: {doubt}")
            if booked is None:
                return Trouble("it is bound without cards written on it, so its cards are not booked", unannotated=True)
            known = self.in_trouble.get(uid)
            was_unannotated = known is not None and known.trouble is not None and known.trouble.unannotated
            if self._bookings.report(uid, Event.BOUND) is not Life.HELD or was_unannotated:
                sentence = "it is bound without cards written on it; the cards that were reserved for it stay booked"
                return Trouble(sentence, unannotated=True)
            return Trouble("its annotations were removed after binding; its booking is unchanged")
        if booked is None or booked.state is State.RESERVED or (same_cards and footprint.tiles):
            self._hold(uid, pod, written, footprint)
        elif booked.footprint != footprint:
            if not written.is_receipt:
                return Trouble("its annotations were changed after binding; its booking is unchanged")
            logger.warning(
                "kubelet gave a pod other cards than were decided; the ledger follows its receipt",
                extra={"pod": pod.key, "node": pod.node_name},
            )
            self._observer.found(Corrected(pod))
            self._hold(uid, pod, written, footprint)
        return Trouble(doubt, is_booked=True) if doubt else None

    def _hold(self, uid: str, pod: Pod, written: WrittenCards, footprint: Footprint) -> None:
        self._bookings.hold(uid, pod.key, pod.node_name, footprint)
        if written.lacks_tiles:
            self._lacks_tiles.add(uid)

    def _keep(self, uid: str, bound: BoundPod) -> None:
        before = self._bound.get(uid)
        self._bound[uid] = bound
        if bound.need.has_ratios or CONTAINER_CARDS not in bound.object.annotations:
            self._relative.add(uid)
        if bound.trouble is None:
            self.in_trouble.pop(uid, None)
        else:
            self.in_trouble[uid] = bound
            if before is None or before.trouble != bound.trouble:
                logger.warning(
                    "something is wrong with the annotations of a bound GPU pod: %s",
                    bound.trouble.sentence,
                    extra={"pod": bound.object.key, "node": bound.object.node_name},
                )
                self._observer.found(Mismatch(bound.object, bound.trouble.sentence))
        self._observer.node_changed(bound.object.node_name, Change.PODS)

    def forget(self, uid: str) -> None:
        """Release a pod that is gone or has ended."""
        self._gone[uid] = None
        self._apart.discard(uid)
        self.waiting.pop(uid, None)
        self._bound.pop(uid, None)
        self.in_trouble.pop(uid, None)
        self._relative.discard(uid)
        self._lacks_tiles.discard(uid)
        self._on_gone(uid)
        self._bookings.report(uid, Event.GONE)

    def _cut_down(self, pod: Pod) -> Pod:
        names = self._retained
        containers = pod.spec.containers or ()
        has_cards = any(each.variable(VISIBLE_CARDS) for each in containers)
        return Pod(
            metadata=ObjectMeta(
                name=pod.metadata.name,
                namespace=pod.metadata.namespace and sys.intern(pod.metadata.namespace),
                uid=pod.metadata.uid,
                labels={name: text for name, text in (pod.metadata.labels or {}).items() if name in names} or None,
                annotations={name: text for name, text in pod.annotations.items() if name in names},
            ),
            spec=PodSpec(node_name=sys.intern(pod.node_name), containers=containers if has_cards else None),
        )


def _version(pod: Pod) -> tuple[int, str]:
    """Return the resource version of a pod, a whole number (Kubernetes' KEP-5504), for comparisons."""
    version = pod.metadata.resource_version or ""
    return len(version), version


@dataclass(frozen=True, slots=True)
class WrittenCards:
    """The part of a pod's annotations that is trusted."""

    footprint: Footprint | None  # None if nothing readable says which cards
    is_receipt: bool = False  # whether the device plugin wrote them, rather than the decision
    lacks_tiles: bool = False  # whether the tiles are malformed, so that only cards and amounts are known
    # whether the node does not have cards that the annotations name, so that a change of it may matter
    lacks_cards: bool = False
    doubt: str = ""  # a sentence about an annotation that is wrong; empty if all are right


def written_cards(pod: Pod, need: PodNeed, vocabulary: Vocabulary, node: NodeFacts | None) -> WrittenCards:
    """Read a bound pod's annotations. Raises MalformedAnnotation if the cards of the decision cannot be read.

    A receipt is trusted over the decision, unless it is malformed or names cards that the node does not have: anyone
    who may edit the pod can write such a receipt, and no plugin would. A decision about a card that the node does not
    have is trusted, because the card may come back.
    """
    capacity = node.inventory.capacity if node is not None else {}
    missing = doubt = ""
    try:
        receipt = read_receipt(pod, need)
    except MalformedAnnotation as malformed:
        receipt, doubt = None, f"its receipt is ignored: {malformed}"
    if receipt is not None:
        received = footprint(need, receipt, capacity)
        if not (missing := _missing_cards(received, node)):
            return WrittenCards(received, is_receipt=True)
        doubt = f"its receipt is ignored: node {pod.node_name} does not have {missing}"
    lacks_tiles = False
    try:
        choice = vocabulary.read_choice(pod, need, node)
    except MalformedTiles as malformed:
        choice, lacks_tiles = malformed.choice, True
        doubt = doubt or f"its cards are booked, but not its tiles: {malformed}"
    if choice is None:
        return WrittenCards(None, lacks_cards=bool(missing), doubt=doubt)
    decided = footprint(need, choice, capacity)
    if not doubt and (missing := _missing_cards(decided, node)):
        doubt = f"its annotated cards are booked, but node {pod.node_name} does not have {missing}"
    if (time := pod.annotations.get(TIMESTAMP)) and not doubt and parse_timestamp(time) is None:
        found = f"annotation {TIMESTAMP}: expected nanoseconds since the epoch, found {quoted(time)}"
        doubt = f"its cards are booked, but gas-plugin serves it after all others of its node: {found}"
    return WrittenCards(decided, lacks_tiles=lacks_tiles, lacks_cards=bool(missing), doubt=doubt)


def _missing_cards(held: Footprint, node: NodeFacts | None) -> str:
    """List the cards and tiles that the node does not have; empty if it has all of them or nothing is known of it."""
    if node is None:
        return ""
    capacity = node.inventory.capacity
    missing = [str(card) for card in held.amounts if card not in capacity]
    missing += [
        f"gt{index} of {card}"
        for card, indexes in held.tiles.items()
        for index in sorted(indexes)
        if card in capacity and index >= capacity[card].get(TILES, 0)
    ]
    return listed(missing) if missing else ""
