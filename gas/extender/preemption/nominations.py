"""Room for nominated pods: those for which kube-scheduler has evicted others. No I/O.

kube-scheduler writes ``status.nominatedNodeName`` on such a pod. Until the pod is bound, deleted or nominated for
another node, no pod of lower or equal priority gets the cards that it is nominated for.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

from cachetools import LRUCache

from gas.extender.decider import Decider
from gas.extender.hooks import Observer
from gas.extender.host_resources import pod_requests
from gas.extender.preemption.disruption import AssignedPod
from gas.ledger.ledger import NodeSums
from gas.objects.handler import Mirror
from gas.objects.stored import HostPod, Pod
from gas.placement.card_rules import closed_cards
from gas.placement.choice import Choice, Footprint, footprint
from gas.placement.inventory import Inventory, Usage, free_amount
from gas.placement.need import PodNeed
from gas.placement.place import place
from gas.values.amounts import SortedAmounts
from gas.vocabularies.protocol import BadNeed

MOST_REMEMBERED = 1024  # pods whose cards on the nodes of the last preempt response are remembered


UNLIKE_ANY = "\0"  # an exclusion that no pod can have, since annotations contain no such character


class NominatedPod(NamedTuple):
    uid: str
    pod: str  # ``namespace/name``, for messages
    node: str
    priority: int
    need: PodNeed | None  # None if it cannot be read
    requests: SortedAmounts  # of the node, apart from its cards


class NominatedRoom(NamedTuple):
    """The cards that are nominated for a pod; no cards if it needs none or has no room even then."""

    nominated: NominatedPod
    footprint: Footprint


class Nominations(Mirror[HostPod, NominatedPod], Observer):
    """The nominated pods, and the cards that are nominated for each. Fed by a watch.

    The cards are those that the preempt response was based on, as long as the pod can have them after all pods of lower
    priority have left. If it cannot, after a restart, or if another program nominated the pod, they are those that the
    pod would get on its node without the pods of lower priority that are leaving.

    A node on which a nomination ends is reported as one on which cards are free.
    """

    def __init__(self, decider: Decider) -> None:
        super().__init__()
        self._decider = decider
        self._on_given_up = decider.observers.cards_freed
        self._on_node: dict[str, set[str]] = {}
        self._rooms: dict[str, tuple[frozenset[str], list[NominatedRoom]]] = {}
        self._chosen: LRUCache[str, Mapping[str, Footprint]] = LRUCache(MOST_REMEMBERED)

    def changed(self, pod: HostPod) -> None:
        self.node_changed(pod.node_name)  # it may be leaving now
        super().changed(pod)

    def deleted(self, pod: HostPod) -> None:
        self.node_changed(pod.node_name)
        super().deleted(pod)

    def node_changed(self, node: str) -> None:
        """Forget which cards are nominated on a node: the node, its pods or its bookings have changed."""
        self._rooms.pop(node, None)

    def needs(self, pod: HostPod) -> bool:
        """Return whether a pod has a node, or is nominated for one, so that its end must not be missed."""
        return bool(pod.node_name or pod.nominated_node) or pod.uid in self.records

    def chosen(self, uid: str, footprints: Mapping[str, Footprint]) -> None:
        """Remember the cards that a pod will get, by the node that kube-scheduler may nominate it for."""
        for node in footprints:
            self.node_changed(node)
        self._chosen[uid] = footprints

    def nominated_for_others(self, pod: Pod) -> dict[str, tuple[Footprint, ...]]:
        """Return, by node, the cards that are nominated for other pods of this pod's priority or a higher one."""
        return {
            node: tuple(room.footprint for room in found)
            for node in self._on_node
            if (found := [room for room in self.rooms_of_others(node, pod) if room.footprint.amounts])
        }

    def rooms_of_others(self, node: str, pod: Pod) -> list[NominatedRoom]:
        """Return the room on a node that is nominated for other pods of this pod's priority or a higher one."""
        return [
            room for room in self.on(node) if room.nominated.priority >= pod.priority and room.nominated.uid != pod.uid
        ]

    def on(self, node: str) -> list[NominatedRoom]:
        """Return the pods that are nominated for a node and not booked anywhere yet, the most important first."""
        if node not in self._on_node:
            return []
        waiting = frozenset(uid for uid in self._on_node[node] if self._decider.ledger.booking(uid) is None)
        if (known := self._rooms.get(node)) is None or known[0] != waiting:
            known = self._rooms[node] = waiting, self._find(node, waiting)
        return known[1]

    def __iter__(self) -> Iterator[NominatedRoom]:
        return (room for node in self._on_node for room in self.on(node))

    def record(self, pod: HostPod) -> NominatedPod | None:
        node = pod.nominated_node
        if not node or pod.node_name or pod.is_over or pod.metadata.deletion_timestamp is not None:
            return None
        try:
            need = self._decider.need(pod)
        except BadNeed:
            need = None
        return NominatedPod(pod.uid, pod.key, node, pod.priority, need, pod_requests(pod))

    def replaced(self, uid: str, old: NominatedPod | None, new: NominatedPod | None) -> None:
        if old is not None:
            uids = self._on_node[old.node]
            uids.discard(uid)
            if not uids:
                del self._on_node[old.node]
        if new is not None:
            self._on_node.setdefault(new.node, set()).add(uid)
            self.node_changed(new.node)
        if old is not None and (new is None or old.node != new.node):
            self.node_changed(old.node)
            self._on_given_up(old.node)

    def _find(self, node: str, waiting: Collection[str]) -> list[NominatedRoom]:
        """Return the cards of these nominated pods of a node, no card promised to two of them beyond its capacity."""
        facts = self._decider.nodes.facts(node)
        nominated = (self.records[uid] for uid in waiting)
        found: list[NominatedRoom] = []
        for each in sorted(nominated, key=lambda each: (-each.priority, each.uid)):
            cards = self._cards_of(each, facts.inventory, found) if facts is not None else Footprint()
            found.append(NominatedRoom(each, cards))
        return found

    def _cards_of(self, nominated: NominatedPod, inventory: Inventory, before: list[NominatedRoom]) -> Footprint:
        if nominated.need is None or not nominated.need.wants_cards:
            return Footprint()
        more_important = [each.footprint for each in before]
        sums, without_lower = (self._decider.ledger.sums(nominated.node, more_important) for _ in range(2))
        for uid, booking in self._decider.ledger.on_node(nominated.node).items():
            pod: AssignedPod | None = self._decider.hosts.pods.details(uid, nominated.node)
            if pod is not None and pod.priority < nominated.priority:
                without_lower.take(uid, booking.footprint)
                if pod.leaving:
                    sums.take(uid, booking.footprint)
        chosen = self._chosen.get(nominated.uid, {}).get(nominated.node)
        if chosen is not None and _has_room(without_lower, chosen, inventory):
            # pods that stay may be the company that it looks for, or victims whose deletion is not seen yet
            closed = closed_cards(nominated.need, inventory, without_lower.usage())
            if closed.isdisjoint(chosen.amounts) or closed_cards(nominated.need, inventory, sums.usage()).isdisjoint(
                chosen.amounts
            ):
                return _closed_if_idle(chosen, sums.usage())
        result = place(nominated.need, inventory, sums.usage(), step_limit=self._decider.options.step_limit)
        if not isinstance(result, Choice):
            return Footprint()
        return _closed_if_idle(footprint(nominated.need, result, inventory.capacity), sums.usage())


def _has_room(sums: NodeSums, wanted: Footprint, inventory: Inventory) -> bool:
    """Return whether cards have room for a footprint in addition to what is in the sums."""
    usage = sums.usage()
    return all(
        amount <= free_amount(inventory, usage, card, name)
        for card, amounts in wanted.amounts.items()
        for name, amount in amounts
    ) and all(
        indexes.isdisjoint(inventory.closed_tiles.get(card, ())) and indexes.isdisjoint(usage.tiles.get(card, ()))
        for card, indexes in wanted.tiles.items()
    )


def _closed_if_idle(cards: Footprint, usage: Usage) -> Footprint:
    """Close cards that must be idle until the pod is bound to other pods: for a new name, or the first of its affinity.

    Other pods may join such a pod, but if one of them came before it, the pod could not have the card any more.
    """
    affinity = cards.company.affinity
    is_open = all(
        (not affinity or any(other.affinity == affinity for other in usage.company_on(card)))
        and (not cards.named or cards.named in usage.names.get(card, ()))
        for card in cards.amounts
    )
    return cards if is_open else replace(cards, company=replace(cards.company, exclusion=UNLIKE_ANY))
