"""Limit the memory that pods use of shared cards to what they requested, before their first process runs.

kubelet makes a pod's cgroup before it starts the pod's first container, and before every start of a container with
devices it calls PreStartContainer and waits. The call names only device ids, so the pod is the one that got these ids.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

from gas.plugin.card_pods import CardPod, CardPods
from gas.plugin.daemon_thread import in_a_daemon_thread
from gas.plugin.devices.device_ids import AllocateRequest, in_order
from gas.plugin.limits.limit_files import LimitFiles, Limits, Outcome, regions_of
from gas.values.amounts import MEMORY_MAX
from gas.values.card_facts import CardFacts
from gas.values.errors import GasError

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitTimes:
    """Intervals and limits in seconds."""

    interval: float = 10.0  # between two passes over all pods while nothing changes
    pause: float = 1.0  # between two passes while pods change; pods that start do not wait for a pass
    within: float = 5.0  # for writing the limits before a container starts; then it starts without them
    watch_within: float = 2.0  # to wait before a start for a pod that the watch has not shown yet
    # after which a running pod without a cgroup is reported; ended pods may be shown as running for a while
    missing_for: float = 30.0


_NODE, _MISSING, _POD = "node", "missing", "pod "


@dataclass(eq=False)
class MemoryLimits:
    """Set the limits of every GPU pod: before its containers start, when it or its cards change, and at each interval.

    on_troubles  called with sentences about why there are no limits, whenever they change
    limited      number of pods that have their limits
    """

    pods: CardPods
    gpus: Callable[[], Collection[CardFacts]]
    files: LimitFiles
    on_troubles: Callable[[Collection[str]], None]
    times: LimitTimes = LimitTimes()
    limited: int = field(init=False, default=0)
    _changed: asyncio.Event = field(init=False, default_factory=asyncio.Event)
    _writing: asyncio.Future[Outcome] | None = field(init=False, default=None)
    _turn: asyncio.Lock = field(init=False, default_factory=asyncio.Lock)
    _missing_since: dict[str, float] = field(init=False, default_factory=dict)
    _troubles: dict[str, str] = field(init=False, default_factory=dict)

    @property
    def trouble(self) -> str | None:
        """Return a sentence about why pods have no limits; None if they have."""
        return next(iter(self._troubles.values()), None)

    def pods_changed(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def run(self) -> None:
        while True:
            changed = self._changed
            try:
                await self.apply(None)
            except Exception:
                logger.exception("the memory limits of pods could not be set")
            await asyncio.sleep(self.times.pause)
            with suppress(TimeoutError):
                async with asyncio.timeout(self.times.interval):
                    await changed.wait()

    async def before_start(self, request: AllocateRequest) -> None:
        """Set the limits of the pod that has these ids, as a container of it is about to start.

        If it is not certain which pod that is, set the limits of all pods. If no pod is known to have the ids, wait for
        the watch to show one.
        """
        deadline = asyncio.get_running_loop().time() + self.times.watch_within
        while True:
            changed = self._changed
            holders = self.pods.holders(request.resource, request.ids)
            is_certain = bool(holders) and all(holder.is_certain for holder in holders)
            await self.apply([holder.pod for holder in holders] if is_certain else None)
            if holders:
                return
            try:
                async with asyncio.timeout_at(deadline):
                    await changed.wait()
            except TimeoutError:
                logger.warning(
                    "a container starts whose pod is not known; its memory limit follows when the pod is known",
                    extra={"ids": ",".join(sorted(request.ids, key=in_order))},
                )
                return

    async def apply(self, pods: Collection[CardPod] | None) -> None:
        """Give these pods their limits, or all pods if None; return after at most `LimitTimes.within` seconds.

        Only one thread writes at a time. If it is stuck, no other starts.
        """
        try:
            async with asyncio.timeout(self.times.within), self._turn:
                if self._writing is not None:  # an earlier call did not wait for its end
                    await asyncio.wait((self._writing,))
                written = tuple(self.pods if pods is None else pods)
                write = partial(self._write, written, tuple(self.gpus()))
                self._writing = asyncio.ensure_future(in_a_daemon_thread(write, name="limits"))
                outcome = await asyncio.shield(self._writing)
        except TimeoutError:
            self._note(_NODE, "memory limits of pods cannot be set: the node's /sys/fs/cgroup does not respond")
        except GasError as error:
            self._note(_NODE, str(error))
        else:
            if pods is None:
                self.limited = len(outcome.limited)
                self._note(_MISSING, self._missing_sentence(outcome.missing))
                known = {_POD + pod.uid for pod in written}
                for cause in [cause for cause in self._troubles if cause.startswith(_POD) and cause not in known]:
                    self._note(cause, None)
            self._note(_NODE, next(iter(outcome.faults), None))
            for pod in written:
                refusal = (
                    f"the kernel did not accept a memory limit of pod {pod.key}: the pod uses more of a card than it"
                    f" requested of {MEMORY_MAX}; it runs without that limit until it uses less, or is restarted"
                )
                self._note(_POD + pod.uid, refusal if pod.cgroup_uid in outcome.refused else None)

    def _write(self, pods: Collection[CardPod], gpus: Collection[CardFacts]) -> Outcome:
        """Write the limits in a thread. Raises NoLimits."""
        capacity = self.files.capacity()
        outcome = self.files.apply({pod.cgroup_uid: wanted_limits(pod, gpus, capacity) for pod in pods})
        # Cards with memory of their own whose driver registers no region.
        if without := [str(gpu.card) for gpu in gpus if gpu.memory and not regions_of(gpu.pci_address, capacity)]:
            sentence = (
                f"the memory of {', '.join(without)} cannot be limited: the driver does not register it with the "
                "controller dmem, as xe does from Linux 6.14 on and i915 does not; pods run without limits there"
            )
            outcome.faults[sentence] = None
        return outcome

    def _missing_sentence(self, missing: Collection[str]) -> str | None:
        """Return a sentence about pods that have run for a while without a cgroup; None if there are none.

        ``missing`` are their UIDs in the names of cgroups, as of a pass over all pods.
        """
        now = asyncio.get_running_loop().time()
        running = {pod.cgroup_uid: pod.key for pod in self.pods if pod.is_running and pod.cgroup_uid in missing}
        self._missing_since = {uid: self._missing_since.get(uid, now) for uid in running}
        since_long = [uid for uid, since in self._missing_since.items() if now - since >= self.times.missing_for]
        if not (overdue := sorted(running[uid] for uid in since_long)):
            return None
        return (
            f"memory limits cannot be set for the running pods {', '.join(overdue)}: their cgroups are not found in "
            "the node's /sys/fs/cgroup; they run without limits; check that the plugin sees the node's own directory"
        )

    def _note(self, cause: str, trouble: str | None) -> None:
        """Record the trouble of one cause, None if it is over, and report a new one."""
        if self._troubles.get(cause) == trouble:
            return
        if trouble is None:
            del self._troubles[cause]
        else:
            self._troubles[cause] = trouble
            logger.warning(trouble)
        self.on_troubles(tuple(self._troubles.values()))


def wanted_limits(pod: CardPod, gpus: Iterable[CardFacts], capacity: Mapping[str, int]) -> Limits:
    """Return the limits of a pod for all memory regions of the node's cards; None for a region that is not limited.

    The limit of a card is the most that the pod's containers that run together requested, as it is booked. A card is
    not limited if the pod was not given it, requested all of its memory (with what is reserved, so that the reserve is
    kept), or requested none. Each region of a card, one for each tile, gets the same limit, because the kernel has no
    limit for several regions together. ``capacity`` has the bytes of each region of the node.
    """
    gpus = list(gpus)
    requested = pod.requested_memory(gpus)
    limits: dict[str, int | None] = {}
    for gpu in gpus:
        amount = requested.get(gpu.card, 0)
        is_shared = 0 < amount < (gpu.memory_size or gpu.memory or 0)
        for region, size in regions_of(gpu.pci_address, capacity).items():
            limits[region] = amount if is_shared and amount < size else None
    return limits
