"""What kubelet is answered: what was decided for the pod where that is known, and sensible cards everywhere else."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Sequence

from gas.card_facts import CardFacts
from gas.daemon.logs import VERBOSE
from gas.plugin.devices.affinity_mask import AFFINITY_MASK, mask_of
from gas.plugin.devices.allocation_policy import AllocationPolicy, PreferredRequest, preferred_ids
from gas.plugin.devices.container_answer import ContainerAnswer, Presentation, container_answer, gpus_of
from gas.plugin.devices.device_ids import DeviceId
from gas.plugin.kubelet.device_server import AllocateRequest
from gas.plugin.matching.confidence import Confidence
from gas.plugin.matching.given_masks import GivenMask, GivenMasks
from gas.plugin.matching.look_up import LookUp
from gas.plugin.matching.match import Match
from gas.plugin.matching.matching import Matching
from gas.plugin.matching.other_cards import why_other_cards
from gas.plugin.metrics import Metrics

logger = logging.getLogger(__name__)


class Answers:
    """The decisions behind the servers of all resources of cards.

    matching  whose a call is
    look_up   the same, made sure while kubelet waits
    masks     is told of each mask, or that there is none
    gpus      the cards of this node as they are now

    `last_call` is when kubelet last began or ended a call, by ``clock``: nothing may be listed just then.
    """

    def __init__(
        self,
        matching: Matching,
        look_up: LookUp,
        masks: GivenMasks,
        metrics: Metrics,
        *,
        gpus: Callable[[], Collection[CardFacts]],
        policy: AllocationPolicy = AllocationPolicy.NONE,
        presentation: Presentation | None = None,
        on_allocated: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.last_call = float("-inf")
        self._matching = matching
        self._look_up = look_up
        self._masks = masks
        self._metrics = metrics
        self._gpus = gpus
        self._policy = policy
        self._presentation = presentation or Presentation()
        self._on_allocated = on_allocated
        self._clock = clock
        self._doubt = ""

    async def prefer(self, request: PreferredRequest) -> Sequence[DeviceId]:
        """The ids of the cards that were decided for this container, as far as they are offered; then the policy's."""
        self.last_call = self._clock()
        wish, self._doubt = await self._look_up.wish(request)
        ids = preferred_ids(self._policy, request, decided=wish.ids, spared=wish.spared)
        self.last_call = self._clock()
        fields = {"ids": _texts(ids), "whose": _whose(wish.match), "confidence": wish.confidence.value}
        if self._doubt:
            logger.info("guesses for which container kubelet asks", extra={**fields, "because": self._doubt})
        else:
            logger.debug("prefers devices for a container", extra=fields)
        return ids

    def allocate(self, request: AllocateRequest) -> ContainerAnswer:
        """The cards of these ids, with the mask of the tiles that were decided. Raises NoSuchCards."""
        self.last_call = self._clock()
        match = self._matching.allocate(request.resource, request.ids, now=self.last_call)
        self._on_allocated()
        self._tell(request, match)
        gpus = gpus_of(request.ids, self._gpus())
        tiles_of = {gpu.card: gpu.tiles for gpu in gpus}
        mask = mask_of(match.given, tiles_of, match.hierarchy) if match else None
        self._masks.add(request.resource, GivenMask(request.ids, tiles_of, mask, at=self.last_call))
        env = {} if mask is None else {AFFINITY_MASK: mask}
        return container_answer(request.resource, gpus, self._presentation, env=env)

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
        if because := self._because(match, outcome):
            fields["because"] = because
        logger.log(level, "%s", _SENTENCES[outcome], extra=fields)

    def _because(self, match: Match | None, outcome: str) -> str:
        """Why it is a guess, or is not what was decided; empty when it is neither."""
        doubt, self._doubt = self._doubt, ""
        if match is None or match.confidence is not Confidence.KNOWN:
            return doubt or "kubelet did not ask which"
        return why_other_cards(match) if outcome == "otherwise" else ""


_SENTENCES = {
    "unknown": "kubelet gives cards to a container that is not known; the receipt will tell",
    "undecided": "kubelet gives cards to a container for which nothing was decided",
    "as-decided": "kubelet gives a container the cards that were decided",
    "otherwise": "kubelet gives a container other cards than were decided",
}


def _whose(match: Match | None) -> str:
    return f"{match.pod.key}/{match.want.container}" if match else "unknown"


def _texts(ids: Collection[DeviceId]) -> str:
    return ",".join(map(str, ids))
