"""The result of matching: which container a call of kubelet is for, how certain that is, and what to prefer."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum

from gas.placement.choice import ContainerChoice
from gas.placement.need import Role
from gas.plugin.devices.device_ids import DeviceId, Ids, PreferredRequest
from gas.plugin.matching.gpu_pods import Demand, GpuPod
from gas.values.cards import Card


class Confidence(StrEnum):
    """How certain it is that a call is for the container it was matched with."""

    KNOWN = "known"  # no other container can be meant
    ALONE = "alone"  # no other known container can be meant, but the watch may lag behind kubelet
    GUESSED = "guessed"  # other containers can be meant as well; a wrong guess shows in the receipts
    NONE = "none"  # no known container can be meant


@dataclass(frozen=True, slots=True)
class Target:
    """A container that a call can be for, with the demand that the call serves."""

    pod: GpuPod
    demand: Demand

    @property
    def decided(self) -> ContainerChoice | None:
        """The cards, and the tiles of them, decided for the container; None when no decision is known."""
        return self.pod.decided_for(self.demand.index)

    def __str__(self) -> str:
        return f"{self.pod.key}/{self.demand.container}"


@dataclass(frozen=True, slots=True)
class Match:
    """Which container a call is for.

    target          the likeliest container; None when no known container can be meant
    confidence      how certain that is
    doubt           why it may be wrong, as a clause for the log; empty when it is `Confidence.KNOWN`
    question        kubelet's GetPreferredAllocation for these devices; None when it made none
    unwatched_pods  ``namespace/name`` of the pods that kubelet lists and the watch has not shown yet: the call may be
                    for one of them
    """

    target: Target | None
    confidence: Confidence
    doubt: str
    question: PreferredRequest | None
    unwatched_pods: frozenset[str] = frozenset()

    @property
    def confirming_pod(self) -> GpuPod | None:
        """The pod whose own entry in kubelet's list confirms the match: it appears there, with devices yet to come.

        None when the match is certain already, or when a single entry cannot make it so.
        """
        if self.target is None or self.confidence is not Confidence.ALONE:
            return None
        pod = self.target.pod
        return pod if any(demand.role is not Role.INIT for demand in pod.demands) else None


@dataclass(frozen=True, slots=True)
class Preference:
    """The reply to GetPreferredAllocation, before the allocation policy completes it.

    ids     ids that kubelet offers: those that it insists on, then one for each decided card that is free; ``size`` at
            most. The rest, or everything when nothing is decided, is up to the allocation policy
    spared  offered ids that containers yet to come were promised; the policy takes them last
    match   the container that the ids are for
    """

    ids: tuple[DeviceId, ...]
    spared: Ids
    match: Match


def why_other_cards(match: Match) -> str:
    """Return why an identified container got other cards than decided, as a clause for the log.

    Each reason is a choice of kubelet's that a plugin cannot influence.
    """
    target, question = match.target, match.question
    decided: set[Card] = set(target.decided.cards) if target and target.decided else set()
    if question is None:
        if target is not None and _follows_init_containers(target):
            return "kubelet did not ask for a preference: it reuses devices of the pod's init containers"
        return "kubelet did not ask for a preference"
    if kept := {id_.card for id_ in question.must_include} - decided:
        return f"kubelet keeps {_listed(kept)}, which an init container of the pod had"
    if missing := decided - {id_.card for id_ in question.available}:
        return f"kubelet did not offer {_listed(missing)}: its devices are in use, or on another NUMA node"
    return "kubelet did not follow the preference"


def _follows_init_containers(target: Target) -> bool:
    return any(
        earlier.role is Role.INIT and earlier.resource == target.demand.resource and earlier.index < target.demand.index
        for earlier in target.pod.demands
    )


def _listed(cards: Collection[Card]) -> str:
    return ", ".join(map(str, sorted(cards)))
