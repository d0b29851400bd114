"""The verb preempt: its response, and reviews beside it, whose cards are free again in a moment."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import msgspec
import pytest

from gas.extender.bookings import State
from gas.extender.preemption.preemption import Preempt, Preemption
from gas.extender.preemption.wire import PreemptArgs, Proposal
from gas.extender.readiness import NotReady
from gas.extender.verdicts import Turns
from gas.extender.wire import BadRequest
from gas.objects.stored import HostPod, Node, Pod
from tests.background import turns
from tests.builders import node_json
from tests.extender.binding_reviews.setting import ReviewingDecider, allowed, binding, reviewed
from tests.extender.preemption.setting import PREEMPTING, priority_pod

LOW, HIGH, WAITS = priority_pod("low", priority=1), priority_pod("high", priority=9), priority_pod("waits", priority=1)


class Preempting(ReviewingDecider):
    """A decider that preempts, with a node ``n`` of two cards and what its watches show."""

    def __init__(self, *, patience: float = 0.0) -> None:
        super().__init__(options=PREEMPTING, patience=patience)
        self.preemption = Preemption(self)
        self.add(self.preemption.hooks)
        sent = node_json("n", cards=2)
        sent["status"]["allocatable"] |= {"cpu": "64", "memory": "256Gi", "pods": "110"}
        self.node_handlers.changed(msgspec.convert(sent, Node))
        self.cluster.on_change = self.see_as_the_watch_does
        for pod in (LOW, HIGH, WAITS):
            self.cluster.add(pod)
        self.verb = Preempt(
            self,
            self.preemption,
            self.pending_binds,
            self.metrics,
            self.settler,
            why_not_ready=lambda: self.not_ready,
            review_patience=0.5,
        )

    def see_as_the_watch_does(self, _event: str, pod: Pod) -> None:
        self.pod_handlers.changed(msgspec.convert(self.cluster.pods[pod.key], HostPod))

    async def victims(self, pod: dict[str, Any] = HIGH, node: str = "n") -> Any:
        """Return what goes from a node so that a pod fits."""
        request = {"Pod": pod, "NodeNameToMetaVictims": {node: {"Pods": [{"UID": "low"}], "NumPDBViolations": 3}}}
        return json.loads(await self.verb(json.dumps(request).encode()))["NodeNameToMetaVictims"]


@pytest.fixture
async def decider() -> Preempting:
    decider = Preempting()
    assert await decider.bind(LOW, "n") == ""
    return decider


async def test_responses_are_counted_and_logged_by_whether_pods_must_go(
    decider: Preempting, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "gas.extender.preemption.preemption")
    assert await decider.bind(WAITS, "n") == ""
    ((node, victims),) = (await decider.victims()).items()
    assert (node, len(victims["Pods"]), victims["NumPDBViolations"]) == ("n", 1, 0)
    assert await decider.victims(priority_pod("other", priority=1)) == {}
    assert [decider.counted("requests_total", verb="preempt", result=each) for each in ("victims", "no-victims")] == [
        1,
        1,
    ]
    logged = [(record.getMessage(), vars(record)["pod"]) for record in caplog.records]
    assert logged == [
        ("preemption helps on 1 of 1 nodes", "default/high"),
        ("preemption helps on 0 of 1 nodes", "default/other"),
    ]


async def test_nothing_is_decided_while_not_ready_and_for_an_invalid_request(decider: Preempting) -> None:
    with pytest.raises(BadRequest):
        await decider.verb(b"{}")
    decider.not_ready = "another replica leads"
    with pytest.raises(NotReady, match="another replica leads"):
        await decider.victims()


async def test_the_bind_of_the_pod_before_is_waited_for() -> None:
    decider = Preempting(patience=30.0)
    for pod in (LOW, WAITS):
        await decider.ask(pod, "n")
        asking = asyncio.create_task(decider.victims())
        await turns()
        assert not asking.done()
        assert await decider.bind(pod, "n") == ""
        assert bool(await asking) == (pod is WAITS), "the node is full only with both"
    decider.pending_binds.passed("high")
    assert await asyncio.wait_for(decider.victims(), 5), "its own bind is not waited for"


async def test_no_pod_is_evicted_for_a_review_that_no_binding_follows(decider: Preempting) -> None:
    assert not (await reviewed(decider, binding(WAITS, "n"))).refusal
    assert await decider.victims() == {}
    assert decider.ledger.booking("waits") is None
    assert (await decider.ask(HIGH, "n"))["NodeNames"] == ["n"]


async def test_reviews_for_other_nodes_than_the_proposed_ones_stay_open(decider: Preempting) -> None:
    await reviewed(decider, binding(WAITS, "n"))
    assert await decider.victims(node="m") == {}
    assert decider.bookings.state("waits") is State.REVIEWED
    await decider.settle()


async def test_pods_are_evicted_for_a_binding_that_was_written(decider: Preempting) -> None:
    decider.cluster.write_binding("default", await allowed(decider, WAITS, "n"))
    assert (await decider.victims())["n"]["Pods"] in ([{"UID": "low"}], [{"UID": "waits"}])


async def test_a_node_whose_reviews_cannot_be_settled_drops_out(decider: Preempting) -> None:
    await reviewed(decider, binding(WAITS, "n"))
    decider.cluster.away = True
    assert await decider.victims() == {}
    decider.cluster.away = False
    await decider.settle()


async def test_a_review_that_comes_right_before_the_search_evicts_no_pod(decider: Preempting) -> None:
    written = await allowed(decider, WAITS, "n")
    decider.cluster.write_binding("default", written)
    other = priority_pod("other", priority=1)
    decider.cluster.add(other)
    settle = decider.settler.settled_on

    async def then_another_review(*args: Any, **options: Any) -> None:
        await settle(*args, **options)
        decider.cluster.remove("default/waits")
        decider.pod_handlers.deleted(msgspec.convert(WAITS, HostPod))
        await reviewed(decider, binding(other, "n"))

    decider.settler.settled_on = then_another_review  # type: ignore[method-assign]
    assert await decider.victims() == {}
    await decider.settle()


async def test_a_review_that_comes_between_two_nodes_of_the_search_evicts_no_pod(decider: Preempting) -> None:
    other = priority_pod("other", priority=1)
    decider.cluster.add(other)
    search = decider.preemption.preempt

    def after_others(args: PreemptArgs) -> Turns[dict[str, Proposal]]:
        coming = asyncio.ensure_future(reviewed(decider, binding(other, "n")))
        while not coming.done():
            yield
        return (yield from search(args))

    decider.preemption.preempt = after_others  # type: ignore[method-assign]
    assert await decider.victims() == {}
    assert decider.bookings.state("other") is State.REVIEWED
    await decider.settle()
