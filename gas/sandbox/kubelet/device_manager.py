"""In which order kubelet asks a plugin for the containers of a pod, and which ids it then takes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from random import SystemRandom
from typing import Any, Protocol

import msgspec

from gas.errors import GasError
from gas.sandbox.api.quantities import exact_amount

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


CHECKPOINT_FILE = "kubelet_internal_checkpoint"


class _Entry(msgspec.Struct):
    uid: str
    container: str
    resource: str
    ids: list[str]
    answer: bytes


class _Checkpoint(msgspec.Struct):
    entries: list[_Entry]
    resources: list[str]


def write_checkpoint(file: Path, books: DeviceBooks) -> None:
    entries = [
        _Entry(uid, container, resource, sorted(allotment.ids), allotment.answer)
        for uid, containers in books.allotments.items()
        for container, allotments in containers.items()
        for resource, allotment in allotments.items()
    ]
    unfinished = file.with_suffix(".new")
    unfinished.write_bytes(msgspec.json.encode(_Checkpoint(entries, sorted(books.resources))))
    unfinished.replace(file)


def read_checkpoint(file: Path) -> DeviceBooks:
    """The books as they were, without any healthy device: plugins have to tell of those again."""
    books = DeviceBooks()
    if not file.exists():
        return books
    checkpoint = msgspec.json.decode(file.read_bytes(), type=_Checkpoint)
    for resource in checkpoint.resources:
        books.tell(resource, {}, {})
    for entry in checkpoint.entries:
        books.give(entry.uid, entry.container, entry.resource, Allotment(frozenset(entry.ids), entry.answer))
    return books


Object = dict[str, Any]

_chance = SystemRandom()


class NoDevices(GasError):
    """A container cannot have its devices, and its pod is refused for good; the sentence is kubelet's."""


class Plugins(Protocol):
    """The questions to plugins; each may raise PluginFailed."""

    async def prefer(
        self, resource: str, available: frozenset[str], must_include: frozenset[str], size: int
    ) -> frozenset[str]: ...

    async def allocate(self, resource: str, ids: frozenset[str]) -> bytes: ...


async def allocate_pod(
    pod: Object,
    books: DeviceBooks,
    plugins: Plugins,
    *,
    runs_already: Callable[[str], bool] = lambda container: False,
) -> None:
    """Give every container of the pod its devices: init containers in order, then the others. Raises NoDevices.

    What containers before it got stays in the books then; it is taken back with the pod. A PluginFailed goes through.

    runs_already  whether a container, by its name, has run since before kubelet's start: it is not looked at
    """
    uid = pod["metadata"]["uid"]
    reusable: dict[str, frozenset[str]] = {}
    for container in pod["spec"].get("initContainers") or ():
        if not runs_already(container["name"]):
            await _allocate(uid, container, reusable, books, plugins)
        for resource, ids in _ids_of(uid, container, books):
            before = reusable.get(resource, frozenset())
            keeps = container.get("restartPolicy") == "Always"
            reusable[resource] = before - ids if keeps else before | ids
    for container in pod["spec"]["containers"]:
        if not runs_already(container["name"]):
            await _allocate(uid, container, reusable, books, plugins)
        for resource, ids in _ids_of(uid, container, books):
            reusable[resource] = reusable.get(resource, frozenset()) - ids


def asked_resources(container: Object) -> dict[str, int]:
    """What a container asks for, by full name, in whole units."""
    limits: Mapping[str, Any] = container.get("resources", {}).get("limits") or {}
    return {name: _whole(exact_amount(str(amount))) for name, amount in limits.items()}


async def _allocate(
    uid: str, container: Object, reusable: Mapping[str, frozenset[str]], books: DeviceBooks, plugins: Plugins
) -> None:
    asked = asked_resources(container)
    # Kubelet goes over its map of them, in no order.
    for resource in _chance.sample(list(asked), len(asked)):
        if not books.is_device_resource(resource):
            continue
        has = books.ids_of(uid, container["name"], resource)
        if has is not None and len(has) != asked[resource]:
            raise NoDevices(
                f'pod "{uid}" container "{container["name"]}" changed request for resource "{resource}" '
                f"from {len(has)} to {asked[resource]}"
            )
        _check_health(resource, has or frozenset(), books)
        if has is None and asked[resource] > 0:
            ids = await _chosen(resource, asked[resource], reusable.get(resource, frozenset()), books, plugins)
            answer = await plugins.allocate(resource, ids)
            books.give(uid, container["name"], resource, Allotment(ids, answer))


def _check_health(resource: str, has: frozenset[str], books: DeviceBooks) -> None:
    healthy = books.healthy(resource)
    if healthy is None:
        raise NoDevices(f"cannot allocate unregistered device {resource}")
    if not healthy:
        raise NoDevices(f"no healthy devices present; cannot allocate unhealthy devices {resource}")
    if not has <= healthy:
        raise NoDevices(
            f"previously allocated devices are no longer healthy; cannot allocate unhealthy devices {resource}"
        )


async def _chosen(
    resource: str, count: int, reusable: frozenset[str], books: DeviceBooks, plugins: Plugins
) -> frozenset[str]:
    """What init containers had comes first, and if it suffices nobody is asked; the rest as the plugin wishes."""
    taken = _some(reusable, count)
    if len(taken) == count:
        return taken
    free = books.free(resource)
    if len(free) < count - len(taken):
        raise NoDevices(
            f"requested number of devices unavailable for {resource}. "
            f"Requested: {count - len(taken)}, Available: {len(free)}"
        )
    wished = await plugins.prefer(resource, free | taken, taken, count)
    taken |= _some(wished & free, count - len(taken))
    return taken | _some(free - taken, count - len(taken))


def _some(ids: frozenset[str], count: int) -> frozenset[str]:
    return frozenset(_chance.sample(sorted(ids), min(count, len(ids))))


def _ids_of(uid: str, container: Object, books: DeviceBooks) -> Iterator[tuple[str, frozenset[str]]]:
    for resource, allotment in books.allotments.get(uid, {}).get(container["name"], {}).items():
        yield resource, allotment.ids


def _whole(amount: Decimal) -> int:
    return int(amount.to_integral_value(rounding="ROUND_CEILING"))
