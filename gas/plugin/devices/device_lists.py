"""Make the lists of devices that kubelet is shown, one for every resource of this node."""

from collections import Counter
from collections.abc import Collection, Container, Mapping
from dataclasses import dataclass
from enum import StrEnum

from gas.plugin.devices.device_ids import ALL_CARDS, DeviceId, known_ids
from gas.values.card_facts import CardFacts
from gas.vocabularies.combined import Vocabularies
from gas.vocabularies.protocol import DeviceOptions

MOST_BYTES = 4 * 1024 * 1024  # the longest list of devices that kubelet accepts: the limit of a gRPC message
_BYTES_OF_FIELDS = 6  # bytes of a device in the list beside its id, its health and its hint: field numbers and lengths
_BYTES_OF_HINT = 8  # bytes of a topology hint, at most


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


def device_lists(
    gpus: Collection[CardFacts],
    vocabularies: Vocabularies,
    options: DeviceOptions,
    monitoring: Monitoring,
    *,
    topology_hints: bool = False,
    without: Container[str] = (),
) -> dict[str, tuple[Device, ...]]:
    """Return the devices of each resource of cards, and of the monitoring resources that are switched on.

    They are in natural order of their ids. A missing resource has no card.

    An unhealthy card keeps its ids, so that kubelet knows which containers have them. Monitoring is healthy while any
    of its cards is. Source: contract P2.3 to P2.6. With ``topology_hints``, devices carry the NUMA node of their card;
    kubelet may then offer only one node's devices. Resources of cards in ``without`` are left out.
    """
    lists: dict[str, tuple[Device, ...]] = {}
    for gpu in sorted(gpus, key=lambda gpu: gpu.card):
        for resource, ids in vocabularies.ids_per_card(gpu, options).items():
            if resource in without:
                continue
            hint = gpu.numa_node if topology_hints else None
            lists[resource] = lists.get(resource, ()) + tuple(
                Device(id=id_, healthy=gpu.healthy, numa_node=hint)
                for id_ in known_ids(f"{gpu.card}-{slot}" for slot in range(ids))
            )
    for resource, watched in monitored(gpus, vocabularies, monitoring).items():
        lists[resource] = (Device(id=ALL_CARDS, healthy=any(gpu.healthy for gpu in watched)),)
    return lists


def too_long(
    gpus: Collection[CardFacts], vocabularies: Vocabularies, options: DeviceOptions, *, topology_hints: bool = False
) -> Mapping[str, str]:
    """Return the resources of cards whose lists kubelet would refuse, each with a sentence that says what to do."""
    counts: Counter[str] = Counter()
    lengths: Counter[str] = Counter()
    for gpu in gpus:
        for resource, ids in vocabularies.ids_per_card(gpu, options).items():
            counts[resource] += ids
            lengths[resource] += list_bytes(gpu, ids, has_hint=topology_hints and gpu.numa_node is not None)
    return {
        resource: f"{resource} is not offered: kubelet accepts lists of up to {MOST_BYTES} bytes, found"
        f" {counts[resource]} devices in {length} bytes;"
        f" {vocabularies.fewer_ids(resource) or 'switch its vocabulary off on this node'}"
        for resource, length in lengths.items()
        if length > MOST_BYTES
    }


def list_bytes(gpu: CardFacts, ids: int, *, has_hint: bool) -> int:
    """Return the bytes that a card's devices take in kubelet's list, at most."""
    of_id = len(DeviceId(gpu.card, 0)) - 1
    of_health = len("Healthy" if gpu.healthy else "Unhealthy")
    beside_slot = of_id + of_health + _BYTES_OF_FIELDS + (_BYTES_OF_HINT if has_hint else 0)
    return ids * beside_slot + sum(len(str(slot)) for slot in range(ids))


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
