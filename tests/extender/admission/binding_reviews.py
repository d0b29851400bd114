"""Bindings as an API server has them reviewed, and what it makes of the result."""

from __future__ import annotations

import asyncio
import copy
import json
from collections.abc import Mapping
from typing import Any

import msgspec

from gas.extender.admission.review import Review, ReviewResult
from gas.extender.leadership.catching_up import CatchUp
from gas.objects.stored import Pod
from tests.builders import container, pod_json
from tests.extender.decider import DrivenDecider

Object = dict[str, Any]
NOTHING = msgspec.Raw(b"null")


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
    return Review(
        uid="review",
        resource=resource,
        subresource="binding" if resource == "pods" else "",
        operation=operation,
        name=sent["metadata"]["name"],
        namespace="default",
        user="scheduler-of-others",
        dry_run=dry_run,
        new=msgspec.Raw(json.dumps(sent).encode()),
        old=NOTHING,
    )


async def reviewed(decider: DrivenDecider, sent: Object, **fields: Any) -> ReviewResult:
    return await decider.bind_reviews(review_of(sent, **fields))


def outcomes(decider: DrivenDecider, outcome: str) -> float:
    """Return how many reviewed Bindings had this outcome."""
    return decider.counted("reviewed_bindings_total", outcome=outcome)


async def kill(decider: DrivenDecider) -> None:
    """End a decider as SIGKILL does: nothing that it was doing goes on."""
    decider.not_ready = "killed"
    tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def catch_up(decider: DrivenDecider) -> None:
    """Do what an extender does before it decides."""
    synced = asyncio.Event()
    synced.set()

    async def list_pods() -> list[Pod]:
        return decider.cluster.all()

    async def change_version(namespace: str, name: str, uid: str) -> bool:
        return await decider.change_version(namespace, name, uid)

    await CatchUp(
        list_pods=list_pods,
        list_waiting=list_pods,
        learn=decider.pods.learn,
        synced=synced,
        change_version=change_version,
    )()


def patched(sent: Object, result: ReviewResult) -> Object:
    """Return the Binding as the API server would write it."""
    assert not result.refusal
    changed = copy.deepcopy(sent)
    for operation in result.patch:
        _, metadata, name = operation.path.split("/")
        assert (operation.op, metadata) == ("add", "metadata")
        changed["metadata"][name] = copy.deepcopy(operation.value)
    return changed
