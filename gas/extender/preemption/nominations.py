"""Room for pods for which kube-scheduler has evicted others: what they request of nodes, and their cards. No I/O."""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from cachetools import LRUCache

from gas.extender.decider import Decider
from gas.extender.hooks import Nominated
from gas.extender.host_resources import pod_requests
from gas.extender.preemption.disruption import AssignedPod
from gas.extender.promises import closed_if_idle, has_room, placed
from gas.objects.handler import Mirror
from gas.objects.stored import HostPod, Pod
from gas.placement.card_rules import closed_cards
from gas.placement.choice import Footprint
from gas.placement.inventory import Inventory
from gas.values.amounts import SortedAmounts

MOST_REMEMBERED = 1024  # pods whose cards on the nodes of the last preempt response are remembered


class NominatedPod(NamedTuple):
    node: str
    priority: int
    requests: SortedAmounts  # of the node, apart from its cards


class Nominations(Mirror[HostPod, NominatedPod]):
    """The nominated pods, and the cards that preempt responses were based on. Fed by a watch.

    A pod is promised these cards as long as it can have them after all pods of lower priority have left. If it cannot,
    after a restart, or if another program nominated the pod, it is promised those that it would get on its node without
    the pods of lower priority that are leaving.
    """

    def __init__(self, decider: Decider) -> None:
        super().__init__()
        self._decider = decider
        self._on_node: dict[str, set[str]] = {}
        self._chosen: LRUCache[str, Mapping[str, Footprint]] = LRUCache(MOST_REMEMBERED)

    def changed(self, pod: HostPod) -> None:
        self._decider.promises.forget(pod.node_name)  # it may be leaving now
        super().changed(pod)

    def deleted(self, pod: HostPod) -> None:
        self._decider.promises.forget(pod.node_name)
        super().deleted(pod)

    def needs(self, pod: HostPod) -> bool:
        """Return whether a pod has a node, or is nominated for one, so that its end must not be missed."""
        return bool(pod.node_name or pod.nominated_node) or pod.uid in self.records

    def chosen(self, uid: str, footprints: Mapping[str, Footprint]) -> None:
        """Remember the cards that a pod will get, by the node that kube-scheduler may nominate it for."""
        for node in {*self._chosen.get(uid, {}), *footprints}:
            self._decider.promises.forget(node)
        self._chosen[uid] = footprints

    def of_others(self, node: str, pod: Pod) -> Iterator[SortedAmounts]:
        """Return what other pods of this pod's priority or a higher one that are nominated for a node request of it."""
        for uid in self._on_node.get(node, ()):
            nominated = self.records[uid]
            is_booked = self._decider.ledger.booking(uid) is not None
            if nominated.priority >= pod.priority and uid != pod.uid and not is_booked:
                yield nominated.requests

    def record(self, pod: HostPod) -> NominatedPod | None:
        node = pod.nominated_node
        if not node or pod.node_name or pod.is_over or pod.metadata.deletion_timestamp is not None:
            return None
        return NominatedPod(node, pod.priority, pod_requests(pod))

    def replaced(self, uid: str, old: NominatedPod | None, new: NominatedPod | None) -> None:
        if old is not None:
            uids = self._on_node[old.node]
            uids.discard(uid)
            if not uids:
                del self._on_node[old.node]
        if new is not None:
            self._on_node.setdefault(new.node, set()).add(uid)

    def promised(self, nominated: Nominated, inventory: Inventory, before: Sequence[Footprint]) -> Footprint:
        """Return the cards that are promised to a nominated pod after those in ``before``; none without room."""
        ledger, hosts = self._decider.ledger, self._decider.hosts
        sums, without_lower = (ledger.sums(nominated.node, before) for _ in range(2))
        for uid, booking in ledger.on_node(nominated.node).items():
            pod: AssignedPod | None = hosts.pods.details(uid, nominated.node)
            if pod is not None and pod.priority < nominated.priority:
                without_lower.take(uid, booking.footprint)
                if pod.leaving:
                    sums.take(uid, booking.footprint)
        chosen = self._chosen.get(nominated.uid, {}).get(nominated.node)
        if chosen is not None and has_room(without_lower, chosen, inventory):
            # pods that stay may be the company that it looks for, or victims whose deletion is not seen yet
            closed = closed_cards(nominated.need, inventory, without_lower.usage())
            if closed.isdisjoint(chosen.amounts) or closed_cards(nominated.need, inventory, sums.usage()).isdisjoint(
                chosen.amounts
            ):
                return closed_if_idle(chosen, sums.usage())
        return placed(nominated.need, inventory, sums.usage(), step_limit=self._decider.options.step_limit)
