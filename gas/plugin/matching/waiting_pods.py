"""The pods of this node that ask for cards: what each of their containers wants, and what was decided for it."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

from cachetools import TTLCache

from gas.amounts import MalformedQuantity, parse_quantity
from gas.decision.annotations import read_choice
from gas.decision.names import TIMESTAMP, WRITTEN_ANNOTATIONS
from gas.decision.text import MalformedAnnotation
from gas.intel.names import COUNT_RESOURCES, PREFIX
from gas.intel.need import read_booked_need
from gas.objects import NodeContainer, NodePod, ObjectMeta, Pod, PodSpec
from gas.placement.choice import Choice, ContainerChoice
from gas.placement.need import PodNeed, Role
from gas.plugin.kubelet.listing import ContainerIds
from gas.vocabulary import BadNeed

HIERARCHY = "ZE_FLAT_DEVICE_HIERARCHY"

GONE_FOR = 60.0
"""Seconds for which the name of a pod that is gone is remembered: kubelet may be that far behind with its work."""

MOST_GONE = 1000
"""Such names at most."""

_NANOSECONDS = re.compile(r"[0-9]{1,19}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Want:
    """One container's wish for device ids of one resource: kubelet calls Allocate once for each.

    index     of the container, in the order in which kubelet starts them
    resource  without prefix: ``i915`` or ``xe``
    count     how many device ids, at least 1
    """

    index: int
    container: str
    role: Role
    resource: str
    count: int


@dataclass(frozen=True, kw_only=True)
class PodOfNode:
    """A pod on this node that asks for cards and has not ended.

    wants        in the order of kubelet's calls; only within one container it may change
    roles        of each container, in the order in which kubelet starts them
    hierarchies  for each container its ``ZE_FLAT_DEVICE_HIERARCHY``, None where it is not set
    need         None when it cannot be read; kubelet starts such a pod all the same
    decided      what is written on it, one place a container; None when nothing is or it cannot be believed
    trouble      why need or decision are None although something is written: a sentence, else empty
    timestamp    ``gas-ts``, nanoseconds since the epoch; None when it has none
    created      RFC 3339, UTC: sorts as text
    is_admitted  kubelet has written its status, so all calls for it are over
    written      its names and our annotations, nothing else
    """

    wants: tuple[Want, ...]
    roles: tuple[Role, ...]
    hierarchies: tuple[str | None, ...]
    need: PodNeed | None
    decided: Choice | None
    trouble: str
    timestamp: int | None
    created: str
    is_admitted: bool
    written: Pod

    @cached_property
    def uid(self) -> str:
        return self.written.uid

    @cached_property
    def key(self) -> str:
        """``namespace/name``"""
        return self.written.key

    def decided_for(self, index: int) -> ContainerChoice | None:
        """What a container was decided to get; None when nothing is known about it."""
        given = self.decided.containers[index] if self.decided else None
        return given if given and given.cards else None


class PodsOfNode:
    """The pods of one node; the handler of a watch with the field selector ``spec.nodeName=NODE``.

    A pod is dropped when it has ended or is gone. Of pods that want no cards only the names are kept, and the names of
    pods gone for a while, by which a pod that kubelet has and the watch has not shown yet can be told (`is_new`).

    on_change  is called after every event
    clock      seconds that only go forward
    """

    def __init__(
        self, on_change: Callable[[], None] = lambda: None, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.changes = 0
        """How often a pod that wants cards has come, changed or gone."""
        self._pods: dict[str, PodOfNode] = {}
        self._keys: dict[str, str] = {}
        self._uids: dict[str, str] = {}
        self._served: set[str] = set()
        self._gone: TTLCache[str, bool] = TTLCache(MOST_GONE, GONE_FOR, timer=clock)
        self._on_change = on_change

    def __iter__(self) -> Iterator[PodOfNode]:
        return iter(self._pods.values())

    def __len__(self) -> int:
        return len(self._pods)

    def get(self, uid: str) -> PodOfNode | None:
        return self._pods.get(uid)

    def named(self, key: str) -> PodOfNode | None:
        """The pod ``namespace/name`` if it wants cards: the newest that had this name."""
        return self._pods.get(self._uids.get(key, ""))

    def knows(self, key: str) -> bool:
        """Whether the watch has shown a pod of this name, whatever it wants."""
        return key in self._uids

    def is_new(self, key: str, containers: ContainerIds) -> bool:
        """Whether a pod that kubelet has was never shown by the watch.

        One that was shown and deleted a moment ago is none: kubelet has not come to its end yet. Except when it had
        been given its devices and this one has none, for then it is the next of that name, as of a StatefulSet.

        containers  what kubelet's list says of it
        """
        if self.knows(key):
            return False
        had_devices = self._gone.get(key)
        if had_devices is None:
            return True
        return had_devices and not any(ids for resources in containers.values() for ids in resources.values())

    def replaced(self, pods: list[NodePod]) -> None:
        there = {pod.uid for pod in pods}
        for uid in [uid for uid in self._keys if uid not in there]:
            self._forget(uid)
        for pod in pods:
            self._learn(pod)
        self._on_change()

    def changed(self, pod: NodePod) -> None:
        self._learn(pod)
        self._on_change()

    def deleted(self, pod: NodePod) -> None:
        self._forget(pod.uid)
        self._on_change()

    def _learn(self, pod: NodePod) -> None:
        self._keys[pod.uid] = pod.key
        self._uids[pod.key] = pod.uid
        seen = pod_of_node(pod)
        if seen is not None and (seen.is_admitted or pod.is_over):
            self._served.add(pod.uid)
        if seen is not None and not pod.is_over:
            self._pods[pod.uid] = seen
            self.changes += 1
        else:
            self._drop(pod.uid)

    def _drop(self, uid: str) -> None:
        if self._pods.pop(uid, None) is not None:
            self.changes += 1

    def _forget(self, uid: str) -> None:
        self._drop(uid)
        key = self._keys.pop(uid, "")
        if self._uids.get(key) == uid:
            del self._uids[key]
            self._gone[key] = uid in self._served
        self._served.discard(uid)


def pod_of_node(pod: NodePod) -> PodOfNode | None:
    """What the plugin must know of a pod; None when it wants no cards."""
    started = [(container, _init_role(container)) for container in pod.spec.init_containers or ()]
    started += [(container, Role.APP) for container in pod.spec.containers or ()]
    wants = tuple(
        Want(index, container.name, role, resource, count)
        for index, (container, role) in enumerate(started)
        for resource, count in _counts(container)
    )
    if not wants:
        return None
    need, decided, trouble = _decision(pod)
    return PodOfNode(
        wants=wants,
        roles=tuple(role for _, role in started),
        hierarchies=tuple(_hierarchy(container) for container, _ in started),
        need=need,
        decided=decided,
        trouble=trouble,
        timestamp=_timestamp(pod),
        created=pod.metadata.creation_timestamp or "",
        is_admitted=pod.status is not None and (pod.status.start_time is not None or pod.status.phase == "Running"),
        written=_cut_down(pod),
    )


def _init_role(container: NodeContainer) -> Role:
    return Role.SIDECAR if container.restart_policy == "Always" else Role.INIT


def _counts(container: NodeContainer) -> Iterator[tuple[str, int]]:
    """How many device ids of which resource kubelet will ask for; it takes any amount that the API server took."""
    requests = (container.resources.requests if container.resources else None) or {}
    for resource in COUNT_RESOURCES:
        try:
            count = parse_quantity(requests.get(PREFIX + resource, 0))
        except MalformedQuantity:
            continue
        if count:
            yield resource, count


def _decision(pod: Pod) -> tuple[PodNeed | None, Choice | None, str]:
    try:
        need = read_booked_need(pod)
    except BadNeed as bad:
        return None, None, f"its need cannot be read: {bad}"
    try:
        return need, read_choice(pod, need), ""
    except MalformedAnnotation as malformed:
        return need, None, f"what was decided for it cannot be read: {malformed}"


def _hierarchy(container: NodeContainer) -> str | None:
    """The last one counts, as for the process in the container."""
    return next((each.value for each in reversed(container.env or ()) if each.name == HIERARCHY), None)


def _timestamp(pod: Pod) -> int | None:
    text = pod.annotations.get(TIMESTAMP, "")
    return int(text) if _NANOSECONDS.fullmatch(text) else None


def _cut_down(pod: Pod) -> Pod:
    return Pod(
        metadata=ObjectMeta(
            name=pod.metadata.name,
            namespace=pod.metadata.namespace,
            uid=pod.metadata.uid,
            annotations={name: text for name, text in pod.annotations.items() if name in WRITTEN_ANNOTATIONS},
        ),
        spec=PodSpec(node_name=pod.node_name),
    )
