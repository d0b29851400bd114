"""Give pods their nodes as kube-scheduler does with one extender."""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Protocol

import msgspec

from gas.extender.host_resources import PODS as SLOTS
from gas.extender.host_resources import node_allocatable, pod_requests
from gas.inspection.objects import InspectedNode, InspectedPod, exclusion
from gas.objects.stored import HostPod, Node
from sandbox.api.client import API_FAILURES, ApiRequests, Mirror, Object, path_of
from sandbox.api.kinds import POD_GROUPS, is_over, system_time, timestamp
from sandbox.scheduler.extender_client import ExtenderClient, ExtenderFailed
from sandbox.scheduler.queue import SchedulingQueue


def requests_of(pod: Mapping[str, Any]) -> dict[str, int]:
    """Return what a pod takes of a node, apart from its slot: CPU in thousandths, the rest in whole units."""
    return {name: amount for name, amount in pod_requests(msgspec.convert(pod, HostPod)) if name != SLOTS}


def add_requests(sums: Counter[str], pod: Mapping[str, Any], times: int = 1) -> None:
    """Add what a pod takes of its node until it has ended; take it away if ``times`` is -1."""
    if not is_over(pod):
        for name, amount in requests_of(pod).items():
            sums[name] += times * amount


def enough_nodes(count: int) -> int:
    """Return after how many fitting nodes of a cluster kube-scheduler looks at no others."""
    return count if count < 100 else max(100, count * max(50 - count // 125, 5) // 100)


_RULES = {
    "cordoned": "node(s) were unschedulable",
    "taint": "node(s) had untolerated taint(s)",
    "match": "node(s) didn't match Pod's node affinity/selector",
}
"""A word of what `exclusion` returns -> kube-scheduler's reason."""


def reasons_against(
    pod: Mapping[str, Any], requests: Mapping[str, int], node: Mapping[str, Any], free: Mapping[str, int]
) -> list[str]:
    """Return kube-scheduler's reasons why the pod with these requests does not fit the node; empty if it fits."""
    spec, on_node = pod["spec"], node.get("spec") or {}
    if on_node.get("unschedulable") or on_node.get("taints") or spec.get("nodeSelector") or spec.get("affinity"):
        rule = exclusion(msgspec.convert(pod, InspectedPod), msgspec.convert(node, InspectedNode))
        if rule:
            return [next(reason for words, reason in _RULES.items() if words in rule)]
    return [f"Insufficient {name}" for name, amount in sorted(requests.items()) if amount > free.get(name, 0)]


def free_share(requests: Mapping[str, int], free: Mapping[str, int], allocatable: Mapping[str, int]) -> float:
    """Return the share of the requests that would stay free on a node, from 0 to 1."""
    shares = [(free[name] - requests[name]) / allocatable[name] for name in requests if free.get(name)]
    return sum(shares) / len(shares) if shares else 0.0


def waiting_sentence(nodes: int, reasons: Iterable[str]) -> str:
    """Return kube-scheduler's sentence about why a pod waits, with equal reasons counted together.

    Example: ``0/3 nodes are available: 1 Insufficient gpu.intel.com/i915, 2 no card has ….`` ``reasons`` are those of
    all nodes, one or more per node.
    """
    counted = sorted(f"{count} {reason}" for reason, count in Counter(reasons).items())
    if not counted:
        return f"0/{nodes} nodes are available."
    return f"0/{nodes} nodes are available: {', '.join(counted)}."


NAME = "default-scheduler"


Failed = Callable[[Object, str, str], Awaitable[None]]
"""Called with a pod that has no node, the reason (Unschedulable or SchedulerError) and a sentence."""

Choose = Callable[[Sequence[str], Callable[[str], float]], str]
"""Returns one of the nodes that fit; the function returns a node's score."""

Evicting = Callable[[Object, str, list[str], bool], None]
"""Called with a pod, its node, the UIDs of pods that are evicted for it, and whether pods are being bound there."""


class VolumesFailed(Exception):
    """The volumes of a pod were not made; the pod is tried again."""


class LateVolumes(Protocol):
    """Volumes that are made once the node of their pod is chosen, as with ``WaitForFirstConsumer``."""

    def node_of(self, pod: Object, /) -> str | None:
        """Return the only node that a pod can have, since its volumes are there; None if they may be made anywhere."""

    def are_missing(self, pod: Object, /) -> bool: ...

    async def make(self, pod: Object, node: str, /) -> None:
        """Make the volumes of a pod. Raises VolumesFailed."""


class Scheduler:
    """Try the pods that have no node and name this scheduler, one after another.

    The nodes for a pod have to pass `reasons_against` and, if the pod requests a resource that the extender manages,
    the extender's filter. Of these the scheduler takes the one with the largest free share, to which the extender's
    scores are added if it is asked for them, and the extender binds the pod. A pod without a node is tried again after
    its backoff, once a pod ends or a node changes.

    The pods of a PodGroup are tried in one cycle, as since Kubernetes 1.37: each is assumed on its node before the next
    one is tried. If too few have a node then, none is bound.

    A pod whose volumes must be made first is nominated for its node, as since Kubernetes 1.35. The nomination stays if
    the volumes or the bind fail, and the node is tried before the others then.
    """

    def __init__(
        self,
        client: ApiRequests,
        extender: ExtenderClient,
        *,
        queue: SchedulingQueue | None = None,
        failed: Failed | None = None,  # writes the pod's condition by default
        choose: Choose = lambda nodes, score: max(nodes, key=score),  # chooses among the nodes that fit
        concurrent: bool = False,  # tries the next pod while a pod is being bound, as in kube-scheduler
        # turns preemption on: pods with a priority evict those that the extender names
        evicting: Evicting | None = None,
        volumes: LateVolumes | None = None,  # without them, pods are bound at once
        pod_groups: bool = False,  # the feature gate GenericWorkload; without it, groups do not matter
    ) -> None:
        self._client = client
        self._extender = extender
        self._queue = queue or SchedulingQueue()
        self._failed = failed or self._write_condition
        self._choose = choose
        self._concurrent = concurrent
        self._evicting = evicting
        self._volumes = volumes
        self._pods = Mirror(client, "/api/v1/pods", self._pod_changed)
        self._nodes = Mirror(client, "/api/v1/nodes", self._node_changed)
        path = f"{POD_GROUPS.root}/{POD_GROUPS.plural}"
        self._groups = Mirror(client, path, self._group_changed) if pod_groups else None
        self._assumed: dict[str, str] = {}
        self._used = defaultdict[str, Counter[str]](Counter)  # by node, what pods that have it take
        self._allocatable: dict[str, Mapping[str, int]] = {}
        self._first = 0  # the node that is looked at first
        self._changed = asyncio.Event()

    async def run(self) -> None:
        """Schedule until cancelled. Goes on after failures of the API server and of the extender."""
        async with asyncio.TaskGroup() as self._tasks:
            self._tasks.create_task(self._pods.run())
            self._tasks.create_task(self._nodes.run())
            await self._pods.complete.wait()
            await self._nodes.complete.wait()
            if self._groups is not None:
                self._tasks.create_task(self._groups.run())
                await self._groups.complete.wait()
            while True:
                self._changed.clear()
                if (uid := self._queue.due(_now())) is not None:
                    await self._try(uid)
                else:
                    with suppress(TimeoutError):
                        async with asyncio.timeout_at(self._queue.next_turn()):
                            await self._changed.wait()

    async def _try(self, uid: str) -> None:
        """Find a node for a pod and bind it, or make room for it; if it belongs to a group, with the others."""
        wakes, pod = self._queue.wakes, self._pods.objects[uid]
        if self._groups is not None and (group := group_of(pod)):
            await self._try_group(group, self._groups)
            return
        try:
            node, why = await self._find(pod)
        except ExtenderFailed as failure:
            self._queue.fail(uid, _now())
            await self._failed(pod, "SchedulerError", str(failure))
            return
        if node is None:
            await self._failed(pod, "Unschedulable", why)
            if self._evicting is not None and pod["spec"].get("priority"):
                await self._preempt(pod, self._evicting)
            elif self._volumes is not None and nominated_node(pod):
                await self._nominate(pod, None)
            self._queue.refuse(uid, _now(), wakes)
        elif uid in self._pods.objects:
            self._assumed[uid] = node
            await self._begin_binding(pod, node)

    async def _begin_binding(self, pod: Object, node: str) -> None:
        self._queue.remove(pod["metadata"]["uid"])
        binding = self._tasks.create_task(self._bind(pod, node))
        if not self._concurrent:
            await binding

    async def _try_group(self, group: str, groups: Mirror) -> None:
        """Find nodes for the waiting pods of a group, one after another, and bind them if enough have one."""
        wakes = self._queue.wakes
        minimum = next((_min_count(each) for each in groups.objects.values() if key_of(each) == group), None)
        members = {uid: pod for uid, pod in self._pods.objects.items() if group_of(pod) == group and not is_over(pod)}
        waiting = {uid: pod for uid, pod in members.items() if is_waiting(pod) and uid not in self._assumed}
        if not self._queue.may_try(waiting, _now()):
            return
        others = sum(uid in self._assumed or bool(pod["spec"].get("nodeName")) for uid, pod in members.items())
        if minimum is None or others + len(waiting) < minimum:
            for uid, pod in waiting.items():
                self._queue.park(uid, _now())
                await self._failed(pod, "Unschedulable", "waiting for the PodGroup and minCount pods of it")
            return
        reason, refused, placed = "Unschedulable", dict[str, str](), dict[str, str]()
        try:
            for uid, pod in waiting.items():
                node, refused[uid] = await self._find(pod)
                if node is not None and uid in self._pods.objects:
                    self._assumed[uid] = placed[uid] = node
        except ExtenderFailed as failure:
            reason, refused = "SchedulerError", dict.fromkeys(waiting, str(failure))
        placed = {uid: node for uid, node in placed.items() if uid in self._assumed}  # the others have gone
        if reason == "SchedulerError" or others + len(placed) < minimum:
            for uid in placed:
                del self._assumed[uid]
            placed = {}
        for uid, pod in waiting.items():
            if uid in placed:
                await self._begin_binding(pod, placed[uid])
            else:
                await self._failed(pod, reason, refused.get(uid) or "too few pods of its PodGroup have a node")
                if reason == "SchedulerError":
                    self._queue.fail(uid, _now())
                else:
                    self._queue.refuse(uid, _now(), wakes)

    async def _find(self, pod: Object) -> tuple[str | None, str]:
        """Return the node for a pod; or None, and a sentence about why there is none. Raises ExtenderFailed."""
        nodes = {node["metadata"]["name"]: node for node in self._nodes.objects.values()}
        used = self._used.copy()
        for uid, name in {**nominated_nodes(pod, self._pods.objects), **self._assumed}.items():
            if (other := self._pods.objects.get(uid)) is not None and not other["spec"].get("nodeName"):
                used[name] = used[name].copy()
                add_requests(used[name], other)
        if (nominated := nominated_node(pod)) in nodes:
            node, _ = await self._find_among(pod, [nominated], nodes, used)
            if node is not None:
                return node, ""
        order = list(nodes)
        return await self._find_among(pod, order[self._first :] + order[: self._first], nodes, used)

    async def _find_among(
        self, pod: Object, order: Sequence[str], nodes: Mapping[str, Object], used: Mapping[str, Counter[str]]
    ) -> tuple[str | None, str]:
        """Do what `_find` does with some of the nodes, of which ``used`` says what is taken."""
        requests, fitting = requests_of(pod), list[str]()
        reasons, free = dict[str, list[str]](), dict[str, dict[str, int]]()
        tied = self._volumes.node_of(pod) if self._volumes is not None else None
        for name in order:
            taken = used[name]
            free[name] = {each: amount - taken[each] for each, amount in self._allocatable[name].items()}
            reasons[name] = reasons_against(pod, requests, nodes[name], free[name])
            if tied not in (None, name):
                reasons[name] = ["node(s) had volume node affinity conflict"]
            fitting += [] if reasons[name] else [name]
            if len(fitting) == enough_nodes(len(nodes)):
                break
        fitting.sort()
        self._first = (self._first + len(reasons)) % max(len(nodes), 1) if len(order) == len(nodes) else self._first
        is_managed = self._extender.manages(pod)
        if fitting and is_managed:
            try:
                filtered = await self._extender.filter(pod, fitting)
            except ExtenderFailed:
                if not self._extender.ignorable:
                    raise
            else:
                reasons |= {name: [why] for name, why in filtered.reasons.items()}
                fitting = [name for name in fitting if name in filtered.passed]
        if not fitting:
            return None, waiting_sentence(len(order), [why for whys in reasons.values() for why in whys])
        scores: Mapping[str, int] = {}
        if is_managed and len(fitting) > 1:
            scores = await self._extender.prioritize(pod, fitting)

        def score(name: str) -> float:
            return scores.get(name, 0) + 100 * free_share(requests, free[name], self._allocatable[name])

        return self._choose(fitting, score), ""

    async def _bind(self, pod: Object, node: str) -> None:
        uid = pod["metadata"]["uid"]
        try:
            if self._volumes is not None and self._volumes.are_missing(pod):
                if nominated_node(pod) != node:
                    await self._nominate(pod, node)
                await self._volumes.make(pod, node)
            if not (self._extender.manages(pod) and await self._is_bound_by_extender(pod, node)):
                names = {"name": pod["metadata"]["name"], "uid": uid}
                target = {"kind": "Node", "name": node}
                await self._client.post(f"{path_of(pod)}/binding", {"metadata": names, "target": target})
        except (ExtenderFailed, VolumesFailed, *API_FAILURES) as failure:
            self._assumed.pop(uid, None)
            if (now := self._pods.objects.get(uid)) is not None and is_waiting(now):
                self._queue.add(uid)
                self._queue.fail(uid, _now())
            self._queue.wake()
            self._changed.set()
            await self._failed(pod, "SchedulerError", str(failure) or type(failure).__name__)

    async def _is_bound_by_extender(self, pod: Object, node: str) -> bool:
        """Let the extender bind the pod. Return False if it failed and is ignorable: the scheduler then binds."""
        try:
            await self._extender.bind(pod, node)
        except ExtenderFailed:
            if not self._extender.ignorable:
                raise
            return False
        return True

    async def _nominate(self, pod: Object, node: str | None) -> None:
        """Nominate a pod for a node, or for none. kube-scheduler goes on if that fails."""
        patch = {"metadata": {"uid": pod["metadata"]["uid"]}, "status": {"nominatedNodeName": node}}
        with suppress(*API_FAILURES):
            await self._client.patch(f"{path_of(pod)}/status", patch)

    async def _preempt(self, pod: Object, evicting: Evicting) -> None:
        """Make room for a pod that fits no node, as the extender says, or end its nomination."""
        nominated = nominated_node(pod)
        if nominated and any(
            other["spec"].get("nodeName") == nominated and "deletionTimestamp" in other["metadata"]
            for other in self._pods.objects.values()
        ):
            return  # those that leave may make enough room
        try:
            names = [node["metadata"]["name"] for node in self._nodes.objects.values()]
            found = await self._extender.preempt(pod, names)
            node = self._choose(sorted(found), lambda name: -len(found[name])) if found else None
            if node is not None:
                evicting(pod, node, found[node], node in self._assumed.values())
            if node is not None or nominated:
                patch = {"metadata": {"uid": pod["metadata"]["uid"]}, "status": {"nominatedNodeName": node}}
                await self._client.patch(f"{path_of(pod)}/status", patch)
            for uid in found[node] if node is not None else ():
                if (victim := self._pods.objects.get(uid)) is not None:
                    await self._client.delete(path_of(victim), {"preconditions": {"uid": uid}})
        except (ExtenderFailed, *API_FAILURES) as failure:
            await self._failed(pod, "SchedulerError", f"preemption: {failure}")

    async def _write_condition(self, pod: Object, reason: str, message: str) -> None:
        """Write why a pod has no node. If that fails, the next attempt writes it."""
        known: list[Object] = pod.get("status", {}).get("conditions") or []
        wanted = {"type": "PodScheduled", "status": "False", "reason": reason, "message": message}
        if any(wanted.items() <= condition.items() for condition in known):
            return
        others = [condition for condition in known if condition["type"] != wanted["type"]]
        condition = wanted | {"lastTransitionTime": timestamp(system_time())}
        patch = {"metadata": {"uid": pod["metadata"]["uid"]}, "status": {"conditions": [*others, condition]}}
        with suppress(*API_FAILURES):
            await self._client.patch(f"{path_of(pod)}/status", patch)

    def _pod_changed(self, before: Object | None, after: Object | None) -> None:
        pod = after or before
        if pod is None:
            return
        for value, times in ((before, -1), (after, 1)):
            if value is not None and (node := value["spec"].get("nodeName")):
                add_requests(self._used[node], value, times)
        uid = pod["metadata"]["uid"]
        if after is None or after["spec"].get("nodeName"):
            self._assumed.pop(uid, None)
        if after is None or not is_waiting(after):
            self._queue.remove(uid)
        elif uid not in self._assumed:
            self._queue.add(uid)
        if before is not None and frees_room(before, after):
            self._queue.wake()
        self._changed.set()

    def _group_changed(self, _before: Object | None, _after: Object | None) -> None:
        self._queue.wake()
        self._changed.set()

    def _node_changed(self, _before: Object | None, after: Object | None) -> None:
        if after is not None:
            self._allocatable[after["metadata"]["name"]] = node_allocatable(msgspec.convert(after, Node))
        self._queue.wake()
        self._changed.set()


def _now() -> float:
    return asyncio.get_running_loop().time()


def key_of(value: Object) -> str:
    return f"{value['metadata']['namespace']}/{value['metadata']['name']}"


def group_of(pod: Object) -> str:
    """Return the ``namespace/name`` of a pod's PodGroup; empty if it has none."""
    name = (pod["spec"].get("schedulingGroup") or {}).get("podGroupName")
    return f"{pod['metadata']['namespace']}/{name}" if name else ""


def _min_count(group: Object) -> int:
    """Return how many pods of a group must have a node at the same time."""
    return int((group["spec"]["schedulingPolicy"].get("gang") or {}).get("minCount", 1))


def nominated_node(pod: Object) -> str:
    return pod["status"].get("nominatedNodeName") or ""


def nominated_nodes(pod: Object, pods: Mapping[str, Object]) -> dict[str, str]:
    """Return by UID the nodes for which other pods of the pod's priority or a higher one are nominated.

    kube-scheduler counts the requests of these pods there, as if they had been bound.
    """
    return {
        uid: nominated_node(other)
        for uid, other in pods.items()
        if uid != pod["metadata"]["uid"]
        and nominated_node(other)
        and (other["spec"].get("priority") or 0) >= (pod["spec"].get("priority") or 0)
    }


def frees_room(before: Object, after: Object | None) -> bool:
    """Return whether a change of a pod, or its end (None), frees room that it takes or that is reserved for it.

    kube-scheduler then tries pods again, also those that wait for a nominated pod's room.
    """
    if after is None or is_over(after):
        return not is_over(before)
    nominated = nominated_node(before)
    return bool(nominated) and nominated != (after["spec"].get("nodeName") or nominated_node(after))


def is_waiting(pod: Object) -> bool:
    spec = pod["spec"]
    return (
        not spec.get("nodeName")
        and not spec.get("schedulingGates")
        and spec.get("schedulerName", NAME) == NAME
        and "deletionTimestamp" not in pod["metadata"]
        and not is_over(pod)
    )
