"""Compare what kubelet really gave with the decisions, and report every difference."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field

from gas.cluster.errors import Forbidden
from gas.plugin.kubelet.device_server import CallTracker
from gas.plugin.kubelet.pod_resources import Listing, PodResources
from gas.plugin.matching.allocator import IssuedEnvironments
from gas.plugin.matching.gpu_pods import GpuPod
from gas.plugin.matching.matcher import SETTLED, Matcher
from gas.plugin.metrics import Metrics
from gas.plugin.node_writer import FORBIDDEN_PAUSE, Events
from gas.plugin.receipts.receipts import Receipt, ReceiptKind, given_cards, receipt
from gas.values.errors import GasError

logger = logging.getLogger(__name__)

INTERVAL = 3.0  # seconds between two comparisons
LATER = 15.0  # the same once kubelet has not called for `RECENT` seconds since the start of the plugin
RECENT = 30.0
QUIET = 1.0  # seconds without a call of kubelet before its list is asked for: see `gas.plugin.matching.matcher.Matcher`
WRITE_AGAIN = 10.0  # seconds after which annotations are written again if the watch has not shown them

PatchPod = Callable[[str, str, str, Mapping[str, str | None]], Awaitable[bool]]
"""Writes annotations on the pod of this namespace, name and UID; returns False if it is gone."""

_REASONS = {
    ReceiptKind.MISMATCH: "GPUAllocationMismatch",
    ReceiptKind.ADOPTED: "GPUCardsAdopted",
    ReceiptKind.REPAIRED: "GPUReceiptRepaired",
}


@dataclass(eq=False)
class ReceiptWriter:
    """Ask kubelet which containers have which cards, correct matching, and write receipts.

    It asks soon after each Allocate, then every few seconds and later less often, and never between kubelet's calls. A
    receipt that is missing on a pod is counted, logged and posted as an event once, before it is written; so are wrong
    variables of a container.
    """

    matcher: Matcher
    resources: PodResources
    environments: IssuedEnvironments
    patch_pod: PatchPod
    _: KW_ONLY
    calls: CallTracker  # those of kubelet; their clock is that of the matcher
    metrics: Metrics
    events: Events
    written: int = field(init=False, default=0)  # number of receipts written
    finished: int = field(init=False, default=0)  # number of comparisons that have ended
    trouble: str | None = field(init=False, default=None)  # sentence about why annotations cannot be written, else None
    _reported: dict[str, Receipt] = field(init=False, default_factory=dict)
    _compare_now: asyncio.Event = field(init=False, default_factory=asyncio.Event)
    _sent: dict[str, tuple[GpuPod, float]] = field(init=False, default_factory=dict)
    """The writes that the watch may not have shown yet: UID -> the pod before, and when it was written."""
    _not_before: float = field(init=False, default=float("-inf"))

    def compare_soon(self) -> None:
        self._compare_now.set()

    async def run(self) -> None:
        started = self.calls.clock()
        while True:
            await self.calls.pause(lasting=QUIET)
            self._compare_now.clear()
            try:
                await self.compare()
            except Exception:
                logger.exception("kubelet's list could not be compared with the decisions")
            is_recent = self.calls.clock() - max(started, self.calls.last_end) < RECENT
            with suppress(TimeoutError):
                async with asyncio.timeout(INTERVAL if is_recent else LATER):
                    await self._compare_now.wait()

    async def compare(self) -> None:
        """Compare once, and write the annotations that are missing on pods."""
        seen = {pod.uid: pod for pod in self.matcher.pods}
        asked = self.calls.clock()
        if not (listing := await self.resources.pods()):
            return  # kubelet does not reply, or has just started and lists nothing
        self.matcher.learn(listing, asked=asked)
        self._check_environments(seen, listing, asked=asked)
        missing = self._missing(seen, listing)
        self._forget(missing)
        for pod, found in missing:
            if self._reported.get(pod.uid) != found:
                self._reported[pod.uid] = found
                self._report(pod, found)
            annotations = {annotation: text or None for annotation, text in found.annotations.items()}
            self.written += await self._write(pod, annotations)
        for uid, pod in seen.items():
            is_marked = not pod.unmarked or self.matcher.pods.get(uid) is not pod
            if not is_marked and given_cards(pod, listing.get(pod.key, {}), {}) is not None:
                await self._write(pod, pod.unmarked)
        self.finished += 1

    def _report(self, pod: GpuPod, found: Receipt) -> None:
        is_mismatch = found.kind is ReceiptKind.MISMATCH
        self.metrics.receipts[found.kind].inc()
        level = logging.WARNING if is_mismatch else logging.INFO
        logger.log(level, found.sentence, extra={"pod": pod.key, **found.annotations})
        self.events.on_pod(pod, _REASONS[found.kind], found.sentence, is_warning=is_mismatch)

    async def _write(self, pod: GpuPod, annotations: Mapping[str, str | None]) -> bool:
        """Write annotations on a pod, and return whether they were written.

        They are not if writing is forbidden or fails, or while an earlier write to the pod waits for the watch.
        """
        sent, at = self._sent.get(pod.uid, (None, 0.0))
        now = self.calls.clock()
        if now < self._not_before or (sent is pod and now < at + WRITE_AGAIN):
            return False
        namespace, _, name = pod.key.partition("/")
        try:
            await self.patch_pod(namespace, name, pod.uid, annotations)
        except GasError as error:
            sentence = f"cannot write receipts on pods: {error}"
            if sentence != self.trouble:
                logger.error(sentence, extra={"pod": pod.key})
            self.trouble = sentence
            if isinstance(error, Forbidden):
                self._not_before = self.calls.clock() + FORBIDDEN_PAUSE
            return False
        self._sent[pod.uid] = pod, self.calls.clock()
        self.trouble = None
        return True

    def _check_environments(self, seen: Mapping[str, GpuPod], listing: Listing, *, asked: float) -> None:
        if not self.environments:
            return
        pods = [pod for uid in seen if (pod := self.matcher.pods.get(uid)) is not None]
        for pod, sentence in self.environments.compare(pods, listing, asked=asked):
            self.metrics.tile_mismatches.inc()
            logger.warning(sentence, extra={"pod": pod.key})
            self.events.on_pod(pod, "GPUEnvironmentMismatch", sentence)
        if len(pods) == len(self.matcher.pods) and not self.matcher.unwatched_pods(listing):
            self.environments.forget_before(asked - SETTLED)

    def _forget(self, missing: Collection[tuple[GpuPod, Receipt]]) -> None:
        """Forget reports about pods that are gone, and writes to pods that have their receipt."""
        self._reported = {uid: found for uid, found in self._reported.items() if self.matcher.pods.get(uid) is not None}
        uids = {pod.uid for pod, _ in missing}
        self._sent = {
            uid: (pod, at) for uid, (pod, at) in self._sent.items() if uid in uids or self.matcher.pods.get(uid) is pod
        }

    def _missing(self, seen: Mapping[str, GpuPod], listing: Listing) -> list[tuple[GpuPod, Receipt]]:
        """Return the receipts that are missing on pods, unless the pod has changed since kubelet was asked."""
        missing: list[tuple[GpuPod, Receipt]] = []
        for uid, pod in seen.items():
            if self.matcher.pods.get(uid) is not pod or self.matcher.is_busy_with(uid):
                continue
            if (containers := listing.get(pod.key)) is None:
                continue
            if (found := receipt(pod, containers, self.matcher.init_container_cards(uid))) is not None:
                missing.append((pod, found))
        return missing
