"""The masks of tiles that containers were given, held against those that they should have, once it is sure whose."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from gas.cards import Card
from gas.decision.text import format_container_tiles
from gas.placement.choice import ContainerChoice
from gas.plugin.devices.affinity_mask import AFFINITY_MASK, mask_of
from gas.plugin.devices.device_ids import NO_IDS, DeviceId, Ids
from gas.plugin.kubelet.pod_resources import Listing
from gas.plugin.matching.gpu_pods import Demand, GpuPod
from gas.quoted import quoted


@dataclass(frozen=True, slots=True)
class GivenMask:
    """What one Allocate answered.

    tiles_of  for each card given, how many tiles it had then
    mask      None when the variable was not set
    at        when, by the clock of `GivenMasks.compare`
    """

    ids: Ids
    tiles_of: Mapping[Card, int]
    mask: str | None
    at: float


class GivenMasks:
    """Answers whose container kubelet's list has not shown yet.

    The mask is told in Allocate, for a container that may be a guess, and cannot be changed. When two pods are taken
    for each other and have the same card, no receipt is missing, and only the masks are exchanged. Each answer is
    compared once and forgotten; of those before this process's start nothing is known, so nothing is said.
    """

    def __init__(self) -> None:
        self._given: dict[tuple[str, DeviceId], GivenMask] = {}

    def add(self, resource: str, given: GivenMask) -> None:
        """Its ids are no longer those of earlier answers, whose pod was refused, is gone, or handed them on."""
        self._given |= {(resource, id_): given for id_ in given.ids}

    def compare(self, pods: Iterable[GpuPod], listing: Listing, *, asked: float) -> Iterator[tuple[GpuPod, str]]:
        """Pods with a container that was given another mask than it should have, each with the sentence about it.

        pods   those that the watch has shown
        asked  when kubelet was asked for the listing; answers given since are in a later one
        """
        if not self._given:
            return
        for pod in pods:
            containers = listing.get(pod.key, {})
            for demand in pod.demands:
                ids = containers.get(demand.container, {}).get(demand.resource, NO_IDS)
                given = self._given.get((demand.resource, next(iter(ids)))) if ids else None
                if given is None or given.ids != ids or given.at >= asked:
                    continue
                self._given = {key: each for key, each in self._given.items() if each is not given}
                if sentence := _difference(pod, demand, given):
                    yield pod, sentence

    def forget_before(self, when: float) -> None:
        """What was answered before and is in no list by now: of ordinary init containers, pods refused or over."""
        self._given = {key: given for key, given in self._given.items() if given.at >= when}


def _difference(pod: GpuPod, demand: Demand, given: GivenMask) -> str:
    """Empty when the container has the mask that it should have."""
    decided = pod.decided_for(demand.index)
    expected = mask_of(decided, given.tiles_of, pod.hierarchies[demand.index])
    was_given = AFFINITY_MASK if given.mask is None else f"{AFFINITY_MASK}={given.mask}"
    told = f"container {quoted(demand.container)} was given {'no ' if given.mask is None else ''}{was_given}"
    cards = ", ".join(map(str, sorted(given.tiles_of)))
    if expected is not None and decided is not None:
        return f"{told}, but for {_tiles(decided)} it should be {expected}" if given.mask != expected else ""
    if given.mask is not None:
        return f"{told}, but no tiles of {cards} were decided for it"
    if decided is not None and any(decided.tiles) and not _has_all(decided, given.tiles_of):
        return f"{told}: it has {cards}, and {_tiles(decided)} was decided for it"
    return ""


def _has_all(decided: ContainerChoice, tiles_of: Mapping[Card, int]) -> bool:
    """Whether no mask is needed: no card given has more than one tile, and those decided are there."""
    if max(tiles_of.values(), default=0) > 1:
        return False
    pairs = zip(decided.cards, decided.tiles, strict=False)
    return not any(tile for card, tiles in pairs if card in tiles_of for tile in tiles)


def _tiles(decided: ContainerChoice) -> str:
    pairs = zip(decided.cards, decided.tiles, strict=False)
    return format_container_tiles([[(card, tiles) for card, tiles in pairs if tiles]])
