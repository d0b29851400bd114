"""What is found out about a call of kubelet: whose it is, and what to answer."""

from __future__ import annotations

from dataclasses import dataclass

from gas.placement.choice import ContainerChoice
from gas.placement.need import Role
from gas.plugin.devices.allocation_policy import PreferredRequest
from gas.plugin.devices.device_ids import DeviceId
from gas.plugin.kubelet.listing import Ids
from gas.plugin.matching.confidence import Confidence
from gas.plugin.matching.waiting_pods import PodOfNode, Want


@dataclass(frozen=True, slots=True)
class Match:
    """The container that a call is for.

    want       its place, name and role, the resource and how many ids
    given      the cards, and the tiles of them, decided for it; None when nothing is known to be
    hierarchy  its ``ZE_FLAT_DEVICE_HIERARCHY``
    question   kubelet's GetPreferredAllocation for these devices; None when it made none
    """

    pod: PodOfNode
    want: Want
    given: ContainerChoice | None
    hierarchy: str | None
    confidence: Confidence
    question: PreferredRequest | None


@dataclass(frozen=True, slots=True)
class Wish:
    """What to answer to GetPreferredAllocation.

    ids     ids that kubelet offers: what it insists on, then one for each card decided that is free; ``size`` at
            most. The rest, or everything when nothing is decided, is up to the allocation policy
    spared  offered ids that containers yet to come were promised; the policy takes them last
    match   None when no pod is known that this can be for
    """

    ids: tuple[DeviceId, ...]
    spared: Ids
    match: Match | None

    @property
    def confidence(self) -> Confidence:
        return self.match.confidence if self.match else Confidence.GUESSED

    @property
    def one_entry_suffices(self) -> bool:
        """Whether a listing of the matched pod alone makes sure: it is there, and has devices still to come."""
        match = self.match
        return (
            match is not None
            and match.confidence is Confidence.ALONE
            and any(want.role is not Role.INIT for want in match.pod.wants)
        )
