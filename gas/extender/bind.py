"""The bind verb: choose cards from the books as they are now, reserve them, write node and cards in one write."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from gas.cluster.errors import OutcomeUnknown
from gas.decision.annotations import choice_annotations, stale_annotations
from gas.decision.names import CONTAINER_CARDS
from gas.errors import GasError
from gas.extender.expected_binds import ExpectedBinds
from gas.extender.metrics import Metrics
from gas.extender.pods import Pods
from gas.extender.readiness import NotReady
from gas.extender.refusals import Refusals
from gas.extender.verdicts import Verdicts
from gas.extender.wire import BadRequest, BindingArgs, Unreadable, decode_binding, encode_binding_result
from gas.intel.need import read_need
from gas.ledger import Ledger
from gas.objects import Pod
from gas.placement.choice import footprint
from gas.placement.refusal import Refusal, UnknownNode
from gas.vocabulary import NeedOptions

logger = logging.getLogger(__name__)

SETTLE_PAUSE = 2.0
"""Seconds between two looks at a pod of which nobody knows whether it was bound. A write that was sent may still be
on its way at the first look; not at the second, since the API server drops what nobody waits for any more."""


class CannotBind(GasError):
    """The pod is not bound and nothing was changed; the sentence goes into the answer's ``Error``."""


class BindPod(Protocol):
    """Writes a Binding. Raises ApiRefused when nothing was changed, OutcomeUnknown when nobody knows."""

    def __call__(
        self, *, namespace: str, name: str, uid: str, node: str, annotations: Mapping[str, str]
    ) -> Awaitable[None]: ...


GetPod = Callable[[str, str], Awaitable[Pod | None]]
"""(namespace, name) -> the pod as the API server has it now, or None."""


@dataclass(frozen=True, slots=True)
class Decision:
    """What is about to be written on a pod."""

    node: str
    annotations: Mapping[str, str]
    books: bool


class Binder:
    """Called with the body of a request, returns the body of the response.

    Raises Unreadable if the body is not JSON, and NotReady while this replica may not decide.

    A reservation lives until the watch shows the bound pod. When the write failed it is taken back; when nobody knows
    whether it did, it stays until the pod itself has been looked at.

    write_timeout  seconds after which a write is given up and looked at instead; None leaves that to ``bind_pod``
    on_release     is called with the node's name when a reservation was taken back
    """

    def __init__(
        self,
        verdicts: Verdicts,
        ledger: Ledger,
        pods: Pods,
        refusals: Refusals,
        expected_binds: ExpectedBinds,
        *,
        metrics: Metrics,
        allowlist: bool,
        denylist: bool,
        bind_pod: BindPod,
        get_pod: GetPod,
        why_not_ready: Callable[[], str | None],
        on_release: Callable[[str], None],
        write_timeout: float | None = None,
        settle_pause: float = SETTLE_PAUSE,
    ) -> None:
        self._verdicts = verdicts
        self._ledger = ledger
        self._pods = pods
        self._refusals = refusals
        self._expected_binds = expected_binds
        self._metrics = metrics
        self._allowlist = allowlist
        self._denylist = denylist
        self._bind_pod = bind_pod
        self._get_pod = get_pod
        self._why_not_ready = why_not_ready
        self._on_release = on_release
        self._write_timeout = write_timeout
        self._settle_pause = settle_pause
        self._in_hand: dict[str, asyncio.Future[None]] = {}
        self._vanished_in_hand: set[str] = set()
        self._unsettled: dict[str, asyncio.Task[None]] = {}
        pods.on_vanished = self._pod_vanished

    async def __call__(self, body: bytes) -> bytes:
        try:
            self._check_ready()
            args = decode_binding(body)
            await self._bind_once(args)
        except (Unreadable, NotReady):
            raise
        except BadRequest as bad:
            return self._answer("bad-request", str(bad))
        except GasError as error:
            return self._answer("error", str(error))
        return self._answer("bound", "")

    async def settle(self) -> None:
        """Wait until no bind is in hand or unsettled any more; for the end of the program, which bounds it."""
        while under_way := [*self._in_hand.values(), *self._unsettled.values()]:
            await asyncio.wait(under_way)

    def _answer(self, result: str, error: str) -> bytes:
        self._metrics.requests.labels("bind", result).inc()
        return encode_binding_result(error=error)

    def _check_ready(self) -> None:
        if (why_not := self._why_not_ready()) is not None:
            raise NotReady(why_not)

    async def _bind_once(self, args: BindingArgs) -> None:
        if args.pod_uid in self._in_hand or args.pod_uid in self._unsettled:
            raise CannotBind(f"an earlier bind of pod {args.key} is still in hand")
        done = self._in_hand[args.pod_uid] = asyncio.get_running_loop().create_future()
        try:
            try:
                pod = await self._find(args)
                self._check_ready()  # another may lead by now
                decision = self._decide(args, pod)
            finally:
                self._expected_binds.settled(args.pod_uid)
            await self._write(args, decision)
        finally:
            del self._in_hand[args.pod_uid]
            self._vanished_in_hand.discard(args.pod_uid)
            done.set_result(None)

    async def _find(self, args: BindingArgs) -> Pod:
        """The pod as the watch shows it, else as the API server has it: pods without GPUs are not kept here."""
        if (booked := self._ledger.booking(args.pod_uid)) is not None:
            raise CannotBind(f"pod {args.key} has its cards on node {booked.node} already and keeps them")
        pod = self._pods.waiting.get(args.pod_uid) or await self._get_pod(args.pod_namespace, args.pod_name)
        if pod is None:
            raise CannotBind(f"pod {args.key} is gone")
        if pod.uid != args.pod_uid:
            raise CannotBind(
                f"pod {args.key} is another pod of that name: its UID is {pod.uid}, asked was {args.pod_uid}"
            )
        if pod.node_name:
            raise CannotBind(f"pod {args.key} is bound to node {pod.node_name} already")
        if pod.is_over:
            raise CannotBind(f"pod {args.key} has ended already")
        return pod

    def _decide(self, args: BindingArgs, pod: Pod) -> Decision:
        """Choose and reserve, without a pause in between."""
        need = read_need(pod, NeedOptions(allowlist=self._allowlist, denylist=self._denylist))
        answer = self._verdicts.choose(need, args.node)
        if isinstance(answer, Refusal):
            if isinstance(answer, UnknownNode):
                raise CannotBind(f"node {args.node} is not known, so pod {args.key} cannot be bound to it")
            self._metrics.refusals.labels(answer.kind).inc()
            raise CannotBind(f"node {args.node} has no room for pod {args.key} any more: {answer}")
        fresh = choice_annotations(need, answer, timestamp_ns=time.time_ns())
        if need.wants_cards:
            self._ledger.reserve(args.pod_uid, args.key, args.node, footprint(need, answer))
        annotations = {**stale_annotations(pod, fresh), **fresh}
        return Decision(args.node, annotations, books=need.wants_cards)

    async def _write(self, args: BindingArgs, decision: Decision) -> None:
        try:
            async with asyncio.timeout(self._write_timeout):
                await self._bind_pod(
                    namespace=args.pod_namespace,
                    name=args.pod_name,
                    uid=args.pod_uid,
                    node=decision.node,
                    annotations=decision.annotations,
                )
        except TimeoutError:
            self._start_settling(args.pod_uid, args.pod_namespace, args.pod_name)
            raise CannotBind(f"the API server did not answer in time whether pod {args.key} is bound") from None
        except OutcomeUnknown:
            self._start_settling(args.pod_uid, args.pod_namespace, args.pod_name)
            raise
        except GasError:
            self._cancel(args.pod_uid)
            raise
        except BaseException:  # cancelled, or a bug: the write may have gone through
            self._start_settling(args.pod_uid, args.pod_namespace, args.pod_name)
            raise
        self._refusals.drop(args.pod_uid)
        if args.pod_uid in self._vanished_in_hand:
            self._start_settling(args.pod_uid, args.pod_namespace, args.pod_name)
        if decision.books:
            logger.info(
                "bound",
                extra={
                    "pod": args.key,
                    "node": decision.node,
                    "cards": decision.annotations[CONTAINER_CARDS],
                },
            )

    def _pod_vanished(self, uid: str, pod: str) -> None:
        if uid in self._in_hand:
            self._vanished_in_hand.add(uid)
        else:
            namespace, _, name = pod.partition("/")
            self._start_settling(uid, namespace, name)

    def _start_settling(self, uid: str, namespace: str, name: str) -> None:
        if uid in self._unsettled:
            return
        task = asyncio.get_running_loop().create_task(self._settle(uid, namespace, name))
        self._unsettled[uid] = task
        task.add_done_callback(lambda _task: self._unsettled.pop(uid, None))

    async def _settle(self, uid: str, namespace: str, name: str) -> None:
        """Look at the pod itself until the API server says whether it is bound."""
        seen_waiting = False
        while True:
            try:
                pod = await self._get_pod(namespace, name)
                if pod is None or pod.uid != uid or pod.is_over:
                    self._cancel(uid)
                    return
                if pod.node_name:
                    self._pods.changed(pod)
                    return
                if seen_waiting:
                    self._cancel(uid)
                    return
                seen_waiting = True
            except GasError as error:
                logger.warning(
                    "cannot tell yet whether a pod was bound: %s", error, extra={"pod": f"{namespace}/{name}"}
                )
            except Exception:
                logger.exception("a pod could not be looked at", extra={"pod": f"{namespace}/{name}"})
            await asyncio.sleep(self._settle_pause)

    def _cancel(self, uid: str) -> None:
        booking = self._ledger.booking(uid)
        if booking is not None and self._ledger.cancel(uid):
            self._on_release(booking.node)
