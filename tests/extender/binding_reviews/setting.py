"""Bindings as an API server has them reviewed, and what it makes of the result."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Mapping
from typing import Any

from gas.extender.admission.review import Review, ReviewResult
from gas.extender.binding_reviews.reviews import BindReviews, ReviewTimes
from gas.extender.hooks import Hooks
from gas.extender.late_bindings import end_earlier_bindings
from gas.extender.readiness import read_bound_pods
from gas.objects.stored import Pod
from gas.values.timing import Timing
from tests.builders import container, pod_json
from tests.extender.admission.reviews import review
from tests.extender.binding import filled
from tests.extender.cluster import Cluster
from tests.extender.decider import DrivenDecider

Object = dict[str, Any]


class ReviewingDecider(DrivenDecider):
    """A decider that reviews the Bindings of others as well.

    seconds  by the clock of the reviews
    """

    def __init__(
        self,
        cluster: Cluster | None = None,
        *,
        binding: float = 1000.0,
        watch_patience: float = 0.0,
        read_timeout: float = 30.0,
        **options: Any,
    ) -> None:
        self.seconds = 0.0
        super().__init__(cluster, clock=lambda: self.seconds, **options)
        self.bind_reviews = BindReviews(
            self,
            self.pending_binds,
            self.metrics,
            settler=self.settler,
            why_not_ready=lambda: self.not_ready,
            times=ReviewTimes(binding=binding, watch_patience=watch_patience, read_timeout=read_timeout),
            timing=Timing(monotonic=lambda: self.seconds),
        )
        self.unbound = self.bind_reviews.unbound
        self.add(Hooks(handlers=(self.unbound,), observers=(self.bind_reviews,)))


def following(*pods: dict[str, Any], **options: Any) -> ReviewingDecider:
    """Return a decider that knows nodes n1 and n2, of two cards each, and these pods."""
    return filled(ReviewingDecider(**options), *pods)


def plain_pod(**fields: Any) -> dict[str, Any]:
    """Return a pod that asks for no cards."""
    return pod_json(container(), **{"name": "plain", "uid": "p1", **fields})


def binding(pod: Mapping[str, Any], node: str = "n1", **metadata: Any) -> Object:
    """Return a Binding without UID, as a script writes it, unless ``metadata`` has one."""
    return {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": pod["metadata"]["name"], **metadata},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    }


def review_of(sent: Object, *, dry_run: bool = False, resource: str = "pods", operation: str = "CREATE") -> Review:
    """Return the review of a Binding in the namespace ``default``."""
    subresource = "binding" if resource == "pods" else None
    return review(sent, resource=resource, subresource=subresource, operation=operation, name="", dry_run=dry_run)


async def reviewed(decider: ReviewingDecider, sent: Object, **fields: Any) -> ReviewResult:
    return await decider.bind_reviews(review_of(sent, **fields))


def outcomes(decider: ReviewingDecider, outcome: str) -> float:
    """Return how many reviewed Bindings had this outcome."""
    return decider.counted("reviewed_bindings_total", outcome=outcome)


async def kill(decider: ReviewingDecider) -> None:
    """End a decider as SIGKILL does: nothing that it was doing goes on."""
    decider.not_ready = "killed"
    tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def catch_up(decider: ReviewingDecider) -> None:
    """Do what an extender does before it decides."""

    async def list_pods() -> list[Pod]:
        return decider.cluster.all()

    await end_earlier_bindings(list_pods, decider._change_version)
    await read_bound_pods(list_pods, decider.pods.learn)


def patched(sent: Object, result: ReviewResult) -> Object:
    """Return the Binding as the API server would write it."""
    assert not result.refusal
    changed = copy.deepcopy(sent)
    for operation in result.patch:
        _, metadata, name = operation.path.split("/")
        assert (operation.op, metadata) == ("add", "metadata")
        changed["metadata"][name] = copy.deepcopy(operation.value)
    return changed


async def allowed(decider: ReviewingDecider, pod: Mapping[str, Any], node: str = "n1", **metadata: Any) -> Object:
    """Return a Binding as the API server would write it after its review."""
    sent = binding(pod, node, **metadata)
    return patched(sent, await reviewed(decider, sent))
