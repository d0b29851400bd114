"""Count the free CPU, memory and pod slots of each node, as kube-scheduler does. No I/O.

Fed only if a part asks for it (`Decider.count_hosts`); otherwise the watch decodes no more of pods than their GPU
requests.
"""

import sys
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import msgspec
from cachetools import LRUCache

from gas.extender.bookings import Move, State
from gas.extender.hooks import Observer
from gas.objects.handler import Mirror, MirrorByName
from gas.objects.stored import (
    Container,
    ContainerStatus,
    HostPod,
    HostPodStatus,
    Node,
    Pod,
    Quantity,
    ResourceRequirements,
)
from gas.values.amounts import (
    Amounts,
    MalformedQuantity,
    SortedAmounts,
    add,
    parse_rounded_up,
    sorted_amounts,
)

CPU = "cpu"  # in thousandths of a core, here and everywhere in this module
MEMORY = "memory"  # in bytes
PODS = "pods"  # Pod slots: a pod takes one
MOST_SHARED_REQUESTS = 4096  # pods of one template share requests, and nodes of one type amounts, for this many

_POD_LEVEL = (CPU, MEMORY)
_POD_LEVEL_PREFIX = "hugepages-"


class HostFree(NamedTuple):
    """The resources of a node that pods can still request; negative if they already request more than it has."""

    cpu: int  # in thousandths of a core
    memory: int  # in bytes
    pods: int


ASSUMED = object()  # stands for the details of a pod that is about to be bound


class HostedPod(msgspec.Struct, frozen=True, gc=False):
    """A pod that has a node and has not ended."""

    node: str
    requests: SortedAmounts
    details: Any  # what a part retains of the pod; ASSUMED until the watch shows it on its node


class HostPods(Mirror[HostPod, HostedPod]):
    """All pods that have a node and have not ended, and the sums of what they request of it. Fed by a watch.

    A pod that the extender is about to bind is counted from then on, since the watch shows it some milliseconds later.
    """

    def __init__(self, on_change: Callable[[str], None] = lambda _node: None) -> None:
        super().__init__()
        self._describe: Callable[[HostPod], Any] = lambda _pod: None
        self._sums: dict[str, dict[str, int]] = {}
        self._shared: LRUCache[SortedAmounts, SortedAmounts] = LRUCache(MOST_SHARED_REQUESTS)
        self._on_change = on_change

    def describe_with(self, describe: Callable[[HostPod], Any]) -> None:
        """Retain what ``describe`` returns of each pod. To be called before the first pod is shown."""
        self._describe = describe

    def record(self, pod: HostPod) -> HostedPod | None:
        if pod.is_over:
            return None
        if not pod.node_name:
            return self.records.get(pod.uid)  # it may be assumed
        return HostedPod(sys.intern(pod.node_name), self._requests(pod), self._describe(pod))

    def assume(self, pod: Pod, node: str) -> None:
        if pod.uid not in self.records:
            self.put(pod.uid, HostedPod(sys.intern(node), self._requests(pod), ASSUMED))

    def cancel(self, uid: str) -> None:
        """Stop counting a pod that was not bound after all; one that the watch has shown on its node stays."""
        hosted = self.records.get(uid)
        if hosted is not None and hosted.details is ASSUMED:
            self.put(uid, None)

    def requested(self, uid: str) -> SortedAmounts | None:
        assigned = self.records.get(uid)
        return None if assigned is None else assigned.requests

    def sums(self, node: str) -> Amounts:
        """Return the sums of what the pods of a node request: a view, to be read at once."""
        return self._sums.get(node, {})

    def details(self, uid: str, node: str) -> Any:
        """Return what is retained of a pod; None if the watch has not shown it on this node."""
        hosted = self.records.get(uid)
        return None if hosted is None or hosted.node != node or hosted.details is ASSUMED else hosted.details

    def needs(self, pod: HostPod) -> bool:
        """Return whether a pod has a node or is counted, so that its end must not be missed."""
        return bool(pod.node_name) or pod.uid in self.records

    def replaced(self, _uid: str, old: HostedPod | None, new: HostedPod | None) -> None:
        if old is not None and new is not None and (old.node, old.requests) == (new.node, new.requests):
            return
        if old is not None:
            sums = self._sums[old.node]
            add(sums, old.requests, -1)
            if not sums:
                del self._sums[old.node]
        if new is not None:
            add(self._sums.setdefault(new.node, {}), new.requests)
        for node in dict.fromkeys(each.node for each in (old, new) if each is not None):
            self._on_change(node)

    def _requests(self, pod: Pod) -> SortedAmounts:
        requests = pod_requests(pod)
        return self._shared.setdefault(requests, requests)


class HostNodes(MirrorByName[Node, SortedAmounts]):
    """The resources that each node offers to pods, from ``status.allocatable``. Fed by a watch."""

    def __init__(self, on_change: Callable[[str], None] = lambda _node: None) -> None:
        super().__init__()
        self._shared: LRUCache[SortedAmounts, SortedAmounts] = LRUCache(MOST_SHARED_REQUESTS)
        self._on_change = on_change

    def record(self, node: Node) -> SortedAmounts:
        amounts = sorted_amounts(node_allocatable(node))
        return self._shared.setdefault(amounts, amounts)

    def replaced(self, name: str, _old: SortedAmounts | None, _new: SortedAmounts | None) -> None:
        self._on_change(name)


class HostResources(Observer):
    """The resources that are free on each node, apart from its cards; ``on_change`` is called if they may differ."""

    def __init__(self, on_change: Callable[[str], None] = lambda _node: None) -> None:
        self.pods = HostPods(on_change)
        self.nodes = HostNodes(on_change)

    def moved(self, move: Move) -> None:
        if move.after in (State.UNKNOWN, State.PROMISED):
            self.pods.cancel(move.uid)

    def free(self, node: str) -> HostFree | None:
        offered = self.nodes.records.get(node)
        return None if offered is None else self._free(node, dict(offered))

    def free_of(self, node: Node) -> HostFree:
        """Return the free resources of a node as a request describes it, known or not."""
        return self._free(node.name, node_allocatable(node))

    def _free(self, node: str, offered: Amounts) -> HostFree:
        taken = self.pods.sums(node)
        return HostFree(*(offered.get(name, 0) - taken.get(name, 0) for name in (CPU, MEMORY, PODS)))

    def free_amounts(self, node: str) -> dict[str, int] | None:
        """Return the free amount of every resource that a node offers, None if the node is not known."""
        offered = self.nodes.records.get(node)
        if offered is None:
            return None
        taken = self.pods.sums(node)
        return {name: amount - taken.get(name, 0) for name, amount in offered}


def pod_requests(pod: Pod) -> SortedAmounts:
    """Return what a pod requests of its node, as kube-scheduler counts it, with 1 of ``pods``.

    Init containers run one after the other before the app containers, next to the sidecars started before them. The
    pod requests the most that it needs at any moment. Requests of the pod as a whole replace the sums of its
    containers, and the overhead of its runtime class is added. During an in-place resize, the largest of three amounts
    counts: the request in the container's spec, the one that kubelet has allocated, and the one in effect; if the
    resize is infeasible, the first is left out. Some releases of Kubernetes take the maximum for each container, others
    for the sums of all; the former, used here, is never less.

    Source: ``PodRequests`` in k8s.io/component-helpers/resource, with ``UseStatusResources``.
    """
    status = pod.status if isinstance(pod, HostPod) else None
    total = _container_requests(pod, status)
    if isinstance(pod, HostPod):
        _set_pod_level_requests(total, pod)
        add(total, _amounts(pod.spec.overhead).items())
    total[PODS] = 1
    return tuple(sorted((name, amount) for name, amount in total.items() if amount))


def node_allocatable(node: Node) -> dict[str, int]:
    return _amounts(node.status.allocatable if node.status else None)


def _container_requests(pod: Pod, status: HostPodStatus | None) -> dict[str, int]:
    stated = (*(status.container_statuses or ()), *(status.init_container_statuses or ())) if status is not None else ()
    statuses = {each.name: each for each in stated}
    infeasible = _is_infeasible(status)
    staying: dict[str, int] = {}
    peak: dict[str, int] = {}
    for container in pod.spec.init_containers or ():
        wanted = _effective(container, statuses.get(container.name), infeasible=infeasible)
        if container.restart_policy == "Always":
            add(staying, wanted.items())
            _raise_to(peak, staying)
        else:
            moment = dict(staying)
            add(moment, wanted.items())
            _raise_to(peak, moment)
    for container in pod.spec.containers or ():
        add(staying, _effective(container, statuses.get(container.name), infeasible=infeasible).items())
    _raise_to(peak, staying)
    return peak


def _set_pod_level_requests(total: dict[str, int], pod: HostPod) -> None:
    """Replace the sums of the containers by the pod's own requests where it has any."""
    wanted = _of_pod_level(_requests(pod.spec.resources))
    if not wanted:
        return
    if pod.status is not None and pod.status.resources is not None:
        if _is_infeasible(pod.status):
            wanted = {}
        _raise_to(wanted, _of_pod_level(_requests(pod.status.resources)))
        _raise_to(wanted, _of_pod_level(_amounts(pod.status.allocated_resources)))
    total.update(wanted)


def _of_pod_level(amounts: Amounts) -> dict[str, int]:
    return {
        name: amount for name, amount in amounts.items() if name in _POD_LEVEL or name.startswith(_POD_LEVEL_PREFIX)
    }


def _effective(container: Container, status: ContainerStatus | None, *, infeasible: bool) -> dict[str, int]:
    wanted = _requests(container.resources)
    if status is None or (status.resources is None and status.allocated_resources is None):
        return wanted
    most = {} if infeasible else wanted
    _raise_to(most, _requests(status.resources))
    _raise_to(most, _amounts(status.allocated_resources))
    return most


def _is_infeasible(status: HostPodStatus | None) -> bool:
    """Return whether the pod's node has refused a resize for good, so that the request in the spec does not count."""
    conditions = (status.conditions if status is not None else None) or ()
    return any(each.type == "PodResizePending" and each.reason == "Infeasible" for each in conditions)


def _requests(resources: ResourceRequirements | None) -> dict[str, int]:
    return _amounts(resources.requests if resources is not None else None)


def _amounts(written: Mapping[str, Quantity] | None) -> dict[str, int]:
    amounts = {}
    for name, quantity in (written or {}).items():
        try:
            amounts[name] = parse_rounded_up(quantity, thousandths=name == CPU)
        except MalformedQuantity:  # the API server accepts none
            continue
    return amounts


def _raise_to(amounts: dict[str, int], others: Amounts) -> None:
    for name, amount in others.items():
        amounts[name] = max(amounts.get(name, 0), amount)
