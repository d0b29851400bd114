"""Manage devices as kubelet does: which exist, which container has which, and how they are chosen."""

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from random import SystemRandom
from typing import Any, Protocol

import msgspec

from gas.plugin.kubelet_api import deviceplugin_v1beta1_pb2 as api
from gas.values.amounts import exact_quantity
from gas.values.errors import GasError

NodeAmounts = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Allocation:
    ids: frozenset[str]
    response: bytes  # the plugin's encoded ContainerAllocateResponse, applied at each start of the container


class DeviceState:
    """The devices that plugins have reported, and the allocations by pod UID, container and resource."""

    def __init__(self) -> None:
        self.allocations: dict[str, dict[str, dict[str, Allocation]]] = {}
        self._healthy: dict[str, frozenset[str]] = {}
        self._unhealthy: dict[str, frozenset[str]] = {}
        self._numa: dict[str, dict[str, frozenset[int]]] = {}

    @property
    def resources(self) -> frozenset[str]:
        return frozenset(self._healthy)

    def is_device_resource(self, resource: str) -> bool:
        """Return whether kubelet allocates devices for this resource. For any other it starts containers without."""
        return resource in self._healthy or resource in self._in_use()

    def report(self, resource: str, devices: api.ListAndWatchResponse) -> None:
        """Store what a plugin reports: all of its ids, whether each is healthy, and NUMA nodes."""
        self._healthy[resource] = frozenset(each.ID for each in devices.devices if each.health == "Healthy")
        self._unhealthy[resource] = frozenset(each.ID for each in devices.devices) - self._healthy[resource]
        self._numa[resource] = {each.ID: frozenset(node.ID for node in each.topology.nodes) for each in devices.devices}

    def restart(self) -> None:
        """Forget all devices, but not the allocations, as when kubelet restarts."""
        for resource in self._healthy:
            self.report(resource, api.ListAndWatchResponse())

    def mark_plugin_gone(self, resource: str) -> None:
        """Mark every id of a resource unhealthy. After a restart of kubelet they are unknown."""
        healthy = self._healthy.get(resource, frozenset())
        self._healthy[resource] = frozenset()
        self._unhealthy[resource] = self._unhealthy.get(resource, frozenset()) | healthy

    def healthy(self, resource: str) -> frozenset[str] | None:
        """Return the healthy ids; None for a resource that no plugin has reported."""
        return self._healthy.get(resource)

    def numa_nodes(self, resource: str, id_: str) -> frozenset[int]:
        return self._numa.get(resource, {}).get(id_, frozenset())

    def free(self, resource: str) -> frozenset[str]:
        return self._healthy.get(resource, frozenset()) - self._in_use().get(resource, frozenset())

    def allocations_of(self, uid: str, container: str) -> Mapping[str, Allocation]:
        return self.allocations.get(uid, {}).get(container, {})

    def keep_only(self, uids: Collection[str]) -> None:
        self.allocations = {uid: containers for uid, containers in self.allocations.items() if uid in uids}

    def capacity(self) -> NodeAmounts:
        return {name: len(self._healthy[name]) + len(self._unhealthy[name]) for name in self._healthy}

    def allocatable(self) -> NodeAmounts:
        """Return the number of healthy ids by resource, allocated or not."""
        return {name: len(ids) for name, ids in self._healthy.items()}

    def _in_use(self) -> dict[str, frozenset[str]]:
        found: dict[str, frozenset[str]] = {}
        for containers in self.allocations.values():
            for allocations in containers.values():
                for resource, allocation in allocations.items():
                    found[resource] = found.get(resource, frozenset()) | allocation.ids
        return found


CHECKPOINT_FILE = "kubelet_internal_checkpoint"


class _Checkpoint(msgspec.Struct):
    allocations: dict[str, dict[str, dict[str, Allocation]]]
    resources: frozenset[str]


def write_checkpoint(file: Path, state: DeviceState) -> None:
    """Write the file by which kubelet knows its allocations after a restart. Atomic."""
    unfinished = file.with_suffix(".new")
    unfinished.write_bytes(msgspec.json.encode(_Checkpoint(state.allocations, state.resources)))
    unfinished.replace(file)


def read_checkpoint(file: Path) -> DeviceState:
    """Read the state of devices; empty if there is no file. None is healthy until its plugin has reported it again."""
    state = DeviceState()
    if file.exists():
        checkpoint = msgspec.json.decode(file.read_bytes(), type=_Checkpoint)
        state.allocations = checkpoint.allocations
        for resource in checkpoint.resources:
            state.report(resource, api.ListAndWatchResponse())
    return state


Object = dict[str, Any]

InAnyOrder = Callable[[Iterable[str]], list[str]]


def _shuffled(texts: Iterable[str]) -> list[str]:
    ordered = sorted(texts)
    return SystemRandom().sample(ordered, len(ordered))


class NoDevices(GasError):
    """A container cannot get its devices, so its pod is rejected for good. The sentence is kubelet's."""


class PluginFailed(GasError):
    """A plugin cannot be called, or returned an error. The text is kubelet's."""


class Plugins(Protocol):
    """The calls to device plugins. Each may raise PluginFailed."""

    async def prefer(
        self, resource: str, available: frozenset[str], must_include: frozenset[str], size: int
    ) -> frozenset[str]: ...

    async def allocate(self, resource: str, ids: frozenset[str]) -> bytes: ...

    async def pre_start(self, resource: str, ids: frozenset[str]) -> None: ...


@dataclass(frozen=True, slots=True)
class DeviceManager:
    state: DeviceState
    plugins: Plugins
    in_any_order: InAnyOrder = _shuffled  # decides where kubelet's order is random
    save: Callable[[], None] = lambda: None  # called after an allocation

    async def allocate_pod(self, pod: Object, *, runs_already: Callable[[str], bool]) -> None:
        """Allocate devices to the containers of a pod: to init containers in order, then to the others.

        ``runs_already`` returns whether a container, by name, has run since before kubelet's start; these are skipped.
        Raises NoDevices and PluginFailed. What earlier containers got then stays allocated until the pod is removed.
        """
        uid, init = pod["metadata"]["uid"], pod["spec"].get("initContainers") or []
        reusable: dict[str, frozenset[str]] = {}
        try:
            for container in [*init, *pod["spec"]["containers"]]:
                if not runs_already(container["name"]):
                    await self._allocate(uid, container, reusable)
                for resource, allocation in self.state.allocations_of(uid, container["name"]).items():
                    before = reusable.get(resource, frozenset())
                    frees = container in init and container.get("restartPolicy") != "Always"
                    reusable[resource] = before | allocation.ids if frees else before - allocation.ids
        finally:
            self.save()

    async def _allocate(self, uid: str, container: Object, reusable: Mapping[str, frozenset[str]]) -> None:
        asked, name = requested_devices(container), container["name"]
        for resource in self.in_any_order(asked):  # kubelet iterates over a Go map here
            if not self.state.is_device_resource(resource):
                continue
            has = self.state.allocations_of(uid, name).get(resource)
            if has is not None and len(has.ids) != asked[resource]:
                raise NoDevices(
                    f'pod "{uid}" container "{name}" changed request for resource "{resource}" '
                    f"from {len(has.ids)} to {asked[resource]}"
                )
            self._check_health(resource, has.ids if has is not None else frozenset())
            if has is None and asked[resource] > 0:
                ids = await self._choose(resource, asked[resource], reusable.get(resource, frozenset()))
                response = await self.plugins.allocate(resource, ids)
                of_pod = self.state.allocations.setdefault(uid, {})
                of_pod.setdefault(name, {})[resource] = Allocation(ids, response)

    def _check_health(self, resource: str, has: frozenset[str]) -> None:
        healthy = self.state.healthy(resource)
        if healthy is None:
            raise NoDevices(f"cannot allocate unregistered device {resource}")
        if not healthy:
            raise NoDevices(f"no healthy devices present; cannot allocate unhealthy devices {resource}")
        if not has <= healthy:
            raise NoDevices(
                f"previously allocated devices are no longer healthy; cannot allocate unhealthy devices {resource}"
            )

    async def _choose(self, resource: str, count: int, reusable: frozenset[str]) -> frozenset[str]:
        """Choose ids: first those of ended init containers, then those that the plugin prefers, then any.

        If the ids of init containers suffice, the plugin is not asked.
        """
        taken = self._some(reusable, count)
        if len(taken) == count:
            return taken
        free = self.state.free(resource)
        if len(free) < count - len(taken):
            raise NoDevices(
                f"requested number of devices unavailable for {resource}. "
                f"Requested: {count - len(taken)}, Available: {len(free)}"
            )
        preferred = await self.plugins.prefer(resource, free | taken, taken, count)
        taken |= self._some(preferred & free, count - len(taken))
        return taken | self._some(free - taken, count - len(taken))

    def _some(self, ids: frozenset[str], count: int) -> frozenset[str]:
        return frozenset(self.in_any_order(ids)[:count])


def requested_devices(container: Object) -> dict[str, int]:
    """Return what a container requests, by full resource name, in whole units."""
    limits: Mapping[str, Any] = container.get("resources", {}).get("limits") or {}
    return {name: math.ceil(exact_quantity(amount)) for name, amount in limits.items()}
