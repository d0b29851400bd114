"""Plans of moves by brute force."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from gas.inspection.cluster import Cluster
from gas.inspection.objects import InspectedPod
from gas.ledger.ledger import NodeSums
from gas.placement.choice import Choice, Footprint, footprint
from gas.placement.place import place
from tests.inspection.steps import unbound

Place = tuple[str, Footprint]


class Brute:
    """All sequences of moves, shortest first, until the pod fits. Knows nothing of how plans are found."""

    def __init__(self, cluster: Cluster, pod: InspectedPod) -> None:
        self._cluster = cluster
        options = cluster.settings.options
        self._pods = {each.uid: unbound(each) for each in cluster.gpu_pods if each.node_name}
        self._need = {each.uid: options.vocabularies.need(each, options.need) for each in (*self._pods.values(), pod)}
        self._pod = pod
        self._requests = {each.uid: cluster.other_requests(each) for each in (*self._pods.values(), pod)}
        self._names = {
            each.uid: [name for name, rule in cluster.rules(each).items() if not rule]
            for each in (*self._pods.values(), pod)
        }

    def fewest(self, most: int) -> int | None:
        start: dict[str, Place] = {
            uid: (booking.node, booking.footprint) for uid, booking in self._cluster.decider.ledger.bookings()
        }
        level, seen = [start], {frozenset(start.items())}
        for count in range(most + 1):
            after: list[dict[str, Place]] = []
            for state in level:
                if any(self._fits(state, self._pod.uid, name) for name in self._names[self._pod.uid]):
                    return count
                for moved in self._next(state) if count < most else ():
                    if (key := frozenset(moved.items())) not in seen:
                        seen.add(key)
                        after.append(moved)
            level = after
        return None

    def _next(self, state: Mapping[str, Place]) -> Iterator[dict[str, Place]]:
        for uid in self._pods:
            rest = {each: at for each, at in state.items() if each != uid}
            for name in self._names[uid]:
                if (held := self._fits(rest, uid, name)) is not None:
                    yield {**rest, uid: (name, held)}

    def _fits(self, state: Mapping[str, Place], uid: str, name: str) -> Footprint | None:
        facts = self._cluster.decider.nodes.facts(name)
        assert facts is not None
        sums = NodeSums()
        offered = dict(self._cluster.decider.hosts.nodes.records.get(name) or ())
        for each, (node, held) in state.items():
            if node == name:
                sums.put(each, held)
                for resource, amount in self._requests[each]:
                    if resource in offered:
                        offered[resource] -= amount
        for resource, amount in self._requests[uid]:
            if (resource != "pods" or resource in offered) and offered.get(resource, 0) < amount:
                return None
        choice = place(self._need[uid], facts.inventory, sums.usage())
        return footprint(self._need[uid], choice, facts.inventory.capacity) if isinstance(choice, Choice) else None
