"""The preempt verb: its requests, its responses and its metrics."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gas.extender.filter import PendingBinds
from gas.extender.metrics import Metrics
from gas.extender.preemption.verb import Preempt
from gas.extender.readiness import NotReady
from gas.extender.wire import BadRequest
from tests.extender.preemption.setting import PreemptingCluster, priority_pod


class Verb:
    """The verb over a cluster with one node ``n`` of one card that ``low`` holds."""

    def __init__(self) -> None:
        self.cluster = PreemptingCluster()
        self.cluster.add_node(cards=1)
        self.cluster.run("low", priority=1)
        self.metrics = Metrics("1")
        self.not_ready: str | None = None
        self.verb = Preempt(
            self.cluster.decider,
            self.cluster.preemption,
            PendingBinds(patience=0.0),
            self.metrics,
            why_not_ready=lambda: self.not_ready,
        )

    async def ask(self, pod: dict[str, Any], **members: Any) -> Any:
        return json.loads(await self.verb(json.dumps({"Pod": pod, **members}).encode()))

    def counted(self, result: str) -> float:
        labels = {"verb": "preempt", "result": result}
        return self.metrics.registry.get_sample_value("gas_extender_requests_total", labels) or 0.0


async def test_the_victims_are_named_by_uid() -> None:
    verb = Verb()
    response = await verb.ask(
        priority_pod("high", priority=9), NodeNameToMetaVictims={"n": {"Pods": [{"UID": "low"}], "NumPDBViolations": 3}}
    )
    assert response == {"NodeNameToMetaVictims": {"n": {"Pods": [{"UID": "low"}], "NumPDBViolations": 0}}}
    assert verb.counted("victims") == 1


async def test_a_request_with_whole_pods_gets_uids_too() -> None:
    verb = Verb()
    response = await verb.ask(
        priority_pod("high", priority=9), NodeNameToVictims={"n": {"Pods": [verb.cluster.pods["low"]]}}
    )
    assert response == {"NodeNameToMetaVictims": {"n": {"Pods": [{"UID": "low"}], "NumPDBViolations": 0}}}


async def test_a_response_without_victims_is_counted_as_such() -> None:
    verb = Verb()
    response = await verb.ask(priority_pod("high", priority=1), NodeNameToMetaVictims={"n": {"Pods": [{"UID": "low"}]}})
    assert response == {"NodeNameToMetaVictims": {}}
    assert verb.counted("no-victims") == 1


async def test_nothing_is_decided_while_not_ready_and_for_an_invalid_request() -> None:
    verb = Verb()
    with pytest.raises(BadRequest):
        await verb.verb(b"{}")
    verb.not_ready = "another replica leads"
    with pytest.raises(NotReady, match="another replica leads"):
        await verb.verb(b"{}")
