"""What a kubelet knows of devices: which ids there are, and which container has which."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

NodeAmounts = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Allotment:
    """What one container has of one resource.

    answer  the plugin's ContainerAllocateResponse, encoded: what the container gets at each of its starts
    """

    ids: frozenset[str]
    answer: bytes


class DeviceBooks:
    """The devices that plugins told of, and the allotments of the containers, by pod UID, container and resource."""

    def __init__(self) -> None:
        self.allotments: dict[str, dict[str, dict[str, Allotment]]] = {}
        self._healthy: dict[str, frozenset[str]] = {}
        self._unhealthy: dict[str, frozenset[str]] = {}
        self._numa: dict[str, dict[str, frozenset[int]]] = {}

    @property
    def resources(self) -> frozenset[str]:
        """All that a plugin ever told of."""
        return frozenset(self._healthy)

    def is_device_resource(self, resource: str) -> bool:
        """Whether kubelet gives devices for it. For any other resource a container just runs, without."""
        return resource in self._healthy or resource in self._in_use()

    def tell(self, resource: str, devices: Mapping[str, bool], numa: Mapping[str, frozenset[int]]) -> None:
        """What a plugin says: all of its ids, and whether each is healthy; the NUMA nodes of those that have any."""
        self._healthy[resource] = frozenset(id_ for id_, healthy in devices.items() if healthy)
        self._unhealthy[resource] = frozenset(devices) - self._healthy[resource]
        self._numa[resource] = dict(numa)

    def lose(self, resource: str) -> None:
        """Its plugin is gone: every id is unhealthy, and no longer known after a restart."""
        healthy = self._healthy.get(resource, frozenset())
        self._healthy[resource] = frozenset()
        self._unhealthy[resource] = self._unhealthy.get(resource, frozenset()) | healthy

    def healthy(self, resource: str) -> frozenset[str] | None:
        """None for a resource that no plugin ever told of."""
        return self._healthy.get(resource)

    def numa_nodes(self, resource: str, id_: str) -> frozenset[int]:
        return self._numa.get(resource, {}).get(id_, frozenset())

    def free(self, resource: str) -> frozenset[str]:
        """Healthy, and no container has it."""
        return self._healthy.get(resource, frozenset()) - self._in_use().get(resource, frozenset())

    def ids_of(self, uid: str, container: str, resource: str) -> frozenset[str] | None:
        """None for a container that was not given any yet."""
        allotment = self.allotments.get(uid, {}).get(container, {}).get(resource)
        return allotment.ids if allotment is not None else None

    def give(self, uid: str, container: str, resource: str, allotment: Allotment) -> None:
        self.allotments.setdefault(uid, {}).setdefault(container, {})[resource] = allotment

    def keep_only(self, uids: Collection[str]) -> None:
        """Take back what other pods had."""
        self.allotments = {uid: containers for uid, containers in self.allotments.items() if uid in uids}

    def capacity(self) -> NodeAmounts:
        """All ids, by resource."""
        return {name: len(self._healthy[name]) + len(self._unhealthy[name]) for name in self._healthy}

    def allocatable(self) -> NodeAmounts:
        """The healthy ids, by resource, whether containers have them or not."""
        return {name: len(ids) for name, ids in self._healthy.items()}

    def _in_use(self) -> dict[str, frozenset[str]]:
        found: dict[str, frozenset[str]] = {}
        for resource, allotment in self._all():
            found[resource] = found.get(resource, frozenset()) | allotment.ids
        return found

    def _all(self) -> Iterable[tuple[str, Allotment]]:
        for containers in self.allotments.values():
            for allotments in containers.values():
                yield from allotments.items()
