"""Plan the fewest moves of running pods after which a pod fits. Only a plan: nothing is evicted.

The plan is found backwards, as a person would: on some node a few pods are in the way; each needs another place, and if
there is none, other pods must make room there first. More moves are allowed only when no plan has fewer. Placement
itself decides what fits at every step, and which cards a pod gets then.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import inf
from typing import NamedTuple

from msgspec.structs import replace

from gas.extender.hooks import NO_CARDS, PromisedCards
from gas.extender.verdicts import FITS_PREFERRED, at_once
from gas.inspection.cluster import Cluster, natural, not_offered, shortage
from gas.inspection.objects import InspectedPod, node_rules
from gas.inspection.report import Report, Row, columns
from gas.ledger.eviction_cost import Evictable
from gas.ledger.ledger import NodeSums
from gas.ledger.victims import CandidateNode, smallest_victims
from gas.placement.choice import Choice, Footprint, footprint
from gas.placement.inventory import UNUSED
from gas.placement.need import PodNeed
from gas.placement.place import place
from gas.values.amounts import SortedAmounts
from gas.vocabularies.protocol import BadNeed, NodeFacts

MOST_MOVES = 8  # most moves of a plan: clusters change while more pods start again
MOST_TARGETS = 16  # most nodes that are tried for one pod that has to move
VICTIM_STEPS = 300  # most placements that are tried on one node to find the fewest pods that must leave it
UNMOVABLE_OWNERS = frozenset({"DaemonSet", "Node"})  # kinds of controllers whose pods start again on the same node


@dataclass(frozen=True, slots=True)
class Move:
    """One pod that is evicted from its cards and gets others. ``is_recreated``: a controller creates it again."""

    uid: str
    pod: str
    node: str
    cards: tuple[str, ...]
    target: str
    target_cards: tuple[str, ...]
    is_recreated: bool = True


@dataclass(frozen=True, slots=True)
class MovePlan:
    """The moves in their order, and the place that the pod has after them."""

    moves: tuple[Move, ...] = ()
    node: str = ""  # empty if no plan was found
    cards: tuple[str, ...] = ()
    is_complete: bool = True  # everything was tried that could have led to fewer moves


class Late(Exception):  # not an error: the time for the search is over
    pass


@dataclass(frozen=True, slots=True, eq=False)
class _Asking:
    uid: str
    need: PodNeed
    requests: SortedAmounts  # of its node, apart from cards
    names: tuple[str, ...]  # of the nodes that its rules allow


class _Spot(NamedTuple):
    node: str
    choice: Choice


@dataclass(slots=True, eq=False)
class _NodeNow:
    """A node during the search: its bookings by pod, their sums, and what else is free."""

    pods: dict[str, Footprint]
    sums: NodeSums
    free: dict[str, int]

    def put(self, uid: str, what: Footprint, requests: SortedAmounts) -> None:
        self.pods[uid] = what
        self.sums.put(uid, what)
        self._add(requests, -1)

    def take(self, uid: str, requests: SortedAmounts) -> Footprint:
        what = self.pods.pop(uid)
        self.sums.take(uid, what)
        self._add(requests, 1)
        return what

    def _add(self, requests: SortedAmounts, sign: int) -> None:
        for name, amount in requests:
            if name in self.free:
                self.free[name] += sign * amount


def plan_moves(
    cluster: Cluster, pod: InspectedPod, is_late: Callable[[], bool] = lambda: False, *, most_moves: int = MOST_MOVES
) -> MovePlan:
    """Return the plan with the fewest moves after which a waiting pod fits, found before ``is_late`` returns True."""
    return _MoveSearch(cluster, is_late).plan(pod, most_moves)


class _MoveSearch:
    """Search one move deeper each time, undoing every move before another is tried."""

    def __init__(self, cluster: Cluster, is_late: Callable[[], bool]) -> None:
        self._cluster = cluster
        self._decider = cluster.decider
        self._options = cluster.settings.options
        self._is_late = is_late
        self._is_complete = True
        self._promised: PromisedCards = NO_CARDS  # to others than the pod that is to get room
        self._nodes: dict[str, _NodeNow] = {}
        self._moves: list[Move] = []
        self._busy: set[str] = set()
        self._asking: dict[str, _Asking | None] = {}
        self._names: dict[bytes, tuple[str, ...]] = {}
        self._place_of: dict[str, str] = {}
        self._passing_at_start: dict[tuple[object, ...], dict[str, bool]] = {}
        self._fits_when_empty: dict[tuple[PodNeed, int], bool] = {}
        self._known_fewest: dict[tuple[object, ...], float] = {}

    def plan(self, pod: InspectedPod, most_moves: int) -> MovePlan:
        who = self._ask(pod)
        if who is None:
            return MovePlan()
        self._promised = self._decider.promises.to_others(pod)
        try:
            for spot in self._spots(who):
                return self._result(spot)
            least = {name: self._fewest(who, name) for name in who.names}
            if all(count == inf for count in least.values()):
                return MovePlan(is_complete=self._is_complete)
            for limit in range(1, most_moves + 1):
                for name in sorted(who.names, key=lambda each: least[each]):
                    if least[name] <= limit:
                        for choice in self._cleared(who, name, limit):
                            return self._result(_Spot(name, choice))
        except Late:
            self._is_complete = False
        return MovePlan(is_complete=self._is_complete)

    def _result(self, spot: _Spot) -> MovePlan:
        return MovePlan(tuple(self._moves), spot.node, cards_of(spot.choice), self._is_complete)

    # Making room

    def _cleared(self, who: _Asking, name: str, limit: int) -> Iterator[Choice]:
        """Yield what the pod would get on a node, for each way to make room there with at most ``limit`` moves in all.

        The moves are made while the caller looks at a way, and undone after it.
        """
        choice = self._choice(who, name)
        if choice is not None:
            if name in self._passing(who):
                yield choice
            return
        left = limit - len(self._moves)
        fewest = self._fewest(who, name)
        if fewest > left:
            return
        ways = [(self._fewest(who, name, without=uid), uid) for uid in self._movable(who, name)]
        for after, uid in sorted(ways, key=lambda each: each[0]):
            if after <= left - 1 and (after < fewest or left > fewest):
                for _ in self._moved(uid, limit - int(after)):
                    yield from self._cleared(who, name, limit)

    def _moved(self, uid: str, limit: int) -> Iterator[None]:
        """Yield for each way to move a running pod, with at most ``limit`` moves in the end."""
        who = self._running(uid)
        if who is None:
            return
        self._busy.add(uid)
        for spot in self._ways(who, limit - 1):
            source = self._node_of(uid)
            held = self._now(source).pods[uid]
            facts = self._decider.nodes.facts(spot.node)
            new = footprint(who.need, spot.choice, facts.inventory.capacity if facts is not None else {})
            if source == spot.node and held == new:
                continue
            self._busy.discard(uid)
            self._now(source).take(uid, who.requests)
            self._now(spot.node).put(uid, new, who.requests)
            self._place_of[uid] = spot.node
            pod, cards = self._cluster.pods.records[uid], tuple(map(str, held.amounts))
            is_recreated = pod.controller.kind != ""
            new_cards = tuple(map(str, new.amounts))
            self._moves.append(Move(uid, pod.key, source, cards, spot.node, new_cards, is_recreated=is_recreated))
            yield
            self._moves.pop()
            self._now(spot.node).take(uid, who.requests)
            self._now(source).put(uid, held, who.requests)
            self._place_of[uid] = source
            self._busy.add(uid)
        self._busy.discard(uid)

    def _ways(self, who: _Asking, limit: int) -> Iterator[_Spot]:
        """Yield the places of a pod: those that are free, then those that other moves make free."""
        found = self._spots(who)
        if len(found) > MOST_TARGETS:
            self._is_complete = False
        yield from found[:MOST_TARGETS]
        if len(self._moves) < limit:
            free = {spot.node for spot in found}
            for name in who.names:
                if name not in free:
                    for choice in self._cleared(who, name, limit):
                        yield _Spot(name, choice)

    # What fits

    def _spots(self, who: _Asking) -> list[_Spot]:
        """Return the free places for a pod: as many as are tried, and one more."""
        spots: list[_Spot] = []
        for name in self._passing(who):
            if (choice := self._choice(who, name)) is not None:
                spots.append(_Spot(name, choice))
                if len(spots) > MOST_TARGETS:
                    break
        return spots

    def _passing(self, who: _Asking) -> list[str]:
        """Return the nodes that the extender's filter would let a pod go to."""
        key = who.need, who.requests, who.names
        if (found := self._passing_at_start.get(key)) is None:
            verdicts = at_once(self._decider.verdicts.of(who.need, who.names, self._promised))
            found = {
                name: verdict is FITS_PREFERRED
                for name, verdict in zip(who.names, verdicts, strict=True)
                if verdict.refusal is None and not self._cluster.shortage(who.requests, name)
            }
            self._passing_at_start[key] = found
        changed = {name for move in self._moves for name in (move.node, move.target)}
        changed.update(name for name in (self._node_of(who.uid),) if name)
        if changed:
            found = dict(found)
            for name in changed.intersection(who.names):
                found.pop(name, None)
                if (choice := self._choice(who, name)) is not None:
                    found[name] = choice.preferred
        preferred = [name for name, is_preferred in found.items() if is_preferred]
        return preferred or list(found)

    def _choice(self, who: _Asking, name: str) -> Choice | None:
        """Return the cards that a pod would get on a node without its own booking there; None if it does not fit."""
        self._check_time()
        facts = self._decider.nodes.facts(name)
        if facts is None:
            return None
        now = self._now(name)
        own = now.take(who.uid, who.requests) if who.uid in now.pods else None
        found = None
        if not shortage(who.requests, now.free):
            found = place(who.need, facts.inventory, now.sums.usage(), step_limit=self._options.step_limit)
        if own is not None:
            now.put(who.uid, own, who.requests)
        return found if isinstance(found, Choice) else None

    def _fewest(self, who: _Asking, name: str, without: str = "") -> float:
        """Return the least number of pods that must leave a node so that another fits, or infinity if none suffices."""
        facts = self._decider.nodes.facts(name)
        if facts is None or not self._can_hold(who, facts):
            return inf
        now = self._now(name)
        key = who.uid, name, without, frozenset(now.pods.items()), frozenset(self._busy.intersection(now.pods))
        if (known := self._known_fewest.get(key)) is not None:
            return known
        self._check_time()
        if not_offered(who.requests, now.free):
            return inf
        away = [(uid, requests) for uid in {who.uid, without} & now.pods.keys() for requests in [self._requests(uid)]]
        taken = [(uid, now.take(uid, requests), requests) for uid, requests in away]
        victims = smallest_victims(
            who.need,
            who.requests,
            CandidateNode(inventory=facts.inventory, sums=now.sums, free=now.free),
            [
                Evictable(uid=uid, priority=0, footprint=now.pods[uid], requests=self._requests(uid))
                for uid in self._movable(who, name)
            ],
            step_limit=self._options.step_limit,
            victim_steps=VICTIM_STEPS,
        )
        for uid, held, requests in taken:
            now.put(uid, held, requests)
        fewest = inf if victims is None else len(victims.pods)
        self._known_fewest[key] = fewest
        return fewest

    def _can_hold(self, who: _Asking, facts: NodeFacts) -> bool:
        """Return whether a pod fits on a node without bookings. Nodes that say the same share the result."""
        key = who.need, id(facts)
        if (known := self._fits_when_empty.get(key)) is None:
            found = place(who.need, facts.inventory, UNUSED, step_limit=self._options.step_limit)
            known = self._fits_when_empty[key] = isinstance(found, Choice)
        return known

    # Pods and nodes

    def _movable(self, who: _Asking, name: str) -> list[str]:
        """Return the pods that may leave a node for another, the less important first."""
        pods = self._now(name).pods
        free = [uid for uid in pods if uid != who.uid and uid not in self._busy and self._running(uid) is not None]
        return sorted(free, key=self._importance)

    def _importance(self, uid: str) -> tuple[int, object]:
        pod = self._cluster.pods.records[uid]
        return pod.priority, natural(pod.key)

    def _running(self, uid: str) -> _Asking | None:
        """Return a running pod as one that looks for a place; None if it may not be moved."""
        if uid not in self._asking:
            pod = self._cluster.pods.records.get(uid)
            if pod is None or pod.is_over or pod.metadata.deletion_timestamp:
                self._asking[uid] = None
            else:
                self._asking[uid] = None if pod.controller.kind in UNMOVABLE_OWNERS else self._ask(pod)
        return self._asking[uid]

    def _ask(self, pod: InspectedPod) -> _Asking | None:
        unbound = replace(pod, spec=replace(pod.spec, node_name=None))
        try:
            need = self._decider.need(unbound)
        except BadNeed:
            return None
        key = node_rules(unbound)
        if (names := self._names.get(key)) is None:
            names = tuple(name for name, rule in self._cluster.rules(unbound).items() if not rule)
            self._names[key] = names
        return _Asking(pod.uid, need, self._cluster.other_requests(unbound), names)

    def _requests(self, uid: str) -> SortedAmounts:
        who = self._running(uid)
        return who.requests if who is not None else ()

    def _node_of(self, uid: str) -> str:
        if uid not in self._place_of:
            booking = self._decider.ledger.booking(uid)
            self._place_of[uid] = booking.node if booking is not None else ""
        return self._place_of[uid]

    def _now(self, name: str) -> _NodeNow:
        if (now := self._nodes.get(name)) is None:
            pods = {uid: booking.footprint for uid, booking in self._decider.ledger.on_node(name).items()}
            sums = self._decider.ledger.sums(name, self._promised.get(name, ()))
            now = _NodeNow(pods, sums, self._cluster.free_other_resources(name))
            self._nodes[name] = now
        return now

    def _check_time(self) -> None:
        if self._is_late():
            raise Late


def cards_of(choice: Choice) -> tuple[str, ...]:
    return tuple(map(str, sorted({card for container in choice.containers for card in container.cards})))


def plan_notes(plan: MovePlan) -> tuple[str, ...]:
    """Return sentences about what a plan does not say in its rows."""
    notes: list[str] = []
    if not plan.node:
        found = f"no plan of up to {MOST_MOVES} moves was found"
        notes.append(found if plan.is_complete else f"{found}; not everything was tried")
    elif plan.moves:
        notes.append("this is only a plan: nothing was evicted; disruption budgets were not looked at")
        if not plan.is_complete and len(plan.moves) > 1:
            notes.append("there may be a plan with fewer moves: not everything was tried")
    notes += [
        f"pod {move.pod} has no controller that creates it again after its eviction"
        for move in plan.moves
        if not move.is_recreated
    ]
    return tuple(notes)


def plan_report(plan: MovePlan, pod: str) -> Report:
    """Return a row for each move, and a last one for the pod that then fits; no rows without a plan."""
    rows: list[Row] = [
        {
            "step": number,
            "action": "move",
            "pod": move.pod,
            "from": move.node,
            "cards": move.cards,
            "to": move.target,
            "new-cards": move.target_cards,
        }
        for number, move in enumerate(plan.moves, start=1)
    ]
    if plan.node:
        last: Row = {"step": len(rows) + 1, "action": "place", "pod": pod, "to": plan.node, "new-cards": plan.cards}
        rows.append(last)
    return Report((*columns("step", number=True), *columns("action", "pod", "from", "cards", "to", "new-cards")), rows)
