"""The environment variables that containers were given, checked once it is certain which container was which."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from gas.decision.text import format_container_tiles
from gas.placement.choice import ContainerChoice
from gas.plugin.devices.device_ids import NO_IDS, AllocateRequest, DeviceId, Ids
from gas.plugin.kubelet.pod_resources import Listing
from gas.plugin.matching.gpu_pods import Demand, GpuPod
from gas.plugin.matching.match import Target
from gas.values.card_facts import CardFacts
from gas.values.quoted import quoted
from gas.vocabularies.combined import Vocabularies


@dataclass(frozen=True, slots=True)
class IssuedEnvironment:
    """The reply to one Allocate.

    cards  the cards of the ids, as they were at that time
    env    the vocabulary's variables, such as ``ZE_AFFINITY_MASK``
    at     when, by the clock of `IssuedEnvironments.compare`
    """

    ids: Ids
    cards: Sequence[CardFacts]
    env: Mapping[str, str]
    at: float


class IssuedEnvironments:
    """Replies whose container kubelet's list has not shown yet.

    Variables are set in Allocate, for a container that may be a guess, and cannot be changed later. When two pods are
    mistaken for each other and have the same card, no receipt is missing, and only the variables are exchanged. Each
    reply is compared once and forgotten. Replies before this process started are unknown, so nothing is reported.
    """

    def __init__(self, vocabularies: Vocabularies) -> None:
        self._vocabularies = vocabularies
        self._issued: dict[tuple[str, DeviceId], IssuedEnvironment] = {}

    def issue(
        self, request: AllocateRequest, cards: Sequence[CardFacts], target: Target | None, *, at: float
    ) -> Mapping[str, str]:
        """Return the variables for the container that a call is for, as far as it is known, and remember the reply."""
        env: Mapping[str, str] = {}
        if target is not None:
            env = self._vocabularies.environment(target.pod.raw, target.demand.container, cards)
        self.add(request.resource, IssuedEnvironment(request.ids, cards, env, at))
        return env

    def add(self, resource: str, issued: IssuedEnvironment) -> None:
        """Remember a reply. Its ids replace earlier ones, whose pod was refused, is gone, or handed them on."""
        self._issued |= {(resource, id_): issued for id_ in issued.ids}

    def compare(self, pods: Iterable[GpuPod], listing: Listing, *, asked: float) -> Iterator[tuple[GpuPod, str]]:
        """Yield each pod that has a container with wrong variables, with a sentence about them.

        pods   those that the watch has shown
        asked  when kubelet was asked for the listing; what the plugin replied after that appears in a later listing
        """
        if not self._issued:
            return
        for pod in pods:
            containers = listing.get(pod.key, {})
            for demand in pod.demands:
                ids = containers.get(demand.container, {}).get(demand.resource, NO_IDS)
                issued = self._issued.get((demand.resource, next(iter(ids)))) if ids else None
                if issued is None or issued.ids != ids or issued.at >= asked:
                    continue
                self._issued = {key: each for key, each in self._issued.items() if each is not issued}
                if sentence := self._difference(pod, demand, issued):
                    yield pod, sentence

    def forget_before(self, when: float) -> None:
        """Forget earlier replies that are in no list by now: of ordinary init containers, and pods refused or over."""
        self._issued = {key: issued for key, issued in self._issued.items() if issued.at >= when}

    def _difference(self, pod: GpuPod, demand: Demand, issued: IssuedEnvironment) -> str:
        """Return a sentence if the container has wrong variables, else an empty text."""
        expected = self._vocabularies.environment(pod.raw, demand.container, issued.cards)
        decided = pod.decided_for(demand.index)
        differing = [name for name in sorted({*issued.env, *expected}) if issued.env.get(name) != expected.get(name)]
        if differing:
            has = ", ".join(_assigned(name, issued.env) for name in differing)
            should_have = ", ".join(_assigned(name, expected) for name in differing)
            return f"container {quoted(demand.container)} was given {has} instead of {should_have}"
        if not expected and decided is not None and any(decided.tiles) and not _has_all(decided, issued.cards):
            cards = ", ".join(str(each.card) for each in issued.cards)
            return (
                f"container {quoted(demand.container)} can use all tiles of {cards}, but {_tiles(decided)} was decided"
            )
        return ""


def _assigned(name: str, env: Mapping[str, str]) -> str:
    return f"{name}={env[name]}" if name in env else f"no {name}"


def _has_all(decided: ContainerChoice, cards: Iterable[CardFacts]) -> bool:
    """Return whether no limit is needed: no card has more than one tile, and the cards have the decided tiles."""
    tiles_of = {each.card: each.tiles for each in cards}
    if max(tiles_of.values(), default=0) > 1:
        return False
    pairs = zip(decided.cards, decided.tiles, strict=False)
    return not any(tile for card, tiles in pairs if card in tiles_of for tile in tiles)


def _tiles(decided: ContainerChoice) -> str:
    pairs = zip(decided.cards, decided.tiles, strict=False)
    return format_container_tiles([[(card, tiles) for card, tiles in pairs if tiles]])
