"""Track how far kubelet has come with one pod, and which of its calls can be for the pod's next container.

Kubelet never names the pod. Known of kubelet 1.35 to 1.37:

- It serves containers in the order in which they start, and pods one after the other.
- It keeps a pool of the ids that the pod's ordinary init containers had. A container that wants no more than the pool
  has gets a random part of it, and the plugin sees only Allocate. Any other container gets the whole pool
  (``must_include``), and GetPreferredAllocation asks for the rest among all free ids.
- An id that an app container or a sidecar holds is not free. When it is offered again, its pod was refused or is gone.
- With topology hints kubelet may choose in advance: then ``must_include`` holds more than the pool, only one NUMA
  node's ids are offered, or the question is left out. All of that is possible, but not usual.
"""

from collections import Counter
from enum import StrEnum

from gas.placement.need import Role
from gas.plugin.devices.device_ids import NO_IDS, Call, Ids, PreferredRequest
from gas.plugin.kubelet.pod_resources import ContainerIds
from gas.plugin.matching.gpu_pods import Demand, GpuPod
from gas.values.cards import Card


class Confidence(StrEnum):
    """How certain it is that a call is for the matched container."""

    KNOWN = "known"  # no other container can be meant
    ALONE = "alone"  # no other known container can be meant, but the watch may lag behind kubelet
    GUESSED = "guessed"  # other containers can be meant as well; a wrong guess shows in the receipts
    NONE = "none"  # no known container can be meant


class Progress:
    """One pod's demands and the ids that served them.

    pod         as the watch last showed it; it may be deleted while kubelet goes on asking for it
    """

    def __init__(self, pod: GpuPod) -> None:
        self.pod = pod
        self.confidence = Confidence.KNOWN  # that the recorded ids are this pod's; KNOWN while there are none
        self.abandoned = False  # kubelet turned to another pod in the middle of this one, so it has refused this one
        self.served_at = float("-inf")  # when a demand was last served
        self._served: dict[Demand, Ids | None] = {}
        # the pod and its entry in kubelet's list that agree with all of this, as those of most pods do for hours
        self._agreed: tuple[GpuPod, ContainerIds] | None = None

    @property
    def is_untouched(self) -> bool:
        return not self._served

    @property
    def is_complete(self) -> bool:
        return len(self._served) == len(self.pod.demands)

    def unserved(self) -> tuple[Demand, ...]:
        """Return the unserved demands, in the order of kubelet's calls."""
        return tuple(demand for demand in self.pod.demands if demand not in self._served)

    def next_demands(self) -> tuple[Demand, ...]:
        """Return the unserved demands of the first container that has any; kubelet may serve those in any order."""
        unserved = self.unserved()
        return tuple(demand for demand in unserved if demand.index == unserved[0].index)

    def promised_cards(self) -> Counter[Card]:
        """Count the ids of each card that the unserved demands need. Ids of an init container are used again."""
        staying: Counter[Card] = Counter()
        passing: Counter[Card] = Counter()
        for demand in self.unserved():
            if (decided := self.pod.decided_for(demand.index)) is None:
                continue
            ids = Counter(dict.fromkeys(decided.cards, demand.per_card))
            if demand.role is Role.INIT:
                passing |= ids
            else:
                staying += ids
        return staying | passing

    def ids_to_come(self, resource: str) -> int:
        """Count the ids of a resource that the unserved demands need. Ids of an init container are used again."""
        counts = [(each.role, each.count) for each in self.unserved() if each.resource == resource]
        passing = (count for role, count in counts if role is Role.INIT)
        return max(sum(count for role, count in counts if role is not Role.INIT), *passing, 0)

    def cards_of(self, resource: str) -> set[Card]:
        """Return the cards of the ids that served demands for a resource, as far as they are known."""
        served = ((demand, ids) for demand, ids in self._served.items() if demand.resource == resource)
        return {id_.card for _, ids in served for id_ in ids or ()}

    def init_container_ids(self) -> dict[int, Ids]:
        """Return the known ids of each ordinary init container by its index."""
        return {
            demand.index: ids for demand, ids in self._served.items() if demand.role is Role.INIT and ids is not None
        }

    def has_served(self, resource: str, ids: Ids) -> bool:
        return any(demand.resource == resource and served == ids for demand, served in self._served.items())

    def can_explain(self, call: Call, demand: Demand) -> bool:
        """Return whether kubelet can have made this call for this demand of the pod."""
        if not asks_as_much(demand, call):
            return False
        if held := self._held(call.resource):
            free = call.available if isinstance(call, PreferredRequest) else call.ids  # or reusable for this container
            if held & free:
                return False
        pool = self._pool(call.resource)
        if pool is None:
            return True
        if isinstance(call, PreferredRequest):
            return pool <= call.must_include
        return call.ids <= pool if len(pool) >= call.size else pool <= call.ids

    def is_usual(self, call: Call) -> bool:
        """Return whether kubelet makes this call without topology hints."""
        pool = self._pool(call.resource)
        if pool is None:
            return True
        return call.must_include == pool if isinstance(call, PreferredRequest) else len(pool) >= call.size

    def serve(self, demand: Demand, ids: Ids) -> None:
        """Record that the demand got these ids. Earlier containers then have theirs, even if unknown."""
        for earlier in self.pod.demands:
            if earlier.index < demand.index:
                self._served.setdefault(earlier, None)
        self._served[demand] = ids
        self._agreed = None

    def reconcile(self, containers: ContainerIds, *, is_settled: bool) -> None:
        """Drop everything recorded, as a wrong guess, where it contradicts kubelet's list, and record the list.

        ``is_settled`` states that the recorded ids had the time to appear in kubelet's list.
        """
        compared = self.pod, containers
        if self._agreed == compared:
            return
        staying = [d for d in self.pod.demands if d.role is not Role.INIT and d.container in containers]
        listed = {demand: containers[demand.container].get(demand.resource, NO_IDS) for demand in staying}
        if any(self._contradicts(demand, ids, is_settled=is_settled) for demand, ids in listed.items()):
            self._served.clear()
            self.confidence, self.abandoned = Confidence.KNOWN, False
        for demand, ids in listed.items():
            if ids:
                self.serve(demand, ids)
                self.confidence = Confidence.KNOWN
        self._agreed = compared if all(listed.values()) else None

    def _contradicts(self, demand: Demand, listed: Ids, *, is_settled: bool) -> bool:
        if demand not in self._served:
            return False
        recorded = self._served[demand]
        return (recorded is not None and recorded != listed) if listed else is_settled

    def _pool(self, resource: str) -> Ids | None:
        """Return the ids that the pod's init containers leave to its next containers; None if unknown."""
        pool: Ids = NO_IDS
        for demand in self.pod.demands:
            if demand.resource != resource or demand not in self._served:
                continue
            ids = self._served[demand]
            if ids is None:
                return None
            pool = pool | ids if demand.role is Role.INIT else pool - ids
        return pool

    def _held(self, resource: str) -> Ids:
        """Return the known ids that kubelet cannot offer to another container while the pod lives."""
        return NO_IDS.union(
            *(
                ids
                for demand, ids in self._served.items()
                if ids and demand.resource == resource and demand.role is not Role.INIT
            )
        )


def asks_as_much(demand: Demand, call: Call) -> bool:
    return demand.resource == call.resource and demand.count == call.size


def can_get(cards: tuple[Card, ...], per_card: int, call: Call) -> bool:
    """Return whether the container of this call can get, or gets, exactly these cards with ``per_card`` ids of each."""
    if not all(call.has(card, per_card) for card in cards):
        return False
    chosen = {id_.card for id_ in call.must_include} if isinstance(call, PreferredRequest) else call.counts.keys()
    return chosen <= set(cards)
