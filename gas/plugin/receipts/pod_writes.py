"""Annotations written on pods: each once until the watch shows it, and none while the API server forbids it."""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Mapping

from gas.cluster.errors import Forbidden
from gas.plugin.matching.gpu_pods import GpuPod
from gas.values.errors import GasError

logger = logging.getLogger(__name__)

FORBIDDEN_PAUSE = 30.0
"""Seconds between two attempts while an RBAC rule is missing."""

WRITE_AGAIN = 10.0
"""Seconds after which annotations are written again if the watch has not shown them on the pod."""

PatchPod = Callable[[str, str, str, Mapping[str, str | None]], Awaitable[bool]]
"""Writes annotations on the pod of this namespace, name and UID; returns False if it is gone."""


class PodWrites:
    """Write annotations on pods, and remember the writes that the watch has not shown yet.

    clock    returns seconds
    trouble  why annotations cannot be written, as a sentence; None when they can
    """

    def __init__(self, patch_pod: PatchPod, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.trouble: str | None = None
        self._patch_pod = patch_pod
        self._clock = clock
        self._sent: dict[str, tuple[GpuPod, float]] = {}
        self._not_before = float("-inf")

    async def write(self, pod: GpuPod, annotations: Mapping[str, str | None]) -> bool:
        """Write annotations on a pod, and return whether they were written.

        They are not if writing is forbidden, if it fails, and if an earlier write to the pod waits for the watch.
        """
        sent, at = self._sent.get(pod.uid, (None, 0.0))
        if self._clock() < self._not_before or (sent is pod and self._clock() < at + WRITE_AGAIN):
            return False
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

    def keep(self, matters: Callable[[GpuPod], bool]) -> None:
        """Forget the writes to pods that do not matter any more."""
        self._sent = {uid: (pod, at) for uid, (pod, at) in self._sent.items() if matters(pod)}
