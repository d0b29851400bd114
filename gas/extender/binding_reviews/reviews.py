"""The webhook of Bindings: give cards to the Bindings of other clients before the API server writes them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass

import msgspec

from gas.decision.names import CONTAINER_CARDS
from gas.extender.admission.review import ALLOWED, CREATE, BadReview, Review, ReviewResult, decode_object
from gas.extender.binding_reviews.bindings import Binding, Given, ReviewedBindings, Source
from gas.extender.binding_reviews.part import REVIEWED_BINDINGS
from gas.extender.binding_reviews.unbound_pods import UnboundPod, UnboundPods
from gas.extender.bookings import Event, Move, State
from gas.extender.decider import CannotBind, Decider
from gas.extender.filter import PendingBinds
from gas.extender.hooks import Observer
from gas.extender.late_bindings import Settler
from gas.extender.metrics import Metrics
from gas.extender.readiness import NotReady, check_ready
from gas.objects.json_patch import Operation, Patch
from gas.objects.stored import Pod
from gas.values.errors import GasError
from gas.values.quoted import LONGEST_NAME, quoted
from gas.values.timing import SYSTEM_TIMING, Timing

logger = logging.getLogger(__name__)

BINDINGS = frozenset({"pods/binding", "bindings"})  # the resources that bind a pod; the second is older


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewTimes:
    """How long parts of a review may take, in seconds."""

    binding: float = 2.0  # for a Binding to be written after its review; it takes a few milliseconds
    watch_patience: float = 0.1  # for the watch to show a pod that is bound right after it was created
    # for reading a pod and settling an earlier review of it; the API server waits 2 s for the response
    read_timeout: float = 1.0


REVIEW_TIMES = ReviewTimes()

MOST_READS = 32  # pods that the watch has shown and that are read at the same time, and as many that it has not shown


@dataclass(eq=False)
class BindReviews(Observer):
    """Review Bindings: called with the review of one, returns the result. Raises BadReview and NotReady.

    A Binding of a pod that asks for no cards passes at once, if the watch has shown the pod. If it has not, the pod is
    read. A Binding of a GPU pod is given cards, or it is refused. If the Binding is not written within a moment, the
    pod's version is changed, so that it can no longer be written, and the cards are cancelled.
    """

    decider: Decider
    pending_binds: PendingBinds
    metrics: Metrics
    _: KW_ONLY
    settler: Settler
    why_not_ready: Callable[[], str | None]
    times: ReviewTimes = REVIEW_TIMES
    timing: Timing = SYSTEM_TIMING

    def __post_init__(self) -> None:
        self.unbound = UnboundPods(self.decider.asks_for_cards)
        self._bindings = REVIEWED_BINDINGS.counter(self.metrics.registry)
        self._clock = self.timing.monotonic
        self._reviewed = ReviewedBindings(self.decider)
        self._open: dict[str, Binding] = {}  # that were given cards, by UID of the pod
        self._reads_of_known = asyncio.Semaphore(MOST_READS)
        self._reads_of_unknown = asyncio.Semaphore(MOST_READS)

    async def __call__(self, review: Review) -> ReviewResult:
        if review.operation != CREATE or review.target not in BINDINGS:
            return ALLOWED
        check_ready(self.why_not_ready)
        wire = decode_object(review.new, _BindingWire)
        if not wire.target.name or wire.target.kind not in ("", "Node"):
            return ALLOWED  # the API server refuses it
        binding = wire.to_binding(review)
        if not binding.name:
            raise BadReview("request.object.metadata.name: expected the name of a pod, found nothing")
        _check_names(binding)
        known = await self.unbound.wait_for(binding.key, binding.uid, patience=self.times.watch_patience)
        if known is not None and not known.wants_cards:
            if not review.dry_run:
                self.pending_binds.came(known.uid)
            return _only_for(known.uid, wire)
        try:
            return await self._review(binding, known, wire, review)
        except CannotBind as cannot:
            if cannot.refusal is not None:
                self.metrics.refusals.labels(cannot.refusal.kind).inc()
            return self._refused(str(cannot))
        except NotReady:
            raise
        except GasError as error:
            return self._refused(str(error))

    def moved(self, move: Move) -> None:
        if (binding := self._open.get(move.uid)) is None:
            return
        expired = self._reviewed.moved(move, binding.node, clock=self._clock())
        if expired is None:
            return
        del self._open[move.uid]
        self._count("expired" if expired else "settled")
        if expired:
            logger.warning(
                "a binding that was given cards did not follow; they are free again",
                extra={"pod": binding.key, "node": binding.node},
            )

    def _refused(self, sentence: str) -> ReviewResult:
        self._count("refused")
        return ReviewResult(refusal=sentence)

    def _count(self, outcome: str) -> None:
        self._bindings.labels(outcome).inc()

    async def _review(
        self, binding: Binding, known: UnboundPod | None, wire: _BindingWire, review: Review
    ) -> ReviewResult:
        begun = self._clock()
        pod = await self._read(binding, known, dry_run=review.dry_run)
        if pod is not None and binding.uid in ("", pod.uid) and not self.decider.asks_for_cards(pod):
            return _only_for(pod.uid, wire)
        given = self._reviewed.give(
            binding, pod, now=self.timing.seconds(), clock=self._clock(), dry_run=review.dry_run
        )
        if not review.dry_run:
            self.pending_binds.came(given.uid)
        self._count(given.source.value)
        if given.source is Source.CHOSEN:
            self._open[given.uid] = binding
            asyncio.get_running_loop().call_later(self.times.binding, self._end, given.uid, binding)
            cards = given.annotations.get(CONTAINER_CARDS, "")
            self.decider.decisions.made(
                given.uid,
                binding.key,
                binding.node,
                cards,
                verb="review",
                seconds=self._clock() - begun,
                now=self.timing.seconds(),
            )
            extra = {"pod": binding.key, "node": binding.node, "cards": cards, "user": review.user}
            logger.info("gave cards to a binding of another client", extra=extra)
        return ReviewResult(patch=_patch(wire, given))

    async def _read(self, binding: Binding, known: UnboundPod | None, *, dry_run: bool) -> Pod | None:
        """Return the pod as it is now. Raises CannotBind or, if it may have no GPUs, NotReady if it cannot be read."""
        try:
            async with asyncio.timeout(self.times.read_timeout):
                return await self._read_settled(binding, known, dry_run=dry_run)
        except (CannotBind, NotReady):
            raise
        except (GasError, TimeoutError) as error:
            why = str(error) or f"no response in {self.times.read_timeout:g} s"
            if known is None:  # it may well be a pod without GPUs: leave it to the failure policy
                raise NotReady(f"pod {binding.shown} cannot be read: {why}") from None
            raise CannotBind(f"pod {binding.shown} cannot be read, so it is not bound: {why}; try again") from None

    async def _read_settled(self, binding: Binding, known: UnboundPod | None, *, dry_run: bool) -> Pod | None:
        """Read the pod while no earlier review of it is being settled, or is open for another node."""
        uid = known.uid if known is not None else binding.uid
        while True:
            if self._must_settle(uid, binding, dry_run=dry_run):
                await self.settler.settled(uid)
            if (pod := self._reviewed.unchanged(uid, binding.node)) is None:
                self._reviewed.check_patience(uid, binding.key, clock=self._clock())
                async with self._reads_of_known if known is not None else self._reads_of_unknown:
                    pod = await self.settler.requests.get(binding.namespace, binding.name)
            check_ready(self.why_not_ready)  # another replica may lead by now
            uid = pod.uid if pod is not None else uid
            if not self._must_settle(uid, binding, dry_run=dry_run):
                return pod

    def _must_settle(self, uid: str, binding: Binding, *, dry_run: bool) -> bool:
        """Return whether an earlier Binding of the pod must be settled before this one is decided.

        A dry run ends no review.
        """
        if (sent := self.decider.bookings.sent(uid)) is None:
            return False
        is_elsewhere = sent.state is State.REVIEWED and sent.node != binding.node
        return sent.state is State.SETTLING or (is_elsewhere and not dry_run)

    def _end(self, uid: str, binding: Binding) -> None:
        """End a review whose Binding is late."""
        if self._open.get(uid) is binding:
            self.decider.bookings.report(uid, Event.END_REVIEW)


class _Metadata(msgspec.Struct, rename="camel", frozen=True):
    name: str = ""
    uid: str = ""
    resource_version: str = ""
    annotations: dict[str, str] | None = None
    labels: dict[str, str] | None = None


class _Target(msgspec.Struct, frozen=True):
    kind: str = ""
    name: str = ""


class _BindingWire(msgspec.Struct, frozen=True):
    metadata: _Metadata = _Metadata()
    target: _Target = _Target()

    def to_binding(self, review: Review) -> Binding:
        return Binding(
            name=self.metadata.name or review.name,
            namespace=review.namespace,
            node=self.target.name,
            uid=self.metadata.uid,
            version=self.metadata.resource_version,
            annotations=self.metadata.annotations or {},
            labels=self.metadata.labels or {},
        )


def _check_names(binding: Binding) -> None:
    """Raise BadReview for a name that no object can have; it would fill logs and refusals."""
    for where, text in (
        ("metadata.name", binding.name),
        ("metadata.uid", binding.uid),
        ("metadata.resourceVersion", binding.version),
        ("target.name", binding.node),
    ):
        if len(text) > LONGEST_NAME:
            raise BadReview(f"request.object.{where}: expected at most {LONGEST_NAME} characters, found {quoted(text)}")


def _only_for(uid: str, wire: _BindingWire) -> ReviewResult:
    """Allow a Binding for the pod with this UID, and for no later one of its name."""
    return ALLOWED if wire.metadata.uid else ReviewResult(patch=(Operation("add", "/metadata/uid", uid),))


def _patch(wire: _BindingWire, given: Given) -> Patch:
    """Return the operations after which a Binding has this metadata, none if it has it already."""
    before = wire.metadata
    wanted: Mapping[str, tuple[object, object]] = {
        "annotations": (before.annotations or {}, given.annotations),
        "labels": (before.labels or {}, given.labels),
        "uid": (before.uid, given.uid),
        "resourceVersion": (before.resource_version, given.version),
    }
    return tuple(
        Operation("add", f"/metadata/{name}", value) for name, (present, value) in wanted.items() if present != value
    )
