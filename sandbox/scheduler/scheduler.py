"""A scheduler loop that gives pods their nodes as kube-scheduler does with one extender."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

import aiohttp

from sandbox.api.client import ApiClient, EventRecorder, Mirror, Object, RefusedByApi
from sandbox.api.kinds import is_over, timestamp
from sandbox.api.patches import STRATEGIC_MERGE_PATCH
from sandbox.scheduler.extender_client import ExtenderAddress, ExtenderClient, ExtenderFailed
from sandbox.scheduler.node_fit import free_share, reasons_against, requested_by_node
from sandbox.scheduler.queue import SchedulingQueue


def waiting_sentence(nodes: int, reasons: Iterable[str]) -> str:
    """Return the sentence in which kube-scheduler says why a pod waits, with equal reasons counted together.

    Example: ``0/3 nodes are available: 1 Insufficient gpu.intel.com/i915, 2 no card has ….``

    reasons  those of all nodes, one or more per node
    """
    counted = sorted(f"{count} {reason}" for reason, count in Counter(reasons).items())
    if not counted:
        return f"0/{nodes} nodes are available."
    return f"0/{nodes} nodes are available: {', '.join(counted)}."


NAME = "default-scheduler"


class Scheduler:
    """Try the pods that have no node and name this scheduler, one after another.

    The nodes for a pod have to pass `node_fit` and, if the pod requests a resource that the extender manages, the
    extender's filter. Of these the scheduler takes the one with the largest free share, to which the extender's scores
    are added if it is asked for them, and the extender binds the pod. A pod without a node gets the condition and the
    event that kube-scheduler writes. It is tried again after its backoff, once a pod ends or a node changes.
    """

    def __init__(self, client: ApiClient, address: ExtenderAddress, queue: SchedulingQueue | None = None) -> None:
        self._client = client
        self._address = address
        self._queue = queue or SchedulingQueue()
        self._pods = Mirror(client, "/api/v1/pods", self._pod_changed)
        self._nodes = Mirror(client, "/api/v1/nodes", self._node_changed)
        self._events = EventRecorder(client, NAME)
        self._assumed: dict[str, str] = {}
        self._changed = asyncio.Event()

    async def run(self) -> None:
        """Schedule until cancelled. Goes on after failures of the API server and of the extender."""
        async with aiohttp.ClientSession() as session, asyncio.TaskGroup() as tasks:
            extender = ExtenderClient(self._address, session)
            tasks.create_task(self._pods.run())
            tasks.create_task(self._nodes.run())
            tasks.create_task(self._schedule(extender))

    async def _schedule(self, extender: ExtenderClient) -> None:
        await self._pods.complete.wait()
        await self._nodes.complete.wait()
        clock = asyncio.get_running_loop().time
        while True:
            self._changed.clear()
            uid = self._queue.due(clock())
            if uid is None:
                await self._wait_until(self._queue.next_turn())
                continue
            wakes, pod = self._queue.wakes, self._pods.objects[uid]
            try:
                placed = await self._place(pod, extender)
            except (ExtenderFailed, RefusedByApi, aiohttp.ClientError, TimeoutError) as failure:
                self._queue.fail(uid, clock())
                await self._report(pod, "SchedulerError", str(failure))
                continue
            if placed:
                self._queue.remove(uid)
            else:
                self._queue.refuse(uid, clock(), wakes)

    async def _wait_until(self, moment: float | None) -> None:
        clock = asyncio.get_running_loop().time
        try:
            async with asyncio.timeout(None if moment is None else max(moment - clock(), 0)):
                await self._changed.wait()
        except TimeoutError:
            return

    async def _place(self, pod: Object, extender: ExtenderClient) -> bool:
        """Find a node and bind the pod. Return whether it has a node now.

        Raises ExtenderFailed, RefusedByApi and aiohttp.ClientError.
        """
        nodes = {node["metadata"]["name"]: node for node in self._nodes.objects.values()}
        used = requested_by_node(nodes, self._pods.objects, self._assumed)
        reasons = {name: reasons_against(pod, node, used[name]) for name, node in nodes.items()}
        fitting = sorted(name for name, why in reasons.items() if not why)
        is_managed = extender.manages(pod)
        if fitting and is_managed:
            try:
                filtered = await extender.filter(pod, fitting)
            except ExtenderFailed:
                if not self._address.ignorable:
                    raise
            else:
                reasons |= {name: [why] for name, why in filtered.reasons.items()}
                fitting = [name for name in fitting if name in filtered.passed]
        if not fitting:
            sentence = waiting_sentence(len(nodes), [why for whys in reasons.values() for why in whys])
            await self._report(pod, "Unschedulable", sentence)
            return False
        scores: Mapping[str, int] = {}
        if is_managed and self._address.weight and len(fitting) > 1:
            scores = await extender.prioritize(pod, fitting)
        node = max(fitting, key=lambda name: scores.get(name, 0) + 100 * free_share(pod, nodes[name], used[name]))
        await self._bind(pod, node, extender if is_managed else None)
        return True

    async def _bind(self, pod: Object, node: str, extender: ExtenderClient | None) -> None:
        metadata = pod["metadata"]
        if extender is None or not await self._bound_by(extender, pod, node):
            path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}/binding"
            target = {"kind": "Node", "name": node}
            names = {"name": metadata["name"], "uid": metadata["uid"]}
            await self._client.post(path, {"metadata": names, "target": target})
        if metadata["uid"] in self._pods.objects:
            self._assumed[metadata["uid"]] = node
        key = f"{metadata['namespace']}/{metadata['name']}"
        await self._events.record(pod, "Normal", "Scheduled", f"Successfully assigned {key} to {node}")

    async def _bound_by(self, extender: ExtenderClient, pod: Object, node: str) -> bool:
        """Let the extender bind the pod. Return False if it failed and is ignorable: the scheduler then binds."""
        try:
            await extender.bind(pod, node)
        except ExtenderFailed:
            if not self._address.ignorable:
                raise
            return False
        return True

    async def _report(self, pod: Object, reason: str, message: str) -> None:
        """Write the condition and the event. If that fails, the next attempt writes them."""
        try:
            await self._set_condition(pod, reason, message)
            await self._events.record(pod, "Warning", "FailedScheduling", message)
        except (RefusedByApi, aiohttp.ClientError, TimeoutError):
            return

    async def _set_condition(self, pod: Object, reason: str, message: str) -> None:
        metadata = pod["metadata"]
        known = pod.get("status", {}).get("conditions") or []
        wanted = {"type": "PodScheduled", "status": "False", "reason": reason, "message": message}
        if any(wanted.items() <= condition.items() for condition in known):
            return
        condition: dict[str, Any] = wanted | {"lastTransitionTime": timestamp(datetime.now(UTC))}
        path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}/status"
        patch = {"metadata": {"uid": metadata["uid"]}, "status": {"conditions": [condition]}}
        await self._client.patch(path, patch, STRATEGIC_MERGE_PATCH)

    def _pod_changed(self, before: Object | None, after: Object | None) -> None:
        pod = after or before
        if pod is None:
            return
        uid = pod["metadata"]["uid"]
        if after is None or after["spec"].get("nodeName"):
            self._assumed.pop(uid, None)
        if after is not None and is_waiting(after) and uid not in self._assumed:
            self._queue.add(uid)
        else:
            self._queue.remove(uid)
        if after is None:
            self._events.forget(uid)
        if before is not None and not is_over(before) and (after is None or is_over(after)):
            self._queue.wake()
        self._changed.set()

    def _node_changed(self, _before: Object | None, _after: Object | None) -> None:
        self._queue.wake()
        self._changed.set()


def is_waiting(pod: Object) -> bool:
    """Return whether a pod waits for a node from this scheduler."""
    spec = pod["spec"]
    return (
        not spec.get("nodeName")
        and not spec.get("schedulingGates")
        and spec.get("schedulerName", NAME) == NAME
        and "deletionTimestamp" not in pod["metadata"]
        and not is_over(pod)
    )
