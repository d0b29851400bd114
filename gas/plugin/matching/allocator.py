"""Reply to kubelet's calls with a pod's decided cards if the pod is known, and with sensible cards otherwise."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Sequence

from gas.daemon.logs import VERBOSE
from gas.plugin.devices.allocation import Allocation, Presentation, card_allocation, gpus_of
from gas.plugin.devices.allocation_policy import AllocationPolicy, preferred_ids
from gas.plugin.devices.device_ids import AllocateRequest, DeviceId, PreferredRequest, short_name
from gas.plugin.matching.issued_environments import IssuedEnvironments
from gas.plugin.matching.match import Confidence, Match, why_other_cards
from gas.plugin.matching.matcher import Matcher
from gas.plugin.matching.pace import Pace
from gas.plugin.matching.pod_resolver import PodResolver
from gas.plugin.metrics import MatchMetrics
from gas.values.card_facts import CardFacts

logger = logging.getLogger(__name__)


class Allocator:
    """Serve the calls for all card resources. `Matcher` remembers calls; this class does not.

    matcher       records what containers get
    resolver      finds the container of a GetPreferredAllocation call
    environments  returns and records the variables that each container gets
    pace          learns when kubelet begins or ends a call: it must not be asked for a list right then
    gpus          returns the cards that this node has now
    """

    def __init__(
        self,
        matcher: Matcher,
        resolver: PodResolver,
        environments: IssuedEnvironments,
        metrics: MatchMetrics,
        pace: Pace,
        *,
        gpus: Callable[[], Collection[CardFacts]],
        policy: AllocationPolicy = AllocationPolicy.NONE,
        presentation: Presentation | None = None,
    ) -> None:
        self._matcher = matcher
        self._resolver = resolver
        self._environments = environments
        self._metrics = metrics
        self._pace = pace
        self._gpus = gpus
        self._policy = policy
        self._presentation = presentation or Presentation()

    async def prefer(self, request: PreferredRequest) -> Sequence[DeviceId]:
        """Return the offered ids of the container's decided cards, followed by ids that the policy chooses."""
        self._pace.called()
        preference = await self._resolver.resolve(request)
        ids = preferred_ids(self._policy, request, decided=preference.ids, spared=preference.spared)
        self._pace.called()
        match = preference.match
        fields = {"ids": _joined(ids), "container": _name(match), "confidence": match.confidence.value}
        if match.doubt:
            logger.info("guessed which container kubelet asks for", extra={**fields, "because": match.doubt})
        else:
            logger.debug("preferred devices for a container", extra=fields)
        return ids

    def allocate(self, request: AllocateRequest) -> Allocation:
        """Return what a container gets with these ids, including its vocabulary's variables. Raises NoSuchCards."""
        now = self._pace.called()
        match = self._matcher.allocate(request, now=now)
        self._pace.soon()
        self._report(request, match)
        gpus = gpus_of(request.ids, self._gpus())
        env = self._environments.issue(request, gpus, match.target, at=now)
        return card_allocation(request.resource, gpus, self._presentation, env=env)

    def _report(self, request: AllocateRequest, match: Match) -> None:
        """Count and log what a container got."""
        resource = short_name(request.resource)
        decided = match.target.decided if match.target else None
        reason = match.doubt
        if match.target is None:
            outcome, level = "unknown", logging.WARNING
        elif decided is None:
            outcome, level = "undecided", VERBOSE
        elif {id_.card for id_ in request.ids} == set(decided.cards):
            outcome, level = "as-decided", VERBOSE
        else:
            outcome, level = "otherwise", logging.WARNING
            reason = reason or why_other_cards(match)
        if match.target is not None and match.target.pod.trouble:
            level, reason = logging.WARNING, reason or match.target.pod.trouble
        self._metrics.allocations.labels(resource, outcome).inc()
        self._metrics.matches.labels(match.confidence.value).inc()
        fields = {"resource": resource, "ids": _joined(request.ids), "container": _name(match)}
        if match.confidence is not Confidence.NONE:
            fields["confidence"] = match.confidence.value
        if decided is not None:
            fields["decided"] = ",".join(map(str, decided.cards))
        if reason:
            fields["because"] = reason
        logger.log(level, "%s", _SENTENCES[outcome], extra=fields)


_SENTENCES = {
    "unknown": "an unknown container got cards; its receipt will show which pod it belongs to",
    "undecided": "a container without decided cards got cards",
    "as-decided": "a container got its decided cards",
    "otherwise": "a container got cards that the extender did not decide",
}


def _name(match: Match) -> str:
    return str(match.target) if match.target else "unknown"


_MOST_IDS_LOGGED = 64


def _joined(ids: Collection[DeviceId]) -> str:
    """List the ids; of thousands, which stand for memory, only how many each card has."""
    if len(ids) <= _MOST_IDS_LOGGED:
        return ",".join(map(str, sorted(ids)))
    return ",".join(f"{number} of {card}" for card, number in sorted(Counter(id_.card for id_ in ids).items()))
