"""The bind verb: reserve cards, then write node and cards on the pod in one write."""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from gas.cluster.errors import ApiRefused, OutcomeUnknown
from gas.decision.names import CONTAINER_CARDS
from gas.extender.bookings import Event, State
from gas.extender.decider import CannotBind, Decider
from gas.extender.filter import PendingBinds
from gas.extender.late_bindings import Settler
from gas.extender.metrics import Metrics
from gas.extender.readiness import NotReady, check_ready
from gas.extender.wire import BadRequest, BindingArgs, Unreadable, decode_binding, encode_binding_result
from gas.objects.stored import Pod
from gas.values.errors import GasError
from gas.values.timing import SYSTEM_TIMING, Timing

logger = logging.getLogger(__name__)


BindPod = Callable[[Pod, str, Mapping[str, str]], Awaitable[None]]
"""(pod, node, annotations): bind the pod in this version. Raises ApiRefused if nothing was changed, OutcomeUnknown if
that is not known."""

MOST_CONFLICTS = 4  # Newer versions of a pod that one bind tries. A pod seldom changes between two of them.

SETTLE_PATIENCE = 2.0  # seconds for finding out that no earlier Binding comes for the pod


@dataclass(eq=False)
class Binder:
    """Decide bind requests: called with the body of a request, returns the body of the response.

    A Binding demands the version that was decided about; if the pod has a newer one, or placement refuses one that the
    watch has shown, the bind is decided again with the pod as it is now. What
    becomes of the cards by the result of the write is in `gas.extender.bookings`.
    """

    decider: Decider
    pending_binds: PendingBinds
    metrics: Metrics
    bind_pod: BindPod
    settler: Settler
    why_not_ready: Callable[[], str | None]  # returns the reason while this replica may not decide, else None
    settle_patience: float = SETTLE_PATIENCE
    timing: Timing = SYSTEM_TIMING
    _in_progress: dict[str, asyncio.Future[None]] = field(init=False, default_factory=dict)

    async def __call__(self, body: bytes) -> bytes:
        try:
            check_ready(self.why_not_ready)
            args = decode_binding(body)
            await self._bind_recorded(args)
        except (Unreadable, NotReady):
            raise
        except BadRequest as bad:
            return self._response("bad-request", str(bad))
        except CannotBind as cannot:
            if cannot.refusal is not None:
                self.metrics.refusals.labels(cannot.refusal.kind).inc()
            return self._response("error", str(cannot))
        except GasError as error:
            return self._response("error", str(error))
        return self._response("bound", "")

    async def finished(self) -> None:
        """Wait until no bind is in progress. The caller limits the wait."""
        while self._in_progress:
            await asyncio.wait(self._in_progress.values())

    def _response(self, result: str, error: str) -> bytes:
        self.metrics.requests.labels("bind", result).inc()
        return encode_binding_result(error=error)

    async def _bind_recorded(self, args: BindingArgs) -> None:
        begun, cards, error = self.timing.monotonic(), "", ""
        try:
            cards = await self._bind_once(args)
        except NotReady:
            raise
        except GasError as failed:
            error = str(failed)
            raise
        finally:
            if cards or error:
                self.decider.decisions.made(
                    args.pod_uid,
                    args.key,
                    args.node,
                    cards,
                    verb="bind",
                    seconds=self.timing.monotonic() - begun,
                    now=self.timing.seconds(),
                    error=error,
                )

    async def _bind_once(self, args: BindingArgs) -> str:
        """Bind a pod. Return its cards, empty if it needs none."""
        uid, bookings = args.pod_uid, self.decider.bookings
        if uid in self._in_progress:
            raise CannotBind(f"an earlier bind of pod {args.key} is still in progress")
        done = self._in_progress[uid] = asyncio.get_running_loop().create_future()
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self.settle_patience):
                    await self.settler.settled(uid)
            if bookings.state(uid) is State.SETTLING:
                raise CannotBind(f"it is not known yet whether an earlier bind of pod {args.key} succeeded")
            # The watch shows only pods that ask for cards.
            pod = self.decider.pods.waiting.get(uid) or await self._read(args)
            conflicts = 0
            while True:
                try:
                    return await self._bind_version(args, pod)
                except (ApiRefused, CannotBind) as refused:
                    conflicts += 1
                    may_be_old = (
                        refused.refusal is not None if isinstance(refused, CannotBind) else refused.status == 409
                    )
                    if not may_be_old or conflicts > MOST_CONFLICTS or bookings.state(uid) is State.SETTLING:
                        raise
                    decided, pod = pod, await self._read(args)
                    if pod.metadata.resource_version == decided.metadata.resource_version:
                        raise  # the version is not the reason
        finally:
            self.pending_binds.came(uid)
            del self._in_progress[uid]
            done.set_result(None)

    async def _read(self, args: BindingArgs) -> Pod:
        """Return the pod as the API server has it now. Raises CannotBind if it does not exist."""
        if (pod := await self.settler.requests.get(args.pod_namespace, args.pod_name)) is None:
            raise CannotBind(f"pod {args.key} no longer exists")
        return pod

    async def _bind_version(self, args: BindingArgs, pod: Pod) -> str:
        """Bind the pod in the version given, if this replica still decides. Return its cards."""
        check_ready(self.why_not_ready)
        annotations = self.decider.reserve(args, pod, now=self.timing.seconds())
        self.pending_binds.came(args.pod_uid)
        outcome = Event.NO_RESPONSE  # of a write that is cancelled, or fails by a bug: it may have gone through
        try:
            await self.bind_pod(pod, args.node, annotations)
            outcome = Event.STORED
        except OutcomeUnknown:
            raise
        except GasError:
            outcome = Event.REFUSED
            raise
        finally:
            self.decider.bookings.report(args.pod_uid, outcome, args.key)
        self.decider.refusals.pop(args.pod_uid, None)
        if cards := annotations.get(CONTAINER_CARDS):
            logger.info("bound", extra={"pod": args.key, "node": args.node, "cards": cards})
        return annotations.get(CONTAINER_CARDS, "")
