"""What kubelet is answered: what was decided for the pod where that is known, and sensible cards everywhere else."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress

from gas.daemon.logs import VERBOSE
from gas.plugin.affinity_mask import AFFINITY_MASK, affinity_mask
from gas.plugin.allocation_policy import AllocationPolicy, PreferredRequest, preferred_ids
from gas.plugin.confidence import Confidence
from gas.plugin.container_answer import ContainerAnswer, Presentation, container_answer, gpus_of
from gas.plugin.device_ids import DeviceId
from gas.plugin.device_server import AllocateRequest
from gas.plugin.gpu import Gpu
from gas.plugin.listing import listing_of
from gas.plugin.match import Match, Wish
from gas.plugin.matching import Matching
from gas.plugin.metrics import Metrics
from gas.plugin.pod_resources import PodResources

logger = logging.getLogger(__name__)

LISTING_WITHIN = 0.25
"""Seconds for each question to kubelet while it waits for us."""

WATCH_WITHIN = 0.2
"""Seconds that the watch gets to show a pod that kubelet has and we do not. All three waits end before
`gas.plugin.device_server.ANSWER_WITHIN`."""


class Answers:
    """The decisions behind the servers of all resources of cards.

    matching   whose a call is
    resources  kubelet's PodResources, asked while kubelet waits; its timeout is LISTING_WITHIN
    watches    whether the watch shows this node's pods, so that it is worth to wait for it
    gpus       the cards of this node as they are now

    `last_call` is when kubelet last began or ended a call, by ``clock``: nothing may be listed just then.
    """

    def __init__(
        self,
        matching: Matching,
        resources: PodResources,
        metrics: Metrics,
        *,
        gpus: Callable[[], Collection[Gpu]],
        watches: Callable[[], bool],
        policy: AllocationPolicy = AllocationPolicy.NONE,
        presentation: Presentation | None = None,
        on_allocated: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.last_call = float("-inf")
        self._matching = matching
        self._resources = resources
        self._metrics = metrics
        self._gpus = gpus
        self._watches = watches
        self._policy = policy
        self._presentation = presentation or Presentation()
        self._on_allocated = on_allocated
        self._clock = clock
        self._shown = asyncio.Event()

    def pods_changed(self) -> None:
        """The watch has shown something."""
        self._shown.set()
        self._shown = asyncio.Event()

    async def prefer(self, request: PreferredRequest) -> Sequence[DeviceId]:
        """The ids of the cards that were decided for this container, as far as they are offered; then the policy's."""
        self.last_call = self._clock()
        wish = self._matching.prefer(request)
        if wish.confidence is not Confidence.KNOWN:
            wish = await self._looked_up(request, wish)
        ids = preferred_ids(self._policy, request, decided=wish.ids, spared=wish.spared)
        self.last_call = self._clock()
        logger.debug(
            "prefers devices for a container",
            extra={"ids": _texts(ids), "whose": _whose(wish.match), "confidence": wish.confidence.value},
        )
        return ids

    def allocate(self, request: AllocateRequest) -> ContainerAnswer:
        """The cards of these ids, with the mask of the tiles that were decided. Raises NoSuchCards."""
        self.last_call = self._clock()
        match = self._matching.allocate(request.resource, request.ids, now=self.last_call)
        self._on_allocated()
        self._tell(request, match)
        gpus = gpus_of(request.ids, self._gpus())
        mask = _mask(match, gpus)
        env = {} if mask is None else {AFFINITY_MASK: mask}
        return container_answer(request.resource, gpus, self._presentation, env=env)

    async def _looked_up(self, request: PreferredRequest, wish: Wish) -> Wish:
        """The same with what kubelet says of its pods at this moment, and what the watch shows in the next."""
        if wish.match is not None and wish.one_entry_suffices:
            namespace, _, name = wish.match.pod.key.partition("/")
            if (found := await self._resources.pod(namespace, name)) is not None:
                wish = self._matching.prefer(request, listing=listing_of((found,)))
                if wish.confidence is Confidence.KNOWN:
                    return wish
        listing = listing_of(await self._resources.pods() or ())
        if not listing:
            return wish
        wish = self._matching.prefer(request, listing=listing)
        if self._watches():
            with suppress(TimeoutError):
                async with asyncio.timeout(WATCH_WITHIN):
                    while wish.confidence is not Confidence.KNOWN and self._matching.strangers(listing):
                        await self._shown.wait()
                        wish = self._matching.prefer(request, listing=listing)
        return wish

    def _tell(self, request: AllocateRequest, match: Match | None) -> None:
        """Count and log what a container got."""
        got = frozenset(id_.card for id_ in request.ids)
        if match is None:
            outcome, level = "unknown", logging.WARNING
        elif match.given is None:
            outcome, level = "undecided", VERBOSE
        elif got == frozenset(match.given.cards):
            outcome, level = "as-decided", VERBOSE
        else:
            outcome, level = "otherwise", logging.WARNING
        self._metrics.allocations.labels(request.resource, outcome).inc()
        self._metrics.matches.labels("none" if match is None else match.confidence.value).inc()
        fields = {"resource": request.resource, "ids": _texts(sorted(request.ids)), "whose": _whose(match)}
        if match is not None:
            fields["confidence"] = match.confidence.value
            if match.given is not None:
                fields["decided"] = ",".join(map(str, match.given.cards))
        logger.log(level, "%s", _SENTENCES[outcome], extra=fields)


_SENTENCES = {
    "unknown": "kubelet gives cards to a container that is not known; the receipt will tell",
    "undecided": "kubelet gives cards to a container for which nothing was decided",
    "as-decided": "kubelet gives a container the cards that were decided",
    "otherwise": "kubelet gives a container other cards than were decided",
}


def _mask(match: Match | None, gpus: Collection[Gpu]) -> str | None:
    """What the tiles decided mean for the driver; None with other cards, whose tiles nobody decided."""
    tiles_of = {gpu.card: gpu.tiles for gpu in gpus}
    if match is None or match.given is None or tiles_of.keys() != set(match.given.cards):
        return None
    return affinity_mask(match.given.tiles, [tiles_of[card] for card in match.given.cards], match.hierarchy)


def _whose(match: Match | None) -> str:
    return f"{match.pod.key}/{match.want.container}" if match else "unknown"


def _texts(ids: Collection[DeviceId]) -> str:
    return ",".join(map(str, ids))
