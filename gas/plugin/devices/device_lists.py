"""What kubelet is told of: a list of devices for every resource that this node has."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum

from gas.card_facts import CardFacts
from gas.intel.names import COUNT_RESOURCES
from gas.plugin.devices.device_ids import ALL_CARDS, DeviceId


class Monitoring(StrEnum):
    """Which resources give access to all cards of the node, for programs that only watch them."""

    NONE = "none"
    ONE = "one"  # `monitoring`: cards of both drivers
    SPLIT = "split"  # `i915_monitoring` and `xe_monitoring`


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """One device as kubelet sees it.

    numa_node  kubelet's topology hint; None: it fits every NUMA node
    """

    id: str
    healthy: bool
    numa_node: int | None = None


DeviceLists = Mapping[str, tuple[Device, ...]]
"""Resource without prefix -> its devices, in natural order of their ids. A resource that is missing has no card."""


def device_lists(gpus: Collection[CardFacts], *, shared_dev_num: int, monitoring: Monitoring) -> DeviceLists:
    """The devices of each driver's resource, and of the monitoring resources that were asked for.

    shared_dev_num  ids per card, at least 1

    An unhealthy card keeps its ids, as kubelet then knows which containers have them. Monitoring is healthy while
    any of its cards is. Source: contract P2.3 to P2.6.
    """
    lists: dict[str, tuple[Device, ...]] = {}
    for gpu in sorted(gpus, key=lambda gpu: gpu.card):
        lists[gpu.driver] = lists.get(gpu.driver, ()) + tuple(
            Device(id=str(DeviceId(gpu.card, slot)), healthy=gpu.healthy, numa_node=gpu.numa_node)
            for slot in range(shared_dev_num)
        )
    for resource, watched in monitored(gpus, monitoring).items():
        lists[resource] = (Device(id=ALL_CARDS, healthy=any(gpu.healthy for gpu in watched)),)
    return lists


def monitoring_resources(monitoring: Monitoring) -> tuple[str, ...]:
    """All monitoring resources that there can be, without prefix."""
    match monitoring:
        case Monitoring.NONE:
            return ()
        case Monitoring.ONE:
            return ("monitoring",)
        case Monitoring.SPLIT:
            return tuple(f"{driver}_monitoring" for driver in COUNT_RESOURCES)


def monitored(gpus: Collection[CardFacts], monitoring: Monitoring) -> Mapping[str, tuple[CardFacts, ...]]:
    """Monitoring resource without prefix -> the cards that it gives access to, in natural order."""
    by_resource: dict[str, tuple[CardFacts, ...]] = {}
    for gpu in sorted(gpus, key=lambda gpu: gpu.card):
        match monitoring:
            case Monitoring.NONE:
                continue
            case Monitoring.ONE:
                resource = "monitoring"
            case Monitoring.SPLIT:
                resource = f"{gpu.driver}_monitoring"
        by_resource[resource] = (*by_resource.get(resource, ()), gpu)
    return by_resource
