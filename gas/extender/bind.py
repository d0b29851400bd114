"""The bind verb: reserve cards, then write node and cards on the pod in one write."""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from gas.cluster.errors import ApiRefused, OutcomeUnknown
from gas.decision.names import CONTAINER_CARDS
from gas.extender.decider import CannotBind, Decider
from gas.extender.filter import PendingBinds
from gas.extender.hooks import Observer
from gas.extender.late_bindings import PodRequests, settled_pod
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


SETTLE_PAUSE = 2.0  # seconds between two attempts to find out whether a pod is bound
REVIEW_PATIENCE = 2.0  # seconds for finding out that no Binding of another client comes for the pod


@dataclass(eq=False)
class Binder(Observer):
    """Decide bind requests: called with the body of a request, returns the body of the response.

    A reservation lives until the watch shows the bound pod. If the write failed, the reservation is cancelled. If the
    outcome is not known, it stays until the pod is seen bound, or unbound in a version that no Binding demands. A
    Binding demands the version that was decided about; if the pod has a newer one, the bind is decided again.
    """

    decider: Decider
    pending_binds: PendingBinds
    metrics: Metrics
    bind_pod: BindPod
    requests: PodRequests
    why_not_ready: Callable[[], str | None]  # returns the reason while this replica may not decide, else None
    settle_pause: float = SETTLE_PAUSE
    review_patience: float = REVIEW_PATIENCE
    timing: Timing = SYSTEM_TIMING
    _in_progress: dict[str, asyncio.Future[None]] = field(init=False, default_factory=dict)
    _vanished_in_progress: set[str] = field(init=False, default_factory=set)
    _unsettled: dict[str, asyncio.Task[None]] = field(init=False, default_factory=dict)

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

    def reservation_vanished(self, uid: str, pod: str) -> None:
        """Find out whether the pod (``namespace/name``) is bound, once no bind of it is in progress."""
        if in_review := [each for each in self.decider.hooks.reviews if each.is_open(uid)]:
            for each in in_review:
                each.hurry(uid)
        elif uid in self._in_progress:
            self._vanished_in_progress.add(uid)
        else:
            namespace, _, name = pod.partition("/")
            self._start_settling(uid, namespace, name)

    async def settle(self) -> None:
        """Wait until no bind is in progress or unsettled. The caller limits the wait."""
        while under_way := [*self._in_progress.values(), *self._unsettled.values()]:
            await asyncio.wait(under_way)

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
        if args.pod_uid in self._in_progress or args.pod_uid in self._unsettled:
            raise CannotBind(f"an earlier bind of pod {args.key} is still in progress")
        done = self._in_progress[args.pod_uid] = asyncio.get_running_loop().create_future()
        try:
            await self._settle_review(args.pod_uid)
            # The watch shows only pods that ask for cards.
            pod = self.decider.pods.waiting.get(args.pod_uid) or await self._read(args)
            conflicts = 0
            while True:
                try:
                    return await self._bind_version(args, pod)
                except ApiRefused as refused:
                    conflicts += 1
                    if refused.status != 409 or conflicts > MOST_CONFLICTS or args.pod_uid in self._unsettled:
                        raise
                    decided, pod = pod, await self._read(args)
                    if pod.metadata.resource_version == decided.metadata.resource_version:
                        raise  # the version is not the reason
        finally:
            self.pending_binds.settled(args.pod_uid)
            del self._in_progress[args.pod_uid]
            self._vanished_in_progress.discard(args.pod_uid)
            done.set_result(None)

    async def _read(self, args: BindingArgs) -> Pod:
        """Return the pod as the API server has it now. Raises CannotBind if it does not exist."""
        if (pod := await self.requests.get(args.pod_namespace, args.pod_name)) is None:
            raise CannotBind(f"pod {args.key} no longer exists")
        return pod

    async def _bind_version(self, args: BindingArgs, pod: Pod) -> str:
        """Bind the pod in the version given, if this replica still decides. Return its cards."""
        check_ready(self.why_not_ready)
        annotations = self.decider.reserve(args, pod, now=self.timing.seconds())
        self.pending_binds.settled(args.pod_uid)
        self.decider.writing[args.pod_uid] = annotations
        try:
            await self._write(args, pod, annotations)
        finally:
            del self.decider.writing[args.pod_uid]
        return annotations.get(CONTAINER_CARDS, "")

    async def _settle_review(self, uid: str) -> None:
        """Cancel the cards that a Binding of another client was given for this pod, unless it is bound with them."""
        for each in self.decider.hooks.reviews:
            if each.is_open(uid):
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self.review_patience):
                        await each.settled(uid)

    async def _write(self, args: BindingArgs, pod: Pod, annotations: Mapping[str, str]) -> None:
        try:
            await self.bind_pod(pod, args.node, annotations)
        except OutcomeUnknown:
            self._start_settling(args.pod_uid, args.pod_namespace, args.pod_name)
            raise
        except GasError:
            if any(each.is_repeated(args.pod_uid) for each in self.decider.hooks.reviews):
                self._start_settling(args.pod_uid, args.pod_namespace, args.pod_name)
            else:
                self.decider.cancel(args.pod_uid)
            raise
        except BaseException:  # cancelled, or a bug: the write may have gone through
            self._start_settling(args.pod_uid, args.pod_namespace, args.pod_name)
            raise
        self._forget_repeated(args.pod_uid)
        self.decider.refusals.pop(args.pod_uid, None)
        if args.pod_uid in self._vanished_in_progress:
            self._start_settling(args.pod_uid, args.pod_namespace, args.pod_name)
        if cards := annotations.get(CONTAINER_CARDS):
            logger.info("bound", extra={"pod": args.key, "node": args.node, "cards": cards})

    def _forget_repeated(self, uid: str) -> None:
        for each in self.decider.hooks.reviews:
            each.forget_repeated(uid)

    def _start_settling(self, uid: str, namespace: str, name: str) -> None:
        if uid in self._unsettled:
            return
        task = asyncio.get_running_loop().create_task(self._settle(uid, namespace, name))
        self._unsettled[uid] = task
        task.add_done_callback(lambda _task: self._unsettled.pop(uid, None))

    async def _settle(self, uid: str, namespace: str, name: str) -> None:
        """Find out whether a pod is bound, and hold or cancel its cards."""
        pod = await settled_pod(self.requests, namespace, name, uid, retry_pause=self.settle_pause)
        if pod is not None and pod.node_name:
            self.decider.pods.learn([pod])
        else:
            self.decider.cancel(uid)
        if pod is None:
            self.decider.pods.forget(uid)
        self._forget_repeated(uid)
