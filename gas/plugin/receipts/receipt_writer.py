"""Compare what kubelet really gave with the decisions, and report every difference."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from typing import NamedTuple

from gas.cards import Card
from gas.cluster.errors import Forbidden
from gas.errors import GasError
from gas.plugin.kubelet.pod_resources import ContainerIds, Listing, PodResources
from gas.plugin.matching.gpu_pods import GpuPod, GpuPods
from gas.plugin.matching.issued_environments import IssuedEnvironments
from gas.plugin.matching.matcher import SETTLED, Matcher
from gas.plugin.receipts.receipts import Receipt, given_cards, receipt
from gas.vocabulary import Vocabularies

logger = logging.getLogger(__name__)

INTERVAL = 3.0
"""Seconds between two comparisons while kubelet allocates nothing."""

QUIET = 1.0
"""Seconds without a call of kubelet before it is asked for its list: see `gas.plugin.matching.matcher.Matcher`."""

FORBIDDEN_PAUSE = 30.0
"""Seconds between two attempts while an RBAC rule is missing."""

WRITE_AGAIN = 10.0
"""Seconds after which a receipt is written again if the watch has not shown it on the pod."""

PatchPod = Callable[[str, str, str, Mapping[str, str | None]], Awaitable[bool]]
"""Writes annotations on the pod of this namespace, name and UID; returns False if it is gone."""


class _Compared(NamedTuple):
    """The arguments of `gas.plugin.receipts.receipts.receipt`: equal arguments give equal receipts."""

    pod: GpuPod
    listed: ContainerIds
    init_containers: Mapping[int, frozenset[Card]]

    def is_same(self, other: _Compared | None) -> bool:
        return (
            other is not None
            and self.pod is other.pod
            and self.listed == other.listed
            and self.init_containers == other.init_containers
        )


class ReceiptWriter:
    """Asks kubelet every few seconds, and soon after each Allocate, who has what; corrects matching; writes receipts.

    environments          the variables that containers were given
    last_call             returns when kubelet last called, by ``clock``
    on_receipt            called once for each receipt that is missing on a pod, before it is written
    on_wrong_environment  called once for each container with wrong variables, with a sentence about them

    written   how many receipts were written
    finished  how many comparisons were finished
    trouble   why receipts cannot be written, as a sentence; None when they can
    """

    def __init__(
        self,
        pods: GpuPods,
        matcher: Matcher,
        resources: PodResources,
        environments: IssuedEnvironments,
        patch_pod: PatchPod,
        *,
        vocabularies: Vocabularies,
        last_call: Callable[[], float],
        on_receipt: Callable[[GpuPod, Receipt], None] = lambda _pod, _receipt: None,
        on_wrong_environment: Callable[[GpuPod, str], None] = lambda _pod, _sentence: None,
        interval: float = INTERVAL,
        quiet: float = QUIET,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.written = 0
        self.finished = 0
        self.trouble: str | None = None
        self._pods = pods
        self._matcher = matcher
        self._resources = resources
        self._environments = environments
        self._vocabularies = vocabularies
        self._patch_pod = patch_pod
        self._last_call = last_call
        self._on_receipt = on_receipt
        self._on_wrong_environment = on_wrong_environment
        self._interval = interval
        self._quiet = quiet
        self._clock = clock
        self._compare_now = asyncio.Event()
        self._reported: dict[str, Receipt] = {}
        self._sent: dict[str, tuple[GpuPod, float]] = {}
        self._not_before = float("-inf")
        self._correct: dict[str, _Compared] = {}

    def compare_soon(self) -> None:
        """Compare as soon as kubelet pauses, since it has allocated something."""
        self._compare_now.set()

    async def run(self) -> None:
        """Compare and write until cancelled."""
        while True:
            if (pause := self._last_call() + self._quiet - self._clock()) > 0:
                await asyncio.sleep(pause)
                continue
            self._compare_now.clear()
            try:
                await self.compare()
            except Exception:
                logger.exception("kubelet's list could not be compared with the decisions")
            try:
                async with asyncio.timeout(self._interval):
                    await self._compare_now.wait()
            except TimeoutError:
                continue

    async def compare(self) -> None:
        """Compare once, and write the annotations that are missing on pods."""
        seen = {pod.uid: pod for pod in self._pods}
        asked = self._clock()
        if not (listing := await self._resources.pods()):
            return  # kubelet does not reply, or has just started and lists nothing
        self._matcher.learn(listing, asked=asked)
        self._check_environments(seen, listing, asked=asked)
        missing = self._missing(seen, listing)
        self._forget(missing)
        for pod, found in missing:
            if self._reported.get(pod.uid) != found:
                self._reported[pod.uid] = found
                self._on_receipt(pod, found)
            if self._may_write(pod):
                annotations = {annotation: text or None for annotation, text in found.annotations.items()}
                self.written += await self._write(pod, annotations)
        for pod, own in self._unmarked(seen, listing):
            if self._may_write(pod):
                await self._write(pod, own)
        self.finished += 1

    def _check_environments(self, seen: Mapping[str, GpuPod], listing: Listing, *, asked: float) -> None:
        pods = [pod for uid in seen if (pod := self._pods.get(uid)) is not None]
        for pod, sentence in self._environments.compare(pods, listing, asked=asked):
            self._on_wrong_environment(pod, sentence)
        if len(pods) == len(self._pods) and not self._matcher.unwatched_pods(listing):
            self._environments.forget_before(asked - SETTLED)

    def _forget(self, missing: Collection[tuple[GpuPod, Receipt]]) -> None:
        """Forget reports about pods that are gone, and writes to pods that have their receipt."""
        for uid in [uid for uid in self._reported if self._pods.get(uid) is None]:
            del self._reported[uid]
        uids = {pod.uid for pod, _ in missing}
        for uid in [uid for uid, (pod, _) in self._sent.items() if uid not in uids and self._pods.get(uid) is not pod]:
            del self._sent[uid]

    def _may_write(self, pod: GpuPod) -> bool:
        """Return whether writing is not forbidden, and no write to the pod waits to be shown by the watch."""
        sent = self._sent.get(pod.uid)
        is_pending = sent is not None and sent[0] is pod and self._clock() < sent[1] + WRITE_AGAIN
        return self._clock() >= self._not_before and not is_pending

    def _missing(self, seen: Mapping[str, GpuPod], listing: Listing) -> list[tuple[GpuPod, Receipt]]:
        """Return the receipts that are missing on pods that have not changed since kubelet was asked.

        Of the others kubelet's list may be out of date.
        """
        missing: list[tuple[GpuPod, Receipt]] = []
        before, self._correct = self._correct, {}
        for uid, pod in seen.items():
            if self._pods.get(uid) is not pod or self._matcher.is_busy_with(uid):
                continue
            if (containers := listing.get(pod.key)) is None:
                continue
            compared = _Compared(pod, containers, self._matcher.init_container_cards(uid))
            if not compared.is_same(before.get(uid)) and (found := receipt(*compared)) is not None:
                missing.append((pod, found))
            else:
                self._correct[uid] = compared
        return missing

    def _unmarked(self, seen: Mapping[str, GpuPod], listing: Listing) -> Iterator[tuple[GpuPod, dict[str, str]]]:
        """Yield pods whose containers have got their cards, with the annotations that their vocabulary now expects."""
        for uid, pod in seen.items():
            annotations = self._vocabularies.after_allocate(pod.raw)
            absent = {name: text for name, text in annotations.items() if pod.raw.annotations.get(name) != text}
            if absent and self._pods.get(uid) is pod and given_cards(pod, listing.get(pod.key, {}), {}) is not None:
                yield pod, absent

    async def _write(self, pod: GpuPod, annotations: Mapping[str, str | None]) -> bool:
        """Write annotations on a pod. Returns whether that succeeded."""
        namespace, _, name = pod.key.partition("/")
        try:
            await self._patch_pod(namespace, name, pod.uid, annotations)
        except GasError as error:
            sentence = f"cannot write receipts on pods: {error}"
            if sentence != self.trouble:
                logger.error("%s", sentence, extra={"pod": pod.key})
            self.trouble = sentence
            if isinstance(error, Forbidden):
                self._not_before = self._clock() + FORBIDDEN_PAUSE
            return False
        self._sent[pod.uid] = pod, self._clock()
        self.trouble = None
        return True
