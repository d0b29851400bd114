"""Kubelet's device manager as 1.35 was seen to behave, and a plugin that replies by `Matcher`."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from gas.objects.stored import Pod
from gas.placement.need import Role
from gas.plugin.devices.allocation_policy import AllocationPolicy, preferred_ids
from gas.plugin.devices.device_ids import AllocateRequest, DeviceId, Ids, PreferredRequest, known_ids
from gas.plugin.kubelet.pod_resources import Listing
from gas.plugin.matching.gpu_pods import Demand, GpuPods, gpu_pod
from gas.plugin.matching.matcher import Match, Matcher
from gas.vocabularies.known import DEFAULT


@dataclass
class Handed:
    """One Allocate: the container that kubelet gave ids to, and the container that the plugin matched."""

    pod: Pod
    want: Demand
    ids: Ids
    match: Match
    by_chance: bool


@dataclass
class Plugin:
    """The plugin's replies. ``kubelet`` can be asked for a listing; None if PodResources does not reply."""

    pods: GpuPods
    kubelet: Kubelet | None
    policy: AllocationPolicy = AllocationPolicy.NONE
    catch_up: list[Pod] = field(default_factory=list)
    """What the watch has not shown yet: it does when the plugin waits for it."""

    def __post_init__(self) -> None:
        self.matcher = Matcher(self.pods)
        self.clock = itertools.count(1000, 10)

    def prefer(self, request: PreferredRequest) -> tuple[DeviceId, ...]:
        preference = self.matcher.prefer(request)
        if self.kubelet is not None:
            listing = self.kubelet.listing()
            if (pod := preference.match.confirming_pod) is not None and pod.key in listing:
                preference = self.matcher.prefer(request, listing={pod.key: listing[pod.key]})
            if preference.match.doubt:
                preference = self.matcher.prefer(request, listing=listing)
            if preference.match.doubt and preference.match.unwatched_pods:
                while self.catch_up:
                    self.pods.changed(self.catch_up.pop(0))
                preference = self.matcher.prefer(request, listing=listing)
        answer = preferred_ids(self.policy, request, decided=preference.ids, spared=preference.spared)
        assert len(answer) == request.size
        assert request.must_include <= set(answer) <= request.available | request.must_include
        return known_ids(answer)

    def allocate(self, resource: str, ids: Ids) -> Match:
        return self.matcher.allocate(AllocateRequest(resource=resource, ids=ids), now=next(self.clock))


class Kubelet:
    """The ids of each pod. `admit` makes the calls for one pod, one per step, so that tests can interfere."""

    def __init__(self, ids: Mapping[str, Ids], chance: random.Random) -> None:
        self.ids = ids
        self.chance = chance
        self.held: dict[str, dict[Demand, Ids]] = {}
        self.pods: dict[str, Pod] = {}

    def free(self, resource: str) -> Ids:
        taken = {id_ for wants in self.held.values() for want, ids in wants.items() for id_ in ids}
        return self.ids[resource] - taken

    def listing(self) -> Listing:
        listing: dict[str, dict[str, dict[str, Ids]]] = {}
        for uid, pod in self.pods.items():
            seen = gpu_pod(pod, DEFAULT)
            assert seen is not None
            names = [each.name for each in pod.spec.init_containers or () if each.restart_policy == "Always"]
            names += [each.name for each in pod.spec.containers or ()]
            listing[pod.key] = {name: {} for name in names}
            for want, ids in self.held.get(uid, {}).items():
                if want.role is not Role.INIT:
                    listing[pod.key][want.container][want.resource] = ids
        return listing

    def drop(self, uid: str) -> None:
        """Forget a pod that is refused, ended, or deleted by force."""
        self.pods.pop(uid, None)
        self.held.pop(uid, None)

    def admit(self, pod: Pod, plugin: Plugin) -> Iterator[Handed | None]:
        """Yield None after GetPreferredAllocation, and the handed out ids after Allocate.

        A pod for which there are too few ids is dropped.
        """
        seen = gpu_pod(pod, DEFAULT)
        assert seen is not None
        self.pods[pod.uid] = pod
        held = self.held.setdefault(pod.uid, {})
        pool: set[DeviceId] = set()
        for want in self._in_some_order(seen.demands):
            if want in held:  # from before kubelet's restart
                pool = pool | held[want] if want.role is Role.INIT else pool - held[want]
                continue
            ids = set(self._some(pool, want.count))
            by_chance = want.count < len(pool)
            if len(ids) < want.count:
                free = self.free(want.resource)
                if len(free) < want.count - len(ids):
                    self.drop(pod.uid)
                    return
                offered = self._some(free | ids, len(free | ids))
                preferred = plugin.prefer(
                    PreferredRequest(
                        resource=want.resource, offered=offered, must_include=frozenset(ids), size=want.count
                    )
                )
                yield None
                wished = [id_ for id_ in self._some(preferred, len(preferred)) if id_ in free]
                rest = [id_ for id_ in self._some(free, len(free)) if id_ not in wished]
                ids.update((wished + rest)[: want.count - len(ids)])
            match = plugin.allocate(want.resource, frozenset(ids))
            held[want] = frozenset(ids)
            pool = pool | ids if want.role is Role.INIT else pool - ids
            yield Handed(pod, want, frozenset(ids), match, by_chance)

    def _some(self, ids: frozenset[DeviceId] | set[DeviceId] | tuple[DeviceId, ...], most: int) -> tuple[DeviceId, ...]:
        return tuple(self.chance.sample(sorted(ids), min(most, len(ids))))

    def _in_some_order(self, wants: tuple[Demand, ...]) -> list[Demand]:
        """Return the containers in order, with the resources of each in any order."""
        return sorted(wants, key=lambda want: (want.index, self.chance.random()))
