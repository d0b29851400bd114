"""The webhook of Bindings: give cards to the Bindings of other clients before the API server writes them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import KW_ONLY, dataclass, field

import msgspec

from gas.decision.names import CONTAINER_CARDS
from gas.extender.admission.review import ALLOWED, CREATE, BadReview, Review, ReviewResult, decode_object
from gas.extender.binding_reviews.bindings import Binding, Given, ReviewedBindings, Source
from gas.extender.binding_reviews.part import REVIEWED_BINDINGS
from gas.extender.binding_reviews.unbound_pods import UnboundPod, UnboundPods
from gas.extender.decider import CannotBind, Decider
from gas.extender.filter import PendingBinds
from gas.extender.late_bindings import PodRequests, settled_pod
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
    settle_pause: float = 1.0  # between two attempts to read a pod or to change its version


REVIEW_TIMES = ReviewTimes()

MOST_READS = 32  # pods that the watch has shown and that are read at the same time, and as many that it has not shown


@dataclass(slots=True)
class _Following:
    """A review whose Binding is waited for."""

    task: asyncio.Task[None] = field(init=False)
    hurry: asyncio.Event = field(default_factory=asyncio.Event)  # ends the wait
    is_closing: bool = False  # whether the wait is over and the pod is being read


@dataclass(eq=False)
class BindReviews:
    """Review Bindings: called with the review of one, returns the result. Raises BadReview and NotReady.

    A Binding of a pod that asks for no cards passes at once, if the watch has shown the pod. If it has not, the pod is
    read. A Binding of a GPU pod is given cards, or it is refused. If the Binding is not written within a moment, the
    pod's version is changed, so that it can no longer be written, and the cards are cancelled.
    """

    decider: Decider
    pending_binds: PendingBinds
    metrics: Metrics
    _: KW_ONLY
    requests: PodRequests
    why_not_ready: Callable[[], str | None]
    times: ReviewTimes = REVIEW_TIMES
    timing: Timing = SYSTEM_TIMING

    def __post_init__(self) -> None:
        self.unbound = UnboundPods(self.decider.asks_for_cards)
        self._bindings = REVIEWED_BINDINGS.counter(self.metrics.registry)
        self._clock = self.timing.monotonic
        self._reviewed = ReviewedBindings(self.decider)
        self._following: dict[str, _Following] = {}
        self._repeated: set[str] = set()
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
                self.pending_binds.settled(known.uid)
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

    def is_open(self, uid: str) -> bool:
        return uid in self._following

    def hurry(self, uid: str) -> None:
        if (following := self._following.get(uid)) is not None:
            following.hurry.set()

    async def settled(self, uid: str) -> None:
        while (following := self._following.get(uid)) is not None:
            following.hurry.set()
            await asyncio.wait([following.task])

    def is_repeated(self, uid: str) -> bool:
        return uid in self._repeated

    def forget_repeated(self, uid: str) -> None:
        self._repeated.discard(uid)

    def open_nodes(self) -> frozenset[str]:
        opened = (self._reviewed.opened(uid) for uid in list(self._following))
        return frozenset(review.binding.node for review in opened if review is not None)

    async def settle_on(self, nodes: Collection[str], *, patience: float) -> None:
        opened = {uid: self._reviewed.opened(uid) for uid in list(self._following)}
        settling = [self.settled(uid) for uid, review in opened.items() if review and review.binding.node in nodes]
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(patience):
                await asyncio.gather(*settling)

    async def finish(self) -> None:
        """Settle all reviews. The caller limits the wait."""
        while self._following:
            await asyncio.gather(*(self.settled(uid) for uid in list(self._following)))

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
            self.pending_binds.settled(given.uid)
        self._count(given.source.value)
        if given.source is Source.CARRIED and not review.dry_run:
            self._repeated.add(given.uid)
        if given.source is Source.CHOSEN:
            self._follow(given.uid, binding)
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
                await self.settled(uid)
            if (pod := self._unchanged(uid, binding)) is None:
                self._reviewed.check_patience(uid, binding.key, clock=self._clock())
                async with self._reads_of_known if known is not None else self._reads_of_unknown:
                    pod = await self.requests.get(binding.namespace, binding.name)
            check_ready(self.why_not_ready)  # another replica may lead by now
            uid = pod.uid if pod is not None else uid
            if not self._must_settle(uid, binding, dry_run=dry_run):
                return pod

    def _must_settle(self, uid: str, binding: Binding, *, dry_run: bool) -> bool:
        """Return whether an earlier review of the pod must end before this one is decided; a dry run ends none."""
        if (following := self._following.get(uid)) is None:
            return False
        opened = self._reviewed.opened(uid)
        return following.is_closing or opened is None or (opened.binding.node != binding.node and not dry_run)

    def _unchanged(self, uid: str, binding: Binding) -> Pod | None:
        """Return the pod as the watch shows it, if an open review has read it in this very version."""
        pod, opened = self.decider.pods.waiting.get(uid), self._reviewed.opened(uid)
        if pod is None or opened is None or opened.binding.node != binding.node:
            return None
        return pod if pod.metadata.resource_version in opened.versions else None

    def _follow(self, uid: str, binding: Binding) -> None:
        following = self._following[uid] = _Following()
        following.task = asyncio.get_running_loop().create_task(self._settle(uid, binding, following))
        following.task.add_done_callback(lambda _task: self._following.pop(uid, None))

    async def _settle(self, uid: str, binding: Binding, following: _Following) -> None:
        """Wait a moment for the Binding, then read the pod until it is known whether it was bound."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.times.binding):
                await following.hurry.wait()
        following.is_closing = True
        is_unchanged = self._unchanged(uid, binding) is not None  # else another client has changed the pod
        pod = None
        if self._reviewed.opened(uid) is not None:
            requests, pause = self.requests, self.times.settle_pause
            pod = await settled_pod(requests, binding.namespace, binding.name, uid, retry_pause=pause)
        if not self._reviewed.settle(uid, pod, clock=self._clock(), counts=is_unchanged):
            self._count("settled")
            return
        self._count("expired")
        logger.warning(
            "a binding that was given cards did not follow; they are free again",
            extra={"pod": binding.key, "node": binding.node},
        )


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
