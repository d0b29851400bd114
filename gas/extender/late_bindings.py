"""Find out what became of Bindings, and end those that may be stored long after their sender gave them up or died.

A network or a webhook may delay a Binding. It demands the version in which its pod was read. So once a waiting pod has
another version, no earlier Binding of it can be stored, neither the extender's own nor a reviewed one.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, field

from gas.extender.bookings import Bookings, Event, Move, State
from gas.extender.hooks import Observer
from gas.extender.pods import Pods
from gas.objects.stored import Pod
from gas.values.errors import GasError

logger = logging.getLogger(__name__)

RETRY_PAUSE = 1.0  # seconds after a request that failed

LATEST_WRITE = 60.0
"""Seconds after its arrival in which a Binding may be stored: the API server ends a request to create after 34 s."""

MOST_WRITES = 32  # pods whose versions are changed at the same time

GetPod = Callable[[str, str], Awaitable[Pod | None]]
"""(namespace, name) -> the pod as the API server has it now, None if it does not exist. Raises GasError."""

ListPods = Callable[[], Awaitable[list[Pod]]]  # () -> GPU pods as they are now. Raises GasError.

ChangeVersion = Callable[[str, str, str], Awaitable[bool]]
"""(namespace, name, UID) -> whether the pod still exists. Changes the pod's resource version. Raises GasError."""


@dataclass(frozen=True, slots=True)
class PodRequests:
    get: GetPod
    change_version: ChangeVersion
    clock: Callable[[], float] = time.monotonic


async def settled_pod(requests: PodRequests, namespace: str, name: str, uid: str, *, retry_pause: float) -> Pod | None:
    """Return a pod that is bound, or that no earlier Binding can bind any more; None if it is gone or has ended.

    Changes the version of a pod that waits, or lets `LATEST_WRITE` pass if the API server refuses that.
    """
    until = requests.clock() + LATEST_WRITE
    noted = ""
    while True:
        try:
            pod = await requests.get(namespace, name)
            if pod is None or pod.uid != uid or pod.is_over:
                return None
            if pod.node_name or requests.clock() >= until:
                return pod
            await requests.change_version(namespace, name, uid)
            until = requests.clock()  # no earlier Binding can be stored any more
            continue
        except GasError as error:
            if str(error) != noted:
                noted, extra = str(error), {"pod": f"{namespace}/{name}"}
                logger.warning("it is not known yet whether a pod was bound: %s", error, extra=extra)
        except Exception:
            logger.exception("a pod that may be bound could not be read", extra={"pod": f"{namespace}/{name}"})
        await asyncio.sleep(retry_pause)


@dataclass(eq=False)
class Settler(Observer):
    """Find out whether the pods in doubt are bound: one question for each pod at a time."""

    bookings: Bookings
    pods: Pods
    requests: PodRequests
    retry_pause: float = RETRY_PAUSE
    _questions: dict[str, asyncio.Task[None]] = field(init=False, default_factory=dict)

    def moved(self, move: Move) -> None:
        is_in_doubt = move.after is State.SETTLING or move.event is Event.VANISHED
        if is_in_doubt and move.uid not in self._questions:
            namespace, _, name = move.pod.partition("/")
            settling = self._settle(move.uid, namespace, name)
            self._questions[move.uid] = asyncio.get_running_loop().create_task(settling)

    async def settled(self, uid: str) -> None:
        """End the review of a pod, if one is open, and return once it is known whether the pod is bound."""
        self.bookings.report(uid, Event.END_REVIEW)
        while (question := self._questions.get(uid)) is not None:
            await asyncio.wait([question])

    async def settled_on(self, nodes: Collection[str]) -> None:
        """End the reviews for these nodes, and return once it is known whether their pods are bound."""
        in_doubt = self.bookings.in_doubt().items()
        await asyncio.gather(*(self.settled(uid) for uid, node in list(in_doubt) if node in nodes))

    async def all_settled(self) -> None:
        """End all reviews, and return once nothing is in doubt. The caller limits the wait."""
        while in_doubt := {*self.bookings.in_doubt(), *self._questions}:
            await asyncio.gather(*map(self.settled, in_doubt))

    async def _settle(self, uid: str, namespace: str, name: str) -> None:
        pod = await settled_pod(self.requests, namespace, name, uid, retry_pause=self.retry_pause)
        del self._questions[uid]  # at once, since the pod may come into doubt again before this task has ended
        if pod is None:
            self.pods.forget(uid)
        elif not pod.node_name:
            self.bookings.report(uid, Event.FREE)
        else:
            self.pods.learn([pod])
            self.bookings.report(uid, Event.STORED)  # if its cards cannot be read, it keeps those reserved for it


async def end_earlier_bindings(
    list_waiting: ListPods,
    change_version: ChangeVersion,
    *,
    on_trouble: Callable[[str], None] = lambda _sentence: None,  # is called with each reason why that takes longer
    retry_pause: float = RETRY_PAUSE,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Change the versions of all waiting pods, or let `LATEST_WRITE` pass if the API server refuses to change some."""
    noted = ""

    def note(sentence: str) -> None:
        nonlocal noted
        if sentence != noted:
            noted = sentence
            logger.warning(sentence)
            on_trouble(sentence)

    until = clock() + LATEST_WRITE
    left: list[Pod] | None = None
    while clock() < until:
        try:
            if left is None:
                left = [pod for pod in await list_waiting() if not pod.node_name and not pod.is_over]
            if not (left := await _unchanged(left, change_version, note)):
                return
        except GasError as error:
            note(f"cannot list the pods that wait: {error}")
        except Exception:
            logger.exception("cannot process the pods that wait")
        await asyncio.sleep(retry_pause)


async def _unchanged(pods: list[Pod], change_version: ChangeVersion, note: Callable[[str], None]) -> list[Pod]:
    """Change the versions of pods, and return those for which that failed."""
    pending = iter(pods)
    left: list[tuple[Pod, GasError]] = []

    async def work() -> None:
        for pod in pending:
            try:
                await change_version(pod.metadata.namespace or "default", pod.metadata.name, pod.uid)
            except GasError as error:
                left.append((pod, error))

    async with asyncio.TaskGroup() as tasks:
        for _ in range(min(MOST_WRITES, len(pods))):
            tasks.create_task(work())
    if left:
        wait = f"so nothing is decided for up to {LATEST_WRITE:.0f} s"
        note(f"cannot end earlier bindings of {len(left)} pod(s), {wait}: {left[-1][1]}")
    return [pod for pod, _ in left]
