"""Kubelet's two calls about one container's devices of one resource."""

from __future__ import annotations

from dataclasses import dataclass, field

from gas.plugin.devices.device_ids import DeviceId, Ids


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocateRequest:
    """Allocate: kubelet has chosen these ids for one container.

    resource  full name: ``gpu.intel.com/i915``
    ids       the ids of cards; empty for a monitoring resource
    """

    resource: str
    ids: Ids

    @property
    def size(self) -> int:
        return len(self.ids)


@dataclass(frozen=True, slots=True, kw_only=True)
class PreferredRequest:
    """GetPreferredAllocation: kubelet asks which ids one container should get.

    resource      full name: ``gpu.intel.com/i915``
    offered       the ids to choose from, each once, in kubelet's order
    must_include  ids that the container gets in any case: those that the pod's init containers had
    size          how many ids the container gets, including ``must_include``
    available     the ids to choose from, as a set
    """

    resource: str
    offered: tuple[DeviceId, ...]
    must_include: Ids
    size: int
    available: Ids = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "available", frozenset(self.offered))

    def can_lead_to(self, call: AllocateRequest) -> bool:
        """Whether this call can be the Allocate that follows the question."""
        return (
            self.resource == call.resource
            and self.size == call.size
            and self.must_include <= call.ids <= self.available
        )


Call = PreferredRequest | AllocateRequest


def short_name(resource: str) -> str:
    """Return a resource's name as metrics and logs state it: ``i915`` for ``gpu.intel.com/i915``."""
    return resource.rpartition("/")[2]
