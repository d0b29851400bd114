"""In which order kubelet asks a plugin for the containers of a pod, and which ids it then takes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from random import SystemRandom
from typing import Any, Protocol

from gas.errors import GasError
from gas.sandbox.device_books import Allotment, DeviceBooks
from gas.sandbox.quantities import exact_amount

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
