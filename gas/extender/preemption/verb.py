"""The preempt verb: from the pods that kube-scheduler would evict to those that must really go."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace

from gas.extender.decider import Decider
from gas.extender.filter import PendingBinds, in_turns
from gas.extender.metrics import Metrics
from gas.extender.preemption.preemption import Preemption
from gas.extender.preemption.wire import PreemptArgs, Proposal, decode_preempt, encode_preempt_result
from gas.extender.readiness import check_ready

logger = logging.getLogger(__name__)

REVIEW_PATIENCE = 0.5
"""Seconds for settling reviews of Bindings on the proposed nodes: a read and a write of each pod."""


class Preempt:
    """Called with the body of a request, returns the body of the response.

    Raises Unreadable if the body is not JSON, BadRequest if it is no request, and NotReady while this replica may not
    decide.

    A review of a Binding may be forged, and what it reserved is free again after a moment. So no pod is evicted because
    of one: reviews for the proposed nodes are settled first, and nodes that have an open one all the same drop out.

    why_not_ready  returns the reason while this replica may not decide, else None
    """

    def __init__(
        self,
        decider: Decider,
        preemption: Preemption,
        pending_binds: PendingBinds,
        metrics: Metrics,
        *,
        why_not_ready: Callable[[], str | None],
        review_patience: float = REVIEW_PATIENCE,
    ) -> None:
        self._decider = decider
        self._pending_binds = pending_binds
        self._metrics = metrics
        self._why_not_ready = why_not_ready
        self._preemption = preemption
        self._review_patience = review_patience

    async def __call__(self, body: bytes) -> bytes:
        check_ready(self._why_not_ready)
        args = decode_preempt(body)
        await self._pending_binds.wait(args.pod.uid)
        victims = await self._victims(args)
        self._metrics.requests.labels("preempt", "victims" if victims else "no-victims").inc()
        logger.info(
            "preemption helps on %d of %d nodes", len(victims), len(args.proposals), extra={"pod": args.pod.key}
        )
        return encode_preempt_result(victims)

    async def _victims(self, args: PreemptArgs) -> dict[str, Proposal]:
        for each in self._decider.hooks.reviews:
            await each.settle_on(args.proposals.keys(), patience=self._review_patience)
        in_doubt = self._nodes_in_doubt()
        proposals = {node: each for node, each in args.proposals.items() if node not in in_doubt}
        victims = await in_turns(self._preemption.preempt(replace(args, proposals=proposals)))
        in_doubt = self._nodes_in_doubt()  # a review may have come meanwhile
        return {node: each for node, each in victims.items() if node not in in_doubt}

    def _nodes_in_doubt(self) -> frozenset[str]:
        return frozenset[str]().union(*(each.open_nodes() for each in self._decider.hooks.reviews))
