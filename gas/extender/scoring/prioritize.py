"""The prioritize verb: from a request's body to scores of nodes and a response."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

import msgspec

from gas.extender.decider import Decider
from gas.extender.filter import in_turns
from gas.extender.metrics import Metrics
from gas.extender.readiness import check_ready
from gas.extender.scoring.scoring import Scoring
from gas.extender.wire import decode_filter

logger = logging.getLogger(__name__)


class Prioritize:
    """Called with the body of a request, returns the body of the response.

    Raises Unreadable if the body is not JSON, BadRequest if it is not a valid request, and NotReady while this replica
    may not decide: the response has no field for an error, and kube-scheduler then goes on without these scores.

    why_not_ready  returns the reason while this replica may not decide, else None
    """

    def __init__(
        self, decider: Decider, scoring: Scoring, metrics: Metrics, *, why_not_ready: Callable[[], str | None]
    ) -> None:
        self._decider = decider
        self._scoring = scoring
        self._metrics = metrics
        self._why_not_ready = why_not_ready

    async def __call__(self, body: bytes) -> bytes:
        check_ready(self._why_not_ready)
        args = decode_filter(body)
        begun = time.perf_counter()
        scores = await in_turns(self._scoring.prioritize(args))
        self._decider.decisions.scored(args.pod.uid, scores, time.perf_counter() - begun)
        self._metrics.requests.labels("prioritize", "scored").inc()
        logger.debug("%d nodes scored", len(scores), extra={"pod": args.pod.key})
        return msgspec.json.encode([{"Host": name, "Score": score} for name, score in scores])
