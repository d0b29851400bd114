"""Compare what kubelet really gave with the decisions, and report every difference."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from typing import NamedTuple

from gas.plugin.kubelet.pod_resources import ContainerIds, Listing, PodResources
from gas.plugin.matching.gpu_pods import GpuPod, GpuPods
from gas.plugin.matching.issued_environments import IssuedEnvironments
from gas.plugin.matching.matcher import SETTLED, Matcher
from gas.plugin.receipts.pod_writes import PodWrites
from gas.plugin.receipts.receipts import Receipt, given_cards, receipt
from gas.values.cards import Card
from gas.vocabularies.combined import Vocabularies

logger = logging.getLogger(__name__)

INTERVAL = 3.0
"""Seconds between two comparisons while kubelet allocates nothing."""

QUIET = 1.0
"""Seconds without a call of kubelet before it is asked for its list: see `gas.plugin.matching.matcher.Matcher`."""


class Pace:
    """When kubelet is asked for its list: every few seconds, soon after each Allocate, and never between its calls.

    last_call  returns when kubelet last called, by ``clock``
    interval   seconds, see INTERVAL
    quiet      seconds, see QUIET
    clock      returns seconds
    """

    def __init__(
        self,
        last_call: Callable[[], float],
        *,
        interval: float = INTERVAL,
        quiet: float = QUIET,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.clock = clock
        self._last_call = last_call
        self._interval = interval
        self._quiet = quiet
        self._now = asyncio.Event()

    def soon(self) -> None:
        """Ask as soon as kubelet pauses."""
        self._now.set()

    async def until_kubelet_pauses(self) -> None:
        """Wait for a pause of kubelet. The calls of `soon` before its end are served by the question that follows."""
        while True:
            pause = self._last_call() + self._quiet - self.clock()
            if pause <= 0:
                break
            await asyncio.sleep(pause)
        self._now.clear()

    async def until_next(self) -> None:
        """Wait for the interval or for a call of `soon`."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._interval):
                await self._now.wait()


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
    """Ask kubelet which containers have which cards, correct matching, and write receipts.

    It asks every few seconds, and soon after each Allocate.

    environments          the variables that containers were given
    on_receipt            called once for each receipt that is missing on a pod, before it is written
    on_wrong_environment  called once for each container with wrong variables, with a sentence about them

    written   how many receipts were written
    finished  how many comparisons were finished
    """

    def __init__(
        self,
        pods: GpuPods,
        matcher: Matcher,
        resources: PodResources,
        environments: IssuedEnvironments,
        writes: PodWrites,
        *,
        vocabularies: Vocabularies,
        pace: Pace,
        on_receipt: Callable[[GpuPod, Receipt], None] = lambda _pod, _receipt: None,
        on_wrong_environment: Callable[[GpuPod, str], None] = lambda _pod, _sentence: None,
    ) -> None:
        self.written = 0
        self.finished = 0
        self._pods = pods
        self._matcher = matcher
        self._resources = resources
        self._environments = environments
        self._writes = writes
        self._vocabularies = vocabularies
        self._pace = pace
        self._on_receipt = on_receipt
        self._on_wrong_environment = on_wrong_environment
        self._reported: dict[str, Receipt] = {}
        self._correct: dict[str, _Compared] = {}

    def compare_soon(self) -> None:
        """Compare as soon as kubelet pauses, since it has allocated something."""
        self._pace.soon()

    async def run(self) -> None:
        """Compare and write until cancelled."""
        while True:
            await self._pace.until_kubelet_pauses()
            try:
                await self.compare()
            except Exception:
                logger.exception("kubelet's list could not be compared with the decisions")
            await self._pace.until_next()

    async def compare(self) -> None:
        """Compare once, and write the annotations that are missing on pods."""
        seen = {pod.uid: pod for pod in self._pods}
        asked = self._pace.clock()
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
            annotations = {annotation: text or None for annotation, text in found.annotations.items()}
            self.written += await self._writes.write(pod, annotations)
        for pod, own in self._unmarked(seen, listing):
            await self._writes.write(pod, own)
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
        self._writes.keep(lambda pod: pod.uid in uids or self._pods.get(pod.uid) is pod)

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
