"""Room that is kept for pods for which kube-scheduler has made room: the nominated pods. No I/O.

kube-scheduler writes ``status.nominatedNodeName`` on a pod when it evicts others for it. Until the pod is bound,
deleted or nominated for another node, its cards there are kept from pods of lower or equal priority.
"""

from __future__ import annotations

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
from gas.objects.stored import HostPod, ObjectId, Pod
from gas.placement.card_rules import closed_cards
from gas.placement.choice import Choice, Footprint, footprint
from gas.placement.inventory import Inventory, Usage, free_amount
from gas.placement.need import PodNeed
from gas.placement.place import place
from gas.values.amounts import SortedAmounts
from gas.vocabularies.protocol import BadNeed

MOST_REMEMBERED = 1024
"""Pods whose cards on the nodes of the last preempt response are remembered."""


UNLIKE_ANY = "\0"
"""An exclusion that no pod can have, since annotations contain no such character."""


class Nominated(NamedTuple):
    """A pod that is nominated for a node.

    pod       ``namespace/name``, for messages
    need      None if it cannot be read
    requests  what it requests of the node beside its cards
    """

    uid: str
    pod: str
    node: str
    priority: int
    need: PodNeed | None
    requests: SortedAmounts


class Kept(NamedTuple):
    """The cards that are kept for a nominated pod; no cards if it needs none or has no room even then."""

    nominated: Nominated
    footprint: Footprint


class Nominations(Mirror[HostPod, Nominated], Observer):
    """The nominated pods, and the cards that are kept for each. Fed by a watch.

    The cards are those that the preempt response was based on, as long as the pod can have them after all pods of lower
    priority have left. If it cannot, after a restart, or if another program nominated the pod, they are those that the
    pod would get on its node without the pods of lower priority that are leaving.

    A node on which room is no longer kept is reported as one on which cards are free.
    """

    def __init__(self, decider: Decider) -> None:
        super().__init__()
        self._nodes = decider.nodes
        self._ledger = decider.ledger
        self._pods = decider.hosts.pods
        self._read_need = decider.need
        self._step_limit = decider.options.step_limit
        self._on_given_up = decider.observers.cards_freed
        self._on_node: dict[str, set[str]] = {}
        self._kept: dict[str, tuple[frozenset[str], list[Kept]]] = {}
        self._chosen: LRUCache[str, Mapping[str, Footprint]] = LRUCache(MOST_REMEMBERED)

    def complete(self, listed: list[ObjectId]) -> None:
        super().complete(listed)
        self._kept.clear()

    def changed(self, pod: HostPod) -> None:
        self.node_changed(pod.node_name)  # it may be leaving now
        super().changed(pod)

    def deleted(self, pod: HostPod) -> None:
        self.node_changed(pod.node_name)
        super().deleted(pod)
        self._chosen.pop(pod.uid, None)

    def node_changed(self, node: str) -> None:
        """Forget which cards are kept on a node: the node, its pods or its bookings have changed."""
        self._kept.pop(node, None)

    def needs(self, pod: HostPod) -> bool:
        """Return whether a pod has a node, or is nominated for one, so that its end must not be missed."""
        return bool(pod.node_name or pod.nominated_node) or pod.uid in self.records

    def chosen(self, uid: str, footprints: Mapping[str, Footprint]) -> None:
        """Remember the cards that a pod will get, by the node that kube-scheduler may nominate it for."""
        for node in {*self._chosen.get(uid, ()), *footprints}:
            self.node_changed(node)
        self._chosen[uid] = footprints

    def kept_from(self, pod: Pod) -> dict[str, tuple[Footprint, ...]]:
        """Return the cards that are kept from a pod, by node: those of other pods of its priority or a higher one."""
        return {
            node: tuple(kept.footprint for kept in found)
            for node in self._on_node
            if (found := [kept for kept in self.kept_on(node, pod) if kept.footprint.amounts])
        }

    def kept_on(self, node: str, pod: Pod) -> list[Kept]:
        """Return the nominated pods for which room of a node is kept from a pod."""
        return [
            kept for kept in self.on(node) if kept.nominated.priority >= pod.priority and kept.nominated.uid != pod.uid
        ]

    def on(self, node: str) -> list[Kept]:
        """Return the pods that are nominated for a node and not booked anywhere yet, the most important first."""
        if node not in self._on_node:
            return []
        waiting = frozenset(uid for uid in self._on_node[node] if self._ledger.booking(uid) is None)
        if (known := self._kept.get(node)) is None or known[0] != waiting:
            known = self._kept[node] = waiting, self._find(node, waiting)
        return known[1]

    def __iter__(self) -> Iterator[Kept]:
        return (kept for node in self._on_node for kept in self.on(node))

    def record(self, pod: HostPod) -> Nominated | None:
        node = pod.nominated_node
        if not node or pod.node_name or pod.is_over or pod.metadata.deletion_timestamp is not None:
            return None
        try:
            need = self._read_need(pod)
        except BadNeed:
            need = None
        return Nominated(pod.uid, pod.key, node, pod.priority, need, pod_requests(pod))

    def replaced(self, uid: str, old: Nominated | None, new: Nominated | None) -> None:
        if old is not None:
            uids = self._on_node[old.node]
            uids.discard(uid)
            if not uids:
                del self._on_node[old.node]
        if new is not None:
            self._on_node.setdefault(new.node, set()).add(uid)
            self.node_changed(new.node)
        if old is not None and (new is None or (old.node, old.priority) != (new.node, new.priority)):
            self.node_changed(old.node)
            self._on_given_up(old.node)

    def _find(self, node: str, waiting: Collection[str]) -> list[Kept]:
        """Return the cards of these nominated pods of a node, so that those of none are in the way of another's."""
        facts = self._nodes.facts(node)
        nominated = (self.records[uid] for uid in waiting)
        found: list[Kept] = []
        for each in sorted(nominated, key=lambda each: (-each.priority, each.uid)):
            cards = self._cards_of(each, facts.inventory, found) if facts is not None else Footprint()
            found.append(Kept(each, cards))
        return found

    def _cards_of(self, nominated: Nominated, inventory: Inventory, before: list[Kept]) -> Footprint:
        if nominated.need is None or not nominated.need.wants_cards:
            return Footprint()
        kept = [each.footprint for each in before]
        sums, without_lower = (self._ledger.sums(nominated.node, kept) for _ in range(2))
        for uid, booking in self._ledger.on_node(nominated.node).items():
            pod: AssignedPod | None = self._pods.details(uid)
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
                return _kept_whole_if_idle(chosen, sums.usage())
        result = place(nominated.need, inventory, sums.usage(), step_limit=self._step_limit)
        if not isinstance(result, Choice):
            return Footprint()
        return _kept_whole_if_idle(footprint(nominated.need, result, inventory.capacity), sums.usage())


def _has_room(sums: NodeSums, wanted: Footprint, inventory: Inventory) -> bool:
    """Return whether cards have room for a footprint beside what is in the sums."""
    usage = sums.usage()
    return all(
        amount <= free_amount(inventory, usage, card, name)
        for card, amounts in wanted.amounts.items()
        for name, amount in amounts
    ) and all(
        indexes.isdisjoint(inventory.closed_tiles.get(card, ())) and indexes.isdisjoint(usage.tiles.get(card, ()))
        for card, indexes in wanted.tiles.items()
    )


def _kept_whole_if_idle(cards: Footprint, usage: Usage) -> Footprint:
    """Keep other pods off cards that must be idle until the pod is bound: a new name, or the first of its affinity.

    Other pods may join such a pod, but if one of them came before it, the pod could not have the card any more.
    """
    affinity = cards.company.affinity
    is_open = all(
        (not affinity or any(other.affinity == affinity for other in usage.company_on(card)))
        and (not cards.named or cards.named in usage.names.get(card, ()))
        for card in cards.amounts
    )
    return cards if is_open else replace(cards, company=replace(cards.company, exclusion=UNLIKE_ANY))
