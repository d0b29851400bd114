"""A scheduler that behaves as kube-scheduler does: the bind of a pod runs beside the filter of the next one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, cast

import aiohttp

from sandbox.api.client import ApiClient, Mirror, RefusedByApi
from sandbox.api.kinds import is_over
from sandbox.scheduler.node_fit import reasons_against, requested_by_node
from sandbox.scheduler.queue import SchedulingQueue
from sandbox.scheduler.scheduler import is_waiting
from simulation.chance import Chance
from simulation.loop import Process
from simulation.network import Client, Network, Server
from simulation.objects import requests_cards

PATIENCE = 30.0
"""Seconds for a response of the extender, its ``httpTimeout``."""

Object = dict[str, Any]


class ExtenderFailed(Exception):
    """The extender did not decide."""


def nominated_nodes(pod: Object, pods: Mapping[str, Object]) -> dict[str, str]:
    """Return the nodes for which other pods of the pod's priority or a higher one are nominated, by UID.

    kube-scheduler counts the requests of these pods there, as if they had been bound.
    """
    return {
        uid: other["status"]["nominatedNodeName"]
        for uid, other in pods.items()
        if uid != pod["metadata"]["uid"]
        and other["status"].get("nominatedNodeName")
        and (other["spec"].get("priority") or 0) >= (pod["spec"].get("priority") or 0)
    }


def frees_room(before: Object, after: Object | None) -> bool:
    """Return whether a change of a pod, or its end (None), gives up room that is taken by it or kept for it.

    kube-scheduler tries pods again then, also those that wait for a nominated pod's room.
    """
    if after is None or is_over(after):
        return not is_over(before)
    nominated = before["status"].get("nominatedNodeName")
    return bool(nominated) and nominated != (after["spec"].get("nodeName") or after["status"].get("nominatedNodeName"))


class Scheduler:
    """A loop that filters by the sums of nodes, asks the extender, chooses a node by chance, and has the extender bind.

    replicas  returns the extenders that the Service leads to now
    evicting  called with the pod, the node, the UIDs of the pods that are evicted for it, and whether pods are being
              bound to the node; None without preemption
    eager     whether it tries refused pods again without a reason, with hardly a pause
    """

    def __init__(
        self,
        network: Network,
        process: Process,
        api: Client,
        replicas: Callable[[], list[Server]],
        chance: Chance,
        trace: Callable[..., None],
        *,
        eager: bool = False,
        evicting: Callable[[Object, str, list[str], bool], None] | None = None,
    ) -> None:
        self._network = network
        self._process = process
        self._api = api
        self._replicas = replicas
        self._chance = chance
        self._trace = trace
        self._evicting = evicting
        self._queue = SchedulingQueue(first=0.1, longest=0.4, forgotten=0.5) if eager else SchedulingQueue()
        self._pods = Mirror(cast(ApiClient, api), "/api/v1/pods", self._pod_changed)
        self._nodes = Mirror(cast(ApiClient, api), "/api/v1/nodes", self._node_changed)
        self._assumed: dict[str, str] = {}
        self._changed = asyncio.Event()
        self._last: Server | None = None

    async def run(self) -> None:
        async with asyncio.TaskGroup() as self._tasks:
            self._tasks.create_task(self._pods.run())
            self._tasks.create_task(self._nodes.run())
            await self._pods.complete.wait()
            await self._nodes.complete.wait()
            await self._schedule()

    async def _schedule(self) -> None:
        clock = asyncio.get_running_loop().time
        while True:
            self._changed.clear()
            uid = self._queue.due(clock())
            if uid is None:
                moment = self._queue.next_turn()
                try:
                    async with asyncio.timeout_at(moment):
                        await self._changed.wait()
                except TimeoutError:
                    pass
                continue
            wakes, pod = self._queue.wakes, self._pods.objects[uid]
            key = pod["metadata"]["name"]
            try:
                node, why = await self._find(pod)
            except ExtenderFailed as failure:
                self._trace("scheduler", f"{key}: filter failed: {failure}")
                self._queue.fail(uid, clock())
                continue
            if node is None:
                self._trace("scheduler", f"{key}: no node: {why}")
                await self._preempt(pod)
                self._queue.refuse(uid, clock(), wakes)
                continue
            if uid not in self._pods.objects:
                continue
            self._assumed[uid] = node
            self._queue.remove(uid)
            self._tasks.create_task(self._bind(pod, node))

    async def _find(self, pod: Object) -> tuple[str | None, str]:
        nodes = {node["metadata"]["name"]: node for node in self._nodes.objects.values()}
        used = requested_by_node(
            nodes, self._pods.objects, {**nominated_nodes(pod, self._pods.objects), **self._assumed}
        )
        short = {name: reasons_against(pod, node, used[name]) for name, node in nodes.items()}
        fitting = sorted(name for name, reasons in short.items() if not reasons)
        if not fitting:
            return None, str(short)
        if not requests_cards(pod):
            return self._chance.one_of(fitting), ""
        answer = await self._ask("filter", {"Pod": pod, "Nodes": None, "NodeNames": fitting})
        if answer.get("Error"):
            raise ExtenderFailed(answer["Error"])
        passing = answer.get("NodeNames") or []
        failed = answer.get("FailedNodes") or {}
        return (
            (self._chance.one_of(sorted(passing)), "") if passing else (None, "; ".join(sorted(set(failed.values()))))
        )

    async def _preempt(self, pod: Object) -> None:
        """Make room for a pod that fits no node, as the extender says, or end its nomination."""
        if self._evicting is None or not pod["spec"].get("priority"):
            return
        nominated = pod["status"].get("nominatedNodeName")
        if nominated and any(
            other["spec"].get("nodeName") == nominated and "deletionTimestamp" in other["metadata"]
            for other in self._pods.objects.values()
        ):
            return  # those that leave may make enough room
        proposals = {
            node["metadata"]["name"]: {"Pods": [], "NumPDBViolations": 0} for node in self._nodes.objects.values()
        }
        try:
            answer = await self._ask("preempt", {"Pod": pod, "NodeNameToMetaVictims": proposals})
        except ExtenderFailed as failure:
            self._trace("scheduler", f"preempt failed: {failure}")
            return
        found = answer.get("NodeNameToMetaVictims") or {}
        node = self._chance.one_of(sorted(found)) if found else ""
        victims = sorted(each["UID"] for each in found[node]["Pods"]) if node else []
        if node:
            self._evicting(pod, node, victims, node in self._assumed.values())
        path = f"/api/v1/namespaces/default/pods/{pod['metadata']['name']}/status"
        patch = {"metadata": {"uid": pod["metadata"]["uid"]}, "status": {"nominatedNodeName": node or None}}
        try:
            if node or nominated:
                await self._api.patch(path, patch)
            for uid in victims:
                if (victim := self._pods.objects.get(uid)) is not None:
                    name = victim["metadata"]["name"]
                    await self._api.delete(f"/api/v1/namespaces/default/pods/{name}", {"preconditions": {"uid": uid}})
        except (RefusedByApi, aiohttp.ClientError, TimeoutError) as failure:
            self._trace("scheduler", f"preemption ends: {failure}")

    async def _bind(self, pod: Object, node: str) -> None:
        metadata = pod["metadata"]
        args = {
            "PodName": metadata["name"],
            "PodNamespace": metadata["namespace"],
            "PodUID": metadata["uid"],
            "Node": node,
        }
        error = ""
        try:
            if requests_cards(pod):
                error = (await self._ask("bind", args)).get("Error", "")
            else:
                binding = {"metadata": {"name": metadata["name"]}, "target": {"kind": "Node", "name": node}}
                await self._api.post(f"/api/v1/namespaces/default/pods/{metadata['name']}/binding", binding)
        except (ExtenderFailed, RefusedByApi, aiohttp.ClientError, TimeoutError) as failure:
            error = str(failure) or type(failure).__name__
        self._trace("scheduler", f"{metadata['name']}: bind to {node}: {error or 'bound'}")
        if not error:
            return
        uid = metadata["uid"]
        self._assumed.pop(uid, None)
        now = self._pods.objects.get(uid)
        if now is not None and not now["spec"].get("nodeName") and "deletionTimestamp" not in now["metadata"]:
            self._queue.add(uid)
            self._queue.fail(uid, asyncio.get_running_loop().time())
        self._queue.wake()
        self._changed.set()

    async def _ask(self, verb: str, args: Object) -> Object:
        replicas = self._replicas()
        if not replicas:
            await asyncio.sleep(0.01)
            raise ExtenderFailed("no endpoint")
        server = self._last if self._last in replicas else self._chance.one_of(replicas)
        client = Client(self._network, self._process, server, patience=PATIENCE)
        self._last = None
        try:
            answer = await client.send("POST", f"/scheduler/{verb}", args)
        except (RefusedByApi, aiohttp.ClientError, TimeoutError) as failure:
            raise ExtenderFailed(f"{server.name}: {type(failure).__name__} {failure}") from None
        if not answer.get("Error"):
            self._last = server
        return answer

    def _pod_changed(self, before: Object | None, after: Object | None) -> None:
        pod = after or before
        if pod is None:
            return
        uid = pod["metadata"]["uid"]
        if after is None or after["spec"].get("nodeName"):
            self._assumed.pop(uid, None)
        waits = after is not None and is_waiting(after)
        if waits and uid not in self._assumed:
            self._queue.add(uid)
        elif not waits:
            self._queue.remove(uid)
        if before is not None and frees_room(before, after):
            self._queue.wake()
        self._changed.set()

    def _node_changed(self, _before: Object | None, _after: Object | None) -> None:
        self._queue.wake()
        self._changed.set()
