"""Serve the filter verb: from a request's body to a decision and a response."""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from gas.daemon.logs import VERBOSE
from gas.extender.bookings import Event, Move
from gas.extender.decider import Decider
from gas.extender.decisions import PodRefusal
from gas.extender.hooks import FilterDecision, Observer
from gas.extender.metrics import Metrics
from gas.extender.readiness import check_ready
from gas.extender.verdicts import Turns
from gas.extender.wire import BadRequest, FilterArgs, decode_filter, encode_filter_result
from gas.objects.stored import Pod
from gas.placement.refusal import SearchLimitHit
from gas.values.timing import SYSTEM_TIMING, Timing

T = TypeVar("T")

logger = logging.getLogger(__name__)

PATIENCE = 0.25  # seconds after a filter's response for which its bind is waited for; it takes a few milliseconds

MOST_MISSED = 3
"""Binds that may fail to come one after the other. After that no filter waits, until a bind comes again: either this
extender does not bind, or something later delays every pod, and waiting would delay it even more."""


class PendingBinds(Observer):
    """Binds of pods that passed a filter, which should come any moment. Books nothing.

    kube-scheduler sends the bind of a pod concurrently with the filter of the next one, and often later, because the
    bind may need a connection of its own. If both were decided from the present bookings, both pods would be promised
    the same card, and the second bind would be refused; with ``ignorable: true`` kube-scheduler then binds the pod
    itself, without cards. So a filter waits a moment for the binds before it. A pod that must wait, say for a volume,
    is nominated in place of its bind: from then on its cards are promised to it.
    """

    def __init__(self, *, patience: float = PATIENCE, clock: Callable[[], float] = time.monotonic) -> None:
        self._patience = patience
        self._clock = clock
        self._until: dict[str, tuple[float, str]] = {}
        self._missed = 0
        self._change = asyncio.Event()

    def passed(self, uid: str, together: str = "") -> None:
        """Expect a bind of this pod; ``together`` is a name of the pods whose binds begin only with its own."""
        self._until[uid] = self._clock() + self._patience, together or uid

    def came(self, uid: str) -> None:
        """Stop waiting for a pod: its bind came, and its cards are reserved or refused, or it was nominated."""
        self._missed = 0
        if self._until.pop(uid, None) is not None:
            self._change.set()

    def moved(self, move: Move) -> None:
        if move.event is Event.NOMINATED:
            self.came(move.uid)

    async def wait(self, together: str) -> None:
        """Wait until the bind of every pod that is not bound together with the asked one has come or is late."""
        while (left := self._left(together)) > 0:
            self._change.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._change.wait(), left)

    def _left(self, together: str) -> float:
        """Return the seconds that are worth waiting; forget pods whose bind is late."""
        now = self._clock()
        for late in [other for other, (until, _) in self._until.items() if until <= now]:
            del self._until[late]
            self._missed += 1
        if self._missed >= MOST_MISSED:
            return 0.0
        return max((until - now for until, name in self._until.values() if name != together), default=0.0)


@dataclass(frozen=True, slots=True, eq=False)
class Filter:
    """Decide filter requests: called with the body of a request, returns the body of the response.

    Raises Unreadable if the body is not JSON, and NotReady while this replica may not decide.
    """

    decider: Decider
    pending_binds: PendingBinds
    metrics: Metrics
    why_not_ready: Callable[[], str | None]  # returns the reason while this replica may not decide, else None
    on_refused: Callable[[Pod, PodRefusal], None]  # is called with a pod that no node has room for
    timing: Timing = SYSTEM_TIMING

    async def __call__(self, body: bytes) -> bytes:
        check_ready(self.why_not_ready)
        try:
            args = decode_filter(body)
        except BadRequest as bad:
            self.metrics.requests.labels("filter", "bad-request").inc()
            return encode_filter_result(error=str(bad))
        together = self.decider.together(args.pod)
        await self.pending_binds.wait(together)
        begun, known = self.timing.monotonic(), self.decider.refusals.get(args.pod.uid)
        decision = await in_turns(self.decider.filter(args, now=self.timing.seconds()))
        if decision.gets_cards and args.pod.uid:  # a question made by hand has no UID, and no bind follows it
            if not self._is_promised(args.pod.uid, decision.passing):
                self.pending_binds.passed(args.pod.uid, together)
            self.decider.decisions.filtered(args.pod.uid, decision.passing, self.timing.monotonic() - begun)
        self._report(args.pod, decision, known)
        return _response(args, decision)

    def _is_promised(self, uid: str, passing: Sequence[str]) -> bool:
        """Return whether a pod was nominated for the only node that passes, as after a bind that failed.

        kube-scheduler does not nominate it again, so its next bind may come much later.
        """
        return len(passing) == 1 and uid in self.decider.bookings.nominated(passing[0])

    def _report(self, pod: Pod, decision: FilterDecision, known: PodRefusal | None) -> None:
        logger.debug("%d nodes pass, %d do not", len(decision.passing), len(decision.failed), extra={"pod": pod.key})
        self.metrics.requests.labels("filter", "fits" if decision.passing else "refused").inc()
        for kind, count in decision.refusals.items():
            self.metrics.refusals.labels(kind).inc(count)
        if limits := decision.refusals.get(SearchLimitHit.kind):
            self.metrics.search_limits.inc(limits)
        if (refusal := decision.refusal) is not None:
            is_news = known is None or known.reasons.keys() != refusal.reasons.keys()
            level = logging.INFO if refusal.is_final and is_news else VERBOSE  # the scheduler tries the pod again
            logger.log(level, "no node has room: %s", refusal.summary(), extra={"pod": pod.key})
            self.on_refused(pod, refusal)


def _response(args: FilterArgs, decision: FilterDecision) -> bytes:
    failed = dict(decision.failed)
    unresolvable = {name: failed.pop(name) for name in decision.hopeless}
    if args.nodes is None:
        return encode_filter_result(node_names=decision.passing, failed=failed, unresolvable=unresolvable)
    passing = set(decision.passing)
    kept = [sent for sent in args.nodes if sent.node.name in passing]
    return encode_filter_result(node_names=decision.passing, nodes=kept, failed=failed, unresolvable=unresolvable)


async def in_turns(work: Turns[T]) -> T:
    """Return the result of work, letting other tasks run whenever it yields."""
    while True:
        try:
            next(work)
        except StopIteration as stop:
            result: T = stop.value
            return result
        await asyncio.sleep(0)
