"""Compares what kubelet has really given with what was decided, and never hides a difference."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import NamedTuple

from gas.cards import Card
from gas.cluster.errors import Forbidden
from gas.errors import GasError
from gas.plugin.kubelet.pod_resources import ContainerIds, Listing, PodResources
from gas.plugin.matching.given_masks import GivenMasks
from gas.plugin.matching.gpu_pods import GpuPod, GpuPods
from gas.plugin.matching.matcher import SETTLED, Matcher
from gas.plugin.receipts.receipts import Receipt, receipt

logger = logging.getLogger(__name__)

INTERVAL = 3.0
"""Seconds between two comparisons when kubelet gives nothing away."""

QUIET = 1.0
"""Seconds since kubelet's last call before it is asked: see `gas.plugin.matching.matcher.Matcher`."""

FORBIDDEN_PAUSE = 30.0
"""Seconds between two tries while a rule is missing."""

WRITE_AGAIN = 10.0
"""Seconds after which a receipt is written anew if the watch has not shown it on the pod."""

PatchPod = Callable[[str, str, str, Mapping[str, str | None]], Awaitable[bool]]
"""Writes annotations on the pod of this namespace, name and UID; False: it is gone."""


class _Compared(NamedTuple):
    """What `gas.plugin.receipts.receipts.receipt` is made from: from the same comes the same."""

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

    masks       the masks of tiles that containers were given
    last_call   when kubelet last called, by ``clock``
    on_receipt  called once for each receipt that is missing on a pod, before it is written
    on_mask     called once for each container that was given another mask than it should have, with the sentence

    written   receipts that were written
    finished  comparisons that came to their end
    trouble   while receipts cannot be written: the sentence that says why
    """

    def __init__(
        self,
        pods: GpuPods,
        matching: Matcher,
        resources: PodResources,
        masks: GivenMasks,
        patch_pod: PatchPod,
        *,
        last_call: Callable[[], float],
        on_receipt: Callable[[GpuPod, Receipt], None] = lambda _pod, _receipt: None,
        on_mask: Callable[[GpuPod, str], None] = lambda _pod, _sentence: None,
        interval: float = INTERVAL,
        quiet: float = QUIET,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.written = 0
        self.finished = 0
        self.trouble: str | None = None
        self._pods = pods
        self._matcher = matching
        self._resources = resources
        self._masks = masks
        self._patch_pod = patch_pod
        self._last_call = last_call
        self._on_receipt = on_receipt
        self._on_mask = on_mask
        self._interval = interval
        self._quiet = quiet
        self._clock = clock
        self._look_soon = asyncio.Event()
        self._told: dict[str, Receipt] = {}
        self._sent: dict[str, tuple[GpuPod, float]] = {}
        self._not_before = float("-inf")
        self._correct: dict[str, _Compared] = {}

    def look_soon(self) -> None:
        """Something was given away."""
        self._look_soon.set()

    async def run(self) -> None:
        """For ever, until cancelled."""
        while True:
            if (pause := self._last_call() + self._quiet - self._clock()) > 0:
                await asyncio.sleep(pause)
                continue
            self._look_soon.clear()
            try:
                await self.look()
            except Exception:
                logger.exception("what kubelet has given could not be compared with what was decided")
            try:
                async with asyncio.timeout(self._interval):
                    await self._look_soon.wait()
            except TimeoutError:
                continue

    async def look(self) -> None:
        """Compare once, and write the receipts that are missing."""
        seen = {pod.uid: pod for pod in self._pods}
        asked = self._clock()
        if not (listing := await self._resources.pods()):
            return  # kubelet is away, or has just started and says nothing
        self._matcher.learn(listing, asked=asked)
        self._compare_masks(seen, listing, asked=asked)
        missing = self._missing(seen, listing)
        self._forget(missing)
        for pod, found in missing:
            if self._told.get(pod.uid) != found:
                self._told[pod.uid] = found
                self._on_receipt(pod, found)
            if self._clock() >= self._not_before and not self._is_on_its_way(pod):
                await self._write(pod, found)
        self.finished += 1

    def _compare_masks(self, seen: Mapping[str, GpuPod], listing: Listing, *, asked: float) -> None:
        pods = [pod for uid in seen if (pod := self._pods.get(uid)) is not None]
        for pod, sentence in self._masks.compare(pods, listing, asked=asked):
            self._on_mask(pod, sentence)
        if len(pods) == len(self._pods) and not self._matcher.unwatched_pods(listing):
            self._masks.forget_before(asked - SETTLED)

    def _forget(self, missing: Collection[tuple[GpuPod, Receipt]]) -> None:
        """Pods that are gone are told of no more; of those that have their receipt nothing is on its way."""
        for uid in [uid for uid in self._told if self._pods.get(uid) is None]:
            del self._told[uid]
        uids = {pod.uid for pod, _ in missing}
        for uid in [uid for uid in self._sent if uid not in uids]:
            del self._sent[uid]

    def _is_on_its_way(self, pod: GpuPod) -> bool:
        """Whether it was written, and the watch has not shown the pod since."""
        sent = self._sent.get(pod.uid)
        return sent is not None and sent[0] is pod and self._clock() < sent[1] + WRITE_AGAIN

    def _missing(self, seen: Mapping[str, GpuPod], listing: Listing) -> list[tuple[GpuPod, Receipt]]:
        """Only pods that are now as they were before kubelet was asked: what it says may be older than a change."""
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

    async def _write(self, pod: GpuPod, found: Receipt) -> None:
        namespace, _, name = pod.key.partition("/")
        annotations = {annotation: text or None for annotation, text in found.annotations.items()}
        try:
            await self._patch_pod(namespace, name, pod.uid, annotations)
        except GasError as error:
            sentence = f"cannot write on pods which cards they were given: {error}"
            if sentence != self.trouble:
                logger.error("%s", sentence, extra={"pod": pod.key})
            self.trouble = sentence
            if isinstance(error, Forbidden):
                self._not_before = self._clock() + FORBIDDEN_PAUSE
            return
        self._sent[pod.uid] = pod, self._clock()
        self.trouble = None
        self.written += 1
