"""The preempt verb: from the pods that kube-scheduler would evict to those that must really go."""

from __future__ import annotations

import logging
from collections.abc import Callable

from gas.extender.decider import Decider
from gas.extender.filter import in_turns
from gas.extender.metrics import Metrics
from gas.extender.pending_binds import PendingBinds
from gas.extender.readiness import NotReady
from gas.extender.wire import decode_preempt, encode_preempt_result

logger = logging.getLogger(__name__)


class Preempt:
    """Called with the body of a request, returns the body of the response.

    Raises Unreadable if the body is not JSON, BadRequest if it is no request, and NotReady while this replica may not
    decide.

    why_not_ready  returns the reason while this replica may not decide, else None
    """

    def __init__(
        self,
        decider: Decider,
        pending_binds: PendingBinds,
        metrics: Metrics,
        *,
        why_not_ready: Callable[[], str | None],
    ) -> None:
        self._decider = decider
        self._pending_binds = pending_binds
        self._metrics = metrics
        self._why_not_ready = why_not_ready

    async def __call__(self, body: bytes) -> bytes:
        if (why_not := self._why_not_ready()) is not None:
            raise NotReady(why_not)
        args = decode_preempt(body)
        await self._pending_binds.wait(args.pod.uid)
        victims = await in_turns(self._decider.preempt(args))
        self._metrics.requests.labels("preempt", "victims" if victims else "no-victims").inc()
        logger.info(
            "preemption helps on %d of %d nodes", len(victims), len(args.proposals), extra={"pod": args.pod.key}
        )
        return encode_preempt_result(victims)
