"""Keep the pods of this node that request cards, with their containers' demands and the cards decided for them."""

import re
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property

from cachetools import TTLCache

from gas.decision.annotations import MalformedAnnotation, MalformedTiles, parse_timestamp, read_receipt
from gas.decision.names import TIMESTAMP
from gas.objects.stored import Container, ObjectId, Pod
from gas.placement.choice import Choice, ContainerChoice, footprint
from gas.placement.inventory import Inventory
from gas.placement.need import PodNeed, Role
from gas.plugin.devices.device_ids import short_name
from gas.plugin.kubelet.pod_resources import ContainerIds
from gas.values.amounts import MEMORY_MAX, MILLICORES, TILES, Amounts, MalformedQuantity, parse_quantity
from gas.values.card_facts import CardFacts
from gas.values.cards import Card
from gas.vocabularies.combined import Vocabularies
from gas.vocabularies.pod_parts import started_containers
from gas.vocabularies.protocol import BadNeed, DeviceOptions, NodeFacts

GONE_FOR = 60.0  # seconds for which a deleted pod's name is remembered, since kubelet may be that far behind
MOST_GONE = 1000  # most names of deleted pods that are remembered

_MIRROR = "kubernetes.io/config.mirror"
"""Annotation of the API's copy of a static pod: the hash of the manifest, which is the UID that kubelet uses itself."""

_CONFIG_HASH = "kubernetes.io/config.hash"
"""Annotation with the same hash on every pod that does not come from the API server, written by kubelet."""

_HASH = re.compile(r"[0-9a-f]{32}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Demand:
    """One container's demand for device ids of one resource: kubelet calls Allocate once for each."""

    index: int  # the container's place in the order in which kubelet starts them
    container: str
    role: Role
    resource: str  # full name: ``gpu.intel.com/i915``
    count: int  # number of device ids, at least 1
    per_card: int = 1  # number of ids of the same card, if the container gets its decided cards


@dataclass(frozen=True, kw_only=True)
class GpuPod:
    """A pod on this node that requests cards and has not ended."""

    demands: tuple[Demand, ...]  # in the order of kubelet's calls, which may differ only within one container
    roles: tuple[Role, ...]  # of each container, in the order in which kubelet starts them
    need: PodNeed | None  # None if it cannot be read; kubelet starts such a pod nevertheless
    # the annotated decision, one item per container; None if there is none or its cards are not valid
    decided: Choice | None
    # sentence about why need, decision or its tiles are missing although something is annotated, else empty
    trouble: str
    timestamp: int | None  # when the cards were decided, by gas or another system, in nanoseconds since the epoch
    created: str  # RFC 3339, UTC: sorts as text
    isolation: str  # software by which its use of cards shall be limited, in lower case; empty if it does not say
    is_admitted: bool  # kubelet has written the pod's status, so all calls for it are over
    # annotations that its vocabulary expects once all containers have their cards, as far as they are missing
    unmarked: Mapping[str, str]
    raw: Pod

    @cached_property
    def uid(self) -> str:
        return self.raw.uid

    @cached_property
    def cgroup_uid(self) -> str:
        """The UID in the name of the pod's cgroup: kubelet's own for a static pod, else the pod's.

        The form of a hash is required, so that no pod from the API server can state the UID of another one.
        """
        found = self.raw.annotations.get(_CONFIG_HASH, "")
        is_static = _HASH.fullmatch(found) is not None and self.raw.annotations.get(_MIRROR) == found
        return found if is_static else self.uid

    @cached_property
    def key(self) -> str:
        return self.raw.key

    @property
    def is_running(self) -> bool:
        return self.raw.status is not None and self.raw.status.phase == "Running"

    @cached_property
    def given(self) -> Choice | None:
        """The cards of each container by its receipt, or else by its decision; None if neither is known."""
        if self.need is None:
            return None
        try:
            return read_receipt(self.raw, self.need) or self.decided
        except MalformedAnnotation:
            return self.decided

    def requested_memory(self, gpus: Iterable[CardFacts]) -> dict[Card, int]:
        if self.need is None or self.given is None:
            return {}
        amounts = footprint(self.need, self.given, _capacity(gpus)).amounts
        return {card: dict(each).get(MEMORY_MAX, 0) for card, each in amounts.items()}

    def share(self, container: int, gpus: Iterable[CardFacts]) -> dict[Card, Amounts]:
        if self.need is None:
            return {}
        capacity = _capacity(gpus)
        has = ContainerChoice(tuple(capacity))
        of_container = footprint(PodNeed((self.need.containers[container],)), Choice((has,)), capacity)
        of_pod = of_container
        if self.need.scope.is_one_card:
            of_pod = footprint(self.need, Choice((has,) * len(self.need.containers)), capacity)
        return {card: dict(of_pod.amounts[card]) | dict(of_container.amounts[card]) for card in capacity}

    def decided_for(self, index: int) -> ContainerChoice | None:
        """Return the cards and tiles decided for a container; None if no decision is known."""
        choice = self.decided.containers[index] if self.decided else None
        return choice if choice and choice.cards else None


class GpuPods:
    """The GPU pods of one node, kept by a watch with the field selector ``spec.nodeName=NODE``.

    Pods are dropped when they have ended or were deleted. Names of pods without cards, and for a while those of deleted
    pods, are kept to distinguish them from pods that the watch has not shown yet (`is_unwatched`).
    """

    def __init__(
        self,
        vocabularies: Vocabularies,
        *,
        gpus: Callable[[], Collection[CardFacts]] = tuple,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._vocabularies = vocabularies
        self._gpus = gpus
        self._pods: dict[str, GpuPod] = {}
        self._keys: dict[str, str] = {}
        self._uids: dict[str, str] = {}
        self._served: set[str] = set()
        self._ended: set[str] = set()
        self._is_complete = False
        self._gone: TTLCache[str, bool] = TTLCache(MOST_GONE, GONE_FOR, timer=clock)
        self._subscribers: list[Callable[[], None]] = []

    def __iter__(self) -> Iterator[GpuPod]:
        return iter(self._pods.values())

    def __len__(self) -> int:
        return len(self._pods)

    def subscribe(self, on_change: Callable[[], None]) -> None:
        """Call a function after every event from now on, after earlier subscribers."""
        self._subscribers.append(on_change)

    def get(self, uid: str) -> GpuPod | None:
        return self._pods.get(uid)

    def has_seen(self, key: str) -> bool:
        """Return whether the watch shows a pod of this name, with or without cards."""
        return key in self._uids

    def present(self) -> Collection[str] | None:
        return [key for key, uid in self._uids.items() if uid not in self._ended] if self._is_complete else None

    def is_unwatched(self, key: str, containers: ContainerIds) -> bool:
        """Return whether the watch has never shown this pod, which kubelet lists with these containers.

        A pod that was deleted a moment ago is not unwatched: kubelet has not finished it yet. The exception is a pod
        without devices where the deleted one had got its devices: it is the next pod of that name, as of a StatefulSet.
        """
        if self.has_seen(key):
            return False
        had_devices = self._gone.get(key)
        if had_devices is None:
            return True
        return had_devices and not any(ids for resources in containers.values() for ids in resources.values())

    def cards_changed(self) -> None:
        """Read all pods again: another system's decision may name a card by its position among those of the node."""
        for pod in list(self._pods.values()):
            self._learn(pod.raw)
        self._changed()

    def listed(self, pods: list[Pod]) -> None:
        for pod in pods:
            self._learn(pod)
        self._changed()

    def complete(self, listed: list[ObjectId]) -> None:
        for uid in self._keys.keys() - {pod.uid for pod in listed}:
            self._forget(uid)
        self._is_complete = True
        self._changed()

    def changed(self, pod: Pod) -> None:
        self._learn(pod)
        self._changed()

    def deleted(self, pod: Pod) -> None:
        self._forget(pod.uid)
        self._changed()

    def _changed(self) -> None:
        for on_change in self._subscribers:
            on_change()

    def _learn(self, pod: Pod) -> None:
        self._keys[pod.uid] = pod.key
        self._uids[pod.key] = pod.uid
        seen = gpu_pod(pod, self._vocabularies, self._gpus())
        if pod.is_over:
            self._ended.add(pod.uid)
        if seen is not None and (seen.is_admitted or pod.is_over):
            self._served.add(pod.uid)
        if seen is not None and not pod.is_over:
            self._pods[pod.uid] = seen
        else:
            self._pods.pop(pod.uid, None)

    def _forget(self, uid: str) -> None:
        self._pods.pop(uid, None)
        key = self._keys.pop(uid, "")
        if self._uids.get(key) == uid:
            del self._uids[key]
            self._gone[key] = uid in self._served
        self._served.discard(uid)
        self._ended.discard(uid)


def gpu_pod(pod: Pod, vocabularies: Vocabularies, gpus: Iterable[CardFacts] = ()) -> GpuPod | None:
    """Return what the plugin needs to know of a pod; None if it requests no cards.

    gpus  of the node, for decisions that name a card by its position among them
    """
    started = started_containers(pod)
    counts = [_counts(container, vocabularies.resources) for container, _ in started]
    if not any(counts):
        return None
    need, decided, trouble = _decision(pod, vocabularies, gpus)
    return GpuPod(
        demands=tuple(
            Demand(index, container.name, role, resource, count, _per_card(need, index, resource))
            for index, (container, role) in enumerate(started)
            for resource, count in counts[index].items()
        ),
        roles=tuple(role for _, role in started),
        need=need,
        decided=decided,
        trouble=trouble,
        timestamp=_timestamp(pod, vocabularies),
        created=pod.metadata.creation_timestamp or "",
        unmarked=dict(vocabularies.after_allocate(pod).items() - pod.annotations.items()),
        isolation=vocabularies.isolation(pod),
        is_admitted=pod.status is not None and (pod.status.start_time is not None or pod.status.phase == "Running"),
        raw=pod,
    )


def _counts(container: Container, resources: Iterable[str]) -> dict[str, int]:
    """Return how many ids of each resource kubelet will ask for; the API server does not limit the number."""
    requests = container.requests
    counts: dict[str, int] = {}
    for resource in resources:
        if resource in requests:
            with suppress(MalformedQuantity):
                counts[resource] = parse_quantity(requests[resource])
    return {resource: count for resource, count in counts.items() if count}


def _per_card(need: PodNeed | None, index: int, resource: str) -> int:
    """Return how many ids of one card the container takes: the count resource in its need."""
    amounts = dict(need.containers[index].per_card) if need is not None and need.containers else {}
    return amounts.get(resource.rpartition("/")[2], 1)


def _decision(
    pod: Pod, vocabularies: Vocabularies, gpus: Iterable[CardFacts]
) -> tuple[PodNeed | None, Choice | None, str]:
    try:
        need = vocabularies.booked_need(pod)
    except BadNeed as bad:
        return None, None, f"its need cannot be read: {bad}"
    try:
        vocabulary = vocabularies.vocabulary_of(pod)
        choice = vocabulary.read_choice(pod, need, node_facts(gpus, vocabularies)) if vocabulary else None
        return need, choice, ""
    except MalformedTiles as malformed:
        return need, malformed.choice, f"the tiles of its decision cannot be read: {malformed}"
    except MalformedAnnotation as malformed:
        return need, None, f"its decision cannot be read: {malformed}"


def node_facts(gpus: Iterable[CardFacts], vocabularies: Vocabularies) -> NodeFacts:
    """Return the healthy cards with their memory and units, as the extender reads them from the node."""
    capacity: dict[Card, dict[str, int]] = {}
    gpus = tuple(gpus)
    for gpu in gpus:
        if gpu.healthy:
            ids = vocabularies.ids_per_card(gpu, DeviceOptions())
            capacity[gpu.card] = {short_name(resource): number for resource, number in ids.items()}
            if gpu.memory:
                capacity[gpu.card][MEMORY_MAX] = gpu.memory
    return NodeFacts(inventory=Inventory(capacity=capacity), uuids={gpu.uuid: gpu.card for gpu in gpus if gpu.uuid})


def _capacity(gpus: Iterable[CardFacts]) -> dict[Card, Amounts]:
    return {gpu.card: {MEMORY_MAX: gpu.memory or 0, MILLICORES: gpu.millicores, TILES: gpu.tiles} for gpu in gpus}


def _timestamp(pod: Pod, vocabularies: Vocabularies) -> int | None:
    vocabulary = vocabularies.vocabulary_of(pod)
    of_another_system = vocabulary.time_annotation if vocabulary is not None else ""
    return parse_timestamp(pod.annotations.get(TIMESTAMP) or pod.annotations.get(of_another_system, ""))
