"""Make the lists of devices that kubelet is shown, one for every resource of this node."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum

from gas.plugin.devices.device_ids import ALL_CARDS, DeviceId
from gas.values.card_facts import CardFacts
from gas.values.errors import GasError
from gas.vocabularies.combined import Vocabularies
from gas.vocabularies.protocol import DeviceOptions

MOST_BYTES = 4 * 1024 * 1024
"""The longest list of devices that kubelet accepts: the limit of a gRPC message."""

_BYTES_BESIDE_ID = 15
"""Most bytes of a listed device in addition to its id: field numbers, lengths and the word ``Unhealthy``."""

_BYTES_OF_HINT = 8
"""Bytes of a topology hint, at most."""


class ListTooLong(GasError):
    """Kubelet would refuse the list of devices of a resource, and all of its cards with it."""


class Monitoring(StrEnum):
    """Which resources give access to all cards of the node, for programs that only observe them."""

    NONE = "none"
    ONE = "one"  # one for all cards
    SPLIT = "split"  # one for each driver


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """One device as kubelet sees it. ``numa_node`` is its topology hint."""

    id: str
    healthy: bool
    numa_node: int | None = None

    @property
    def most_bytes(self) -> int:
        return len(self.id) + _BYTES_BESIDE_ID + (0 if self.numa_node is None else _BYTES_OF_HINT)


DeviceLists = Mapping[str, tuple[Device, ...]]
"""The devices of each resource, in natural order of their ids. A missing resource has no card."""


def device_lists(
    gpus: Collection[CardFacts],
    vocabularies: Vocabularies,
    options: DeviceOptions,
    monitoring: Monitoring,
    *,
    topology_hints: bool = False,
) -> DeviceLists:
    """Return the devices of each resource of cards, and of the monitoring resources that are switched on.

    An unhealthy card keeps its ids, so that kubelet knows which containers have them. Monitoring is healthy while any
    of its cards is. Source: contract P2.3 to P2.6. With ``topology_hints``, devices carry the NUMA node of their card;
    kubelet may then offer only one node's devices.
    """
    lists: dict[str, tuple[Device, ...]] = {}
    for gpu in sorted(gpus, key=lambda gpu: gpu.card):
        for resource, ids in vocabularies.ids_per_card(gpu, options).items():
            lists[resource] = lists.get(resource, ()) + tuple(
                Device(
                    id=str(DeviceId(gpu.card, slot)),
                    healthy=gpu.healthy,
                    numa_node=gpu.numa_node if topology_hints else None,
                )
                for slot in range(ids)
            )
    for resource, watched in monitored(gpus, vocabularies, monitoring).items():
        lists[resource] = (Device(id=ALL_CARDS, healthy=any(gpu.healthy for gpu in watched)),)
    return lists


def check_lengths(lists: DeviceLists, vocabularies: Vocabularies) -> None:
    """Raise ListTooLong if kubelet would refuse the list of a resource."""
    for resource, devices in lists.items():
        length = sum(device.most_bytes for device in devices)
        if length > MOST_BYTES:
            advice = vocabularies.fewer_ids(resource)
            raise ListTooLong(
                f"{resource}: kubelet accepts lists of up to {MOST_BYTES} bytes, found {len(devices)} devices in"
                f" {length} bytes; {advice or 'switch its vocabulary off on this node'}"
            )


def monitoring_resources(vocabularies: Vocabularies, monitoring: Monitoring) -> tuple[str, ...]:
    if monitoring is Monitoring.NONE:
        return ()
    return vocabularies.monitoring_resources(split=monitoring is Monitoring.SPLIT)


def monitored(
    gpus: Collection[CardFacts], vocabularies: Vocabularies, monitoring: Monitoring
) -> Mapping[str, tuple[CardFacts, ...]]:
    """Return the cards that each monitoring resource gives access to, in natural order."""
    by_resource: dict[str, tuple[CardFacts, ...]] = {}
    if monitoring is Monitoring.NONE:
        return by_resource
    for gpu in sorted(gpus, key=lambda gpu: gpu.card):
        for resource in vocabularies.monitoring_of(gpu, split=monitoring is Monitoring.SPLIT):
            by_resource[resource] = (*by_resource.get(resource, ()), gpu)
    return by_resource
