"""What a call of kubelet says about whose call it can be. Kubelet never names the pod.

What is known of kubelet 1.34: containers are served in the order in which they start, pods one after the other.
It keeps a pool of the ids that the pod's ordinary init containers had. A container that wants no more than the pool
has gets some of it, which ones is up to chance, and the plugin hears only Allocate. Any other container gets the
whole pool (``must_include``), and GetPreferredAllocation asks for the rest among all free ids. An id that an
app container or a sidecar holds is not free, so when it is offered again its pod was refused or is gone. With
topology hints kubelet may choose in advance: then ``must_include`` holds more than the pool, what is offered is only
one NUMA node's, or the question is left out; all of that is possible, but not usual.
"""

from __future__ import annotations

from dataclasses import dataclass

from gas.cards import Card
from gas.plugin.devices.allocation_policy import PreferredRequest
from gas.plugin.kubelet.listing import Ids
from gas.plugin.matching.progress import Progress
from gas.plugin.matching.waiting_pods import Want


@dataclass(frozen=True, slots=True)
class Allocation:
    """An Allocate call of one container.

    resource  without prefix
    ids       the ids that kubelet has chosen
    """

    resource: str
    ids: Ids

    @property
    def size(self) -> int:
        return len(self.ids)


Call = PreferredRequest | Allocation


def asks_as_much(want: Want, call: Call) -> bool:
    """Whether resource and number are this container's."""
    return want.resource == call.resource and want.count == call.size


def is_possible(progress: Progress, want: Want, call: Call) -> bool:
    """Whether kubelet can have made this call for this container of a pod that it has come so far with."""
    if not asks_as_much(want, call) or progress.held(call.resource) & _free_ids(call):
        return False
    pool = progress.pool(call.resource)
    if pool is None:
        return True
    if isinstance(call, PreferredRequest):
        return pool <= call.must_include
    return call.ids <= pool if len(pool) >= call.size else pool <= call.ids


def is_usual(progress: Progress, call: Call) -> bool:
    """Whether kubelet makes this call without topology hints."""
    pool = progress.pool(call.resource)
    if pool is None:
        return True
    return call.must_include == pool if isinstance(call, PreferredRequest) else len(pool) >= call.size


def can_get(cards: tuple[Card, ...], call: Call) -> bool:
    """Whether the container of this call can get, or gets, exactly these cards."""
    offered = {id_.card for id_ in _free_ids(call)}
    if isinstance(call, PreferredRequest):
        return offered.issuperset(cards) and {id_.card for id_ in call.must_include} <= set(cards)
    return offered == set(cards)


def _free_ids(call: Call) -> Ids:
    return call.available if isinstance(call, PreferredRequest) else call.ids
