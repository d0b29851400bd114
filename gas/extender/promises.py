"""Choose the cards that are promised to nominated pods. No I/O.

kube-scheduler writes ``status.nominatedNodeName`` on a pod that must wait after its node was chosen: until its volumes
are made, or until the pods that were evicted for it have left. Until the pod is bound, deleted or nominated for another
node, no pod of its priority or a lower one gets the cards that it would get there. Parts may promise cards to a pod as
well, for a while.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from gas.extender.bookings import Bookings, Event, Move, State
from gas.extender.hooks import NO_CARDS, Hooks, Nominated, Observer, PromisedCards
from gas.extender.nodes import Nodes
from gas.ledger.ledger import Ledger, NodeSums
from gas.objects.stored import Pod
from gas.placement.choice import Choice, Footprint, footprint
from gas.placement.inventory import Inventory, Usage, free_amount
from gas.placement.need import PodNeed
from gas.placement.place import place
from gas.vocabularies.protocol import BadNeed

WITHDRAWN = 60.0  # seconds for which a withdrawn nomination stands; kube-scheduler tries the pod again within ten

UNLIKE_ANY = "\0"  # an exclusion that no pod can have, since annotations contain no such character


class Promised(NamedTuple):
    """The cards that are promised to a pod; no cards if it has no room now."""

    nominated: Nominated
    footprint: Footprint


class Promises(Observer):
    """The cards that are promised to pods. Those of nominated pods are computed when they are asked for.

    waiting   the pods without a node, by UID
    need      returns a pod's need. Raises BadNeed
    hooks     returns those of the parts
    on_freed  is called with a node on which a part's promise has ended
    clock     returns seconds
    """

    def __init__(
        self,
        bookings: Bookings,
        ledger: Ledger,
        nodes: Nodes,
        waiting: Mapping[str, Pod],
        *,
        need: Callable[[Pod], PodNeed],
        hooks: Callable[[], Hooks],
        on_freed: Callable[[str], None],
        step_limit: int,
        clock: Callable[[], float],
    ) -> None:
        self._bookings = bookings
        self._ledger = ledger
        self._nodes = nodes
        self._waiting = waiting
        self._need = need
        self._hooks = hooks
        self._on_freed = on_freed
        self._step_limit = step_limit
        self._clock = clock
        self._by_parts: dict[str, tuple[Promised, float]] = {}  # by UID, with the time when it ends
        self._withdrawn: dict[str, float] = {}  # UIDs of pods whose nomination stands for a while, until when
        self._known: dict[str, tuple[list[Pod], list[Promised]]] = {}

    def follow(self, pod: Pod) -> None:
        """Note which node a waiting pod is nominated for.

        A withdrawn nomination stands until the pod is asked about again, at most for `WITHDRAWN`: kube-scheduler also
        withdraws it when the bind fails, and the pod's volume may tie it to its node by then.
        """
        is_leaving = pod.metadata.deletion_timestamp is not None
        if pod.nominated_node or is_leaving:
            self._withdrawn.pop(pod.uid, None)
            self._bookings.nominate(pod.uid, pod.key, "" if is_leaving else pod.nominated_node)
        elif self._bookings.is_nominated(pod.uid):
            self._withdrawn.setdefault(pod.uid, self._clock() + WITHDRAWN)

    def tie(self, pod: Pod, node: str) -> None:
        """Note a node to which a waiting pod without a nomination is tied, as if its nomination had been withdrawn."""
        if pod.uid in self._waiting and not self._bookings.is_nominated(pod.uid):
            self._bookings.nominate(pod.uid, pod.key, node)
            self._withdrawn[pod.uid] = self._clock() + WITHDRAWN

    def asked(self, pod: Pod, need: PodNeed, names: Sequence[str]) -> None:
        self._end_withdrawn(pod.uid)

    def _end_withdrawn(self, uid: str) -> None:
        if self._withdrawn.pop(uid, None) is not None:
            self._bookings.nominate(uid, self._waiting[uid].key if uid in self._waiting else "", "")

    def forget(self, node: str) -> None:
        """Forget which cards are promised on a node: the node, its pods, bookings or nominations have changed."""
        self._known.pop(node, None)

    def put(self, promised: Promised, seconds: float) -> None:
        """Promise cards to a pod until it is booked, nominated or gone, but no longer than for some seconds."""
        self._by_parts[promised.nominated.uid] = promised, self._clock() + seconds
        self.forget(promised.nominated.node)

    def prolong(self, uids: Iterable[str], seconds: float) -> None:
        """Let what parts have promised to pods stand for some seconds from now."""
        until = self._clock() + seconds
        self._by_parts.update({uid: (self._by_parts[uid][0], until) for uid in uids if uid in self._by_parts})

    def drop(self, uid: str) -> None:
        """End what a part has promised to a pod."""
        if (ended := self._by_parts.pop(uid, None)) is not None:
            self._on_freed(ended[0].nominated.node)

    def drop_late(self) -> None:
        """End the promises of parts, and the withdrawn nominations, whose time is over."""
        now = self._clock()
        for uid in [uid for uid, (_, until) in self._by_parts.items() if until <= now]:
            self.drop(uid)
        for uid in [uid for uid, until in self._withdrawn.items() if until <= now]:
            self._end_withdrawn(uid)

    def moved(self, move: Move) -> None:
        if move.uid in self._by_parts and (move.after is not State.UNKNOWN or move.event is Event.GONE):
            self.drop(move.uid)

    def to_others(self, pod: Pod) -> PromisedCards:
        """Return, by node, the cards that are promised to other pods of this pod's priority or a higher one."""
        if self._by_parts or self._withdrawn:
            self.drop_late()
        nodes = self._nodes_with_promises()
        if not nodes:
            return NO_CARDS
        found: dict[str, tuple[Footprint, ...]] = {}
        for node in nodes:
            others = (
                each.footprint
                for each in self.on(node)
                if each.nominated.priority >= pod.priority and each.nominated.uid != pod.uid
            )
            if cards := tuple(each for each in others if each.amounts):
                found[node] = cards
        return found

    def on(self, node: str) -> list[Promised]:
        """Return what is promised to the pods nominated for a node that are not booked."""
        uids = (uid for uid in self._bookings.nominated(node) if self._ledger.booking(uid) is None)
        pods = [pod for uid in uids if (pod := self._waiting.get(uid)) is not None]
        if (known := self._known.get(node)) is None or known[0] != pods:
            known = self._known[node] = pods, self._promise(node, pods)
        return known[1]

    def __iter__(self) -> Iterator[Promised]:
        return (promised for node in self._nodes_with_promises() for promised in self.on(node))

    def _nodes_with_promises(self) -> Collection[str]:
        nominated = self._bookings.nominated_nodes()
        return (
            {*nominated, *(each.nominated.node for each, _ in self._by_parts.values())} if self._by_parts else nominated
        )

    def _promise(self, node: str, pods: list[Pod]) -> list[Promised]:
        """Promise cards to pods in the order of their importance.

        The first that gets none is also tried before all others, in case they can have other cards.
        """
        ordered = sorted(pods, key=lambda pod: -pod.priority)
        found = self._in_order(node, ordered)
        first = next((each.nominated.uid for each in found if not each.footprint.amounts), None)
        if first is None:
            return found

        def who_gets_cards(promised: list[Promised]) -> list[bool]:
            cards = {each.nominated.uid: bool(each.footprint.amounts) for each in promised}
            return [cards.get(pod.uid, False) for pod in ordered]

        again = self._in_order(node, sorted(ordered, key=lambda pod: pod.uid != first))
        return max(found, again, key=who_gets_cards)

    def _in_order(self, node: str, pods: list[Pod]) -> list[Promised]:
        """Promise cards to one pod after the other, no card beyond its capacity."""
        facts = self._nodes.facts(node)
        found = [each for each, _ in self._by_parts.values() if each.nominated.node == node]
        if facts is None:
            return found
        for pod in pods:
            try:
                need = self._need(pod)
            except BadNeed:
                continue
            nominated = Nominated(pod.uid, pod.key, node, pod.priority, need)
            before = [each.footprint for each in found]
            found.append(Promised(nominated, self._cards(nominated, facts.inventory, before)))
        return found

    def _cards(self, nominated: Nominated, inventory: Inventory, before: list[Footprint]) -> Footprint:
        if not nominated.need.wants_cards:
            return Footprint()
        for promise in self._hooks().promised:
            if (cards := promise(nominated, inventory, before)) is not None:
                return cards
        usage = self._ledger.sums(nominated.node, before).usage()
        return placed(nominated.need, inventory, usage, step_limit=self._step_limit)


def placed(need: PodNeed, inventory: Inventory, usage: Usage, *, step_limit: int) -> Footprint:
    """Return the cards that a pod would get, closed to others as long as that matters; no cards if it has no room."""
    result = place(need, inventory, usage, step_limit=step_limit)
    if not isinstance(result, Choice):
        return Footprint()
    return closed_if_idle(footprint(need, result, inventory.capacity), usage)


def closed_if_idle(cards: Footprint, usage: Usage) -> Footprint:
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


def has_room(sums: NodeSums, wanted: Footprint, inventory: Inventory) -> bool:
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
