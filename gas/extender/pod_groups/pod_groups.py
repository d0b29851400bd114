"""Give the pods of a PodGroup their cards together or not at all. No I/O.

kube-scheduler goes through a group's pods in one cycle: it asks for one, assumes it on the node that it has chosen,
and asks for the next. If too few find a node, it takes all back; the binds follow only after the cycle. So places for
all of them are planned at the first question, each is answered with its one node, and its cards are promised there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import NamedTuple

from cachetools import LRUCache

from gas.extender.bookings import Event, Move, State
from gas.extender.decider import Decider
from gas.extender.decisions import PodRefusal
from gas.extender.hooks import FilterDecision, Hooks, Nominated, Observer, PromisedCards
from gas.extender.pod_groups.plan import Member, Place, Planner
from gas.extender.promises import Promised, has_room
from gas.extender.verdicts import Turns
from gas.objects.handler import Mirror
from gas.objects.stored import Pod, PodGroup
from gas.placement.choice import Footprint
from gas.placement.need import PodNeed
from gas.placement.refusal import Refusal
from gas.vocabularies.protocol import BadNeed, NodeFacts

PROMISE = 10.0
"""Seconds for which the cards of all members are promised after a filter or a bind of one. After the cycle the binds or
kube-scheduler's nominations follow within milliseconds."""

CYCLE_GAP = 0.5
"""Seconds between two questions about a group after which the second one may be of another cycle. It is certainly of
another one if a member is asked about again, or if all promises are over."""

SAMPLE = 100
"""The number of nodes at which kube-scheduler may stop looking for more, so that it may have left out others."""

MOST_GROUPS = 1024  # whose last cycle is remembered
MOST_MEMBERS = 10_000  # whose nodes are remembered, fewer than `SAMPLE` for each
MOST_OFFERS = 64  # sets of nodes that members share
MOST_ASKED = 100  # nodes that are asked why a member that is left out does not fit

UNCOUNTED = frozenset({State.UNKNOWN, State.PROMISED})  # the states of members that still need a node


def group_of(pod: Pod) -> str:
    """Return the ``namespace/name`` of the PodGroup that a pod belongs to; empty if it belongs to none."""
    group = pod.spec.scheduling_group
    name = group.pod_group_name if group is not None else None
    return f"{pod.metadata.namespace or 'default'}/{name}" if name else ""


@dataclass(frozen=True)
class PlannedElsewhere(Refusal, kind="planned-elsewhere", only_per_card=False):
    def __str__(self) -> str:
        return "the plan for its PodGroup gives the pod another node"


@dataclass(frozen=True)
class GroupDoesNotFit(Refusal, kind="pod-group"):
    """Too few members of the pod's group fit at the same time."""

    fitting: int
    needed: int
    lack: str  # why most nodes refuse one that is left out; empty if that is not known

    def __str__(self) -> str:
        lack = f"; for the next one: {self.lack}" if self.lack else ""
        return f"only {self.fitting} of the {self.needed} pods that its PodGroup needs have room at the same time{lack}"


class MinimumCount(NamedTuple):
    group: str  # ``namespace/name``
    members: int


class MinimumCounts(Mirror[PodGroup, MinimumCount]):
    """The number of members of each PodGroup that must run at the same time. Fed by a watch."""

    def __init__(self) -> None:
        super().__init__()
        self.of_group: dict[str, MinimumCount] = {}

    def record(self, obj: PodGroup) -> MinimumCount | None:
        return None if obj.min_count is None else MinimumCount(obj.key, obj.min_count)

    def replaced(self, _uid: str, old: MinimumCount | None, new: MinimumCount | None) -> None:
        if old is not None and self.of_group.get(old.group) is old:  # after a list it may be that of a newer namesake
            del self.of_group[old.group]
        if new is not None:
            self.of_group[new.group] = new


class Members(Mirror[Pod, str]):
    """The members of each group that have not ended, by UID. Fed by a watch."""

    def __init__(self) -> None:
        super().__init__()
        self.of_group: dict[str, set[str]] = {}
        self.bound: set[str] = set()

    def needs(self, pod: Pod) -> bool:
        return bool(group_of(pod)) or pod.uid in self.records

    def record(self, pod: Pod) -> str | None:
        return None if pod.is_over else group_of(pod) or None

    def changed(self, pod: Pod) -> None:
        super().changed(pod)
        if pod.uid in self.records and pod.node_name:
            self.bound.add(pod.uid)

    def replaced(self, uid: str, old: str | None, new: str | None) -> None:
        if old is not None:
            self.of_group[old].discard(uid)
            if not self.of_group[old]:
                del self.of_group[old]
        if new is not None:
            self.of_group.setdefault(new, set()).add(uid)
        else:
            self.bound.discard(uid)


@dataclass(slots=True)
class Cycle:
    """One cycle of kube-scheduler for a group, as far as it has asked."""

    latest: float  # when it last asked, by the clock
    begun: float = 0.0  # when it asked after the last gap, which may have been the end of another cycle
    places: dict[str, Place] = field(default_factory=dict)  # planned, by UID
    answered: dict[str, float] = field(default_factory=dict)  # when each member got its node, by UID
    refused: dict[str, float] = field(default_factory=dict)  # when each member was refused, by UID
    lack: str = ""  # why a member that is left out does not fit; empty if none is


class PodGroups(Observer):
    """Plan groups, and answer for each member with the node of the plan.

    unexpect  is called with the UID of a member whose bind will not come
    now       returns seconds since the epoch
    """

    def __init__(self, decider: Decider, *, unexpect: Callable[[str], None], now: Callable[[], float]) -> None:
        self.minimums = MinimumCounts()
        self.members = Members()
        self._decider = decider
        self._unexpect = unexpect
        self._now = now
        self._cycles: LRUCache[str, Cycle] = LRUCache(MOST_GROUPS)
        self._asked = ""  # the group that was last asked about; empty for a pod of none
        self._offered: LRUCache[str, frozenset[str]] = LRUCache(MOST_MEMBERS)  # by UID, the nodes of the last question
        self._shared: LRUCache[frozenset[str], frozenset[str]] = LRUCache(MOST_OFFERS)

    @property
    def hooks(self) -> Hooks:
        return Hooks(together=(group_of,), restricting=(self.restrict,), observers=(self,), handlers=(self.members,))

    def asked(self, pod: Pod, need: PodNeed, names: Sequence[str]) -> None:
        """End the cycle of the pod's group if this question is of another one, and that of another group that failed.

        kube-scheduler is done with a group when it asks about a pod that is not of it. If too few members have been
        asked about by then, it has found no node for the others, so it binds none.
        """
        group = group_of(pod)
        if group != self._asked:
            before, counted = self._cycles.get(self._asked), self.minimums.of_group.get(self._asked)
            if before is not None and counted is not None and self._fitting(self._asked, before, {}) < counted.members:
                self._end(before, inf)
            self._asked = group
        if (cycle := self._cycles.get(group)) is None:
            return
        now = self._decider.clock()
        if (gap := now - cycle.latest) > CYCLE_GAP:
            cycle.begun = now
        last = cycle.answered.get(pod.uid, cycle.refused.get(pod.uid))
        if last is not None or gap > PROMISE:
            self._end(cycle, cycle.begun if last is not None and last < cycle.begun else inf)

    def moved(self, move: Move) -> None:
        """Forget a member that is gone, and keep the cards of the others while their binds come."""
        cycle = self._cycles.get(self.members.records.get(move.uid, ""))
        if move.event is Event.GONE:
            self._offered.pop(move.uid, None)
            if cycle is not None:
                cycle.answered.pop(move.uid, None)
                cycle.places.pop(move.uid, None)
                cycle.refused.pop(move.uid, None)
        elif move.event is Event.BIND and cycle is not None:
            self._decider.promises.prolong(cycle.answered, PROMISE)

    def restrict(
        self, pod: Pod, need: PodNeed, decision: FilterDecision, facts: Callable[[str], NodeFacts | None]
    ) -> Turns[FilterDecision]:
        """Let a member pass on its one node, or refuse it because its group does not fit."""
        group = group_of(pod)
        counted = self.minimums.of_group.get(group)
        if counted is None or pod.node_name or not need.wants_cards:
            return decision
        minimum = counted.members
        cycle = self._cycles.setdefault(group, Cycle(self._decider.clock()))
        self._learn(pod, frozenset((*decision.passing, *decision.failed)))
        if not self._is_possible(cycle.places.get(pod.uid), pod, decision):
            cycle.places = yield from self._plan(pod, need, cycle, decision, minimum)
        if self._decider.pods.is_gone(pod.uid):  # nothing would end a promise to it
            cycle.places.pop(pod.uid, None)
            return decision
        fitting = self._fitting(group, cycle, cycle.places)
        cycle.latest = self._decider.clock()
        if fitting < minimum or (place := cycle.places.get(pod.uid)) is None:
            cycle.refused[pod.uid] = cycle.latest
            refusal = GroupDoesNotFit(fitting, max(minimum, fitting + 1), cycle.lack)
            not_refused = self.members.of_group.get(group, set()) - cycle.refused.keys()
            if len(not_refused) < minimum:  # then kube-scheduler stops
                self._end(cycle, inf)
            return self._refused(pod, decision, refusal)
        cycle.answered[pod.uid] = cycle.latest
        nominated = Nominated(pod.uid, pod.key, place.node, pod.priority, need)
        self._decider.promises.put(Promised(nominated, place.cards), PROMISE)
        self._decider.promises.prolong(cycle.answered, PROMISE)
        others = {name: str(PlannedElsewhere()) for name in decision.passing if name != place.node}
        return replace(decision, passing=[place.node], failed={**decision.failed, **others})

    def _learn(self, pod: Pod, offered: frozenset[str]) -> None:
        """Remember the nodes that a pod is offered, if there can be no others."""
        if len(offered) < SAMPLE:
            self._offered[pod.uid] = self._shared.setdefault(offered, offered)
        else:
            self._offered.pop(pod.uid, None)

    def _fitting(self, group: str, cycle: Cycle, places: Mapping[str, Place]) -> int:
        """Return how many members have a node or get one; for those without cards kube-scheduler must find it."""
        waiting = self._decider.pods.waiting
        members = self.members.of_group.get(group, set())
        settled = {uid for uid in members if uid not in waiting or self._is_counted(uid)}
        return len(settled | cycle.answered.keys() | places.keys())

    def _is_possible(self, place: Place | None, pod: Pod, decision: FilterDecision) -> bool:
        """Return whether a member can still have its place."""
        facts = self._decider.nodes.facts(place.node) if place is not None else None
        if place is None or facts is None or place.node not in decision.passing:
            return False
        promised = self._decider.promises.to_others(pod).get(place.node, ())
        return has_room(self._decider.ledger.sums(place.node, promised), place.cards, facts.inventory)

    def _plan(
        self, pod: Pod, need: PodNeed, cycle: Cycle, decision: FilterDecision, minimum: int
    ) -> Turns[dict[str, Place]]:
        """Plan the members that still need a node, apart from those that were answered in this cycle."""
        group = group_of(pod)
        members = [Member(pod.uid, need, frozenset(decision.passing))]
        for uid in sorted(self.members.of_group.get(group, ())):
            waiting = self._decider.pods.waiting.get(uid)
            if uid in cycle.answered or uid == pod.uid or waiting is None or waiting.suspended or self._is_counted(uid):
                continue
            try:
                own = self._decider.need(waiting)
            except BadNeed:
                continue
            if own.wants_cards:
                members.append(Member(uid, own, self._offered.get(uid)))
        names = [*decision.passing, *decision.failed]
        others = frozenset[str]().union(*(each.offered or () for each in members)).difference(names)
        every = [*names, *sorted(others)]
        promised = self._decider.promises.to_others(pod)
        planner = Planner(self._decider.nodes, self._decider.verdicts, promised)
        needed = minimum - self._fitting(group, cycle, {})
        places = yield from planner.plan(members, every, needed)
        if self._fitting(group, cycle, places) < minimum:  # there may be other nodes for those not asked about yet
            every += sorted({name for name, _ in self._decider.nodes}.difference(every))
            places = yield from planner.plan(members, every, needed)
        if self._fitting(group, cycle, places) < minimum:  # say how many fit, even if the largest do not
            places = yield from planner.plan(members, every, 1, steps=2 * len(members))
        left_out = [each.need for each in members if each.uid not in places]
        cycle.lack = self._lack(left_out[0], every, promised, places) if left_out else ""
        return places

    def _lack(self, need: PodNeed, names: Sequence[str], promised: PromisedCards, places: Mapping[str, Place]) -> str:
        """Return the most frequent reason why a pod does not fit next to the places of a plan."""
        taken: dict[str, list[Footprint]] = {}
        for place in places.values():
            taken.setdefault(place.node, []).append(place.cards)
        found = (
            self._decider.verdicts.choose(need, name, (*promised.get(name, ()), *taken.get(name, ())))
            for name in names[:MOST_ASKED]
        )
        reasons = Counter(str(each) for each in found if isinstance(each, Refusal))
        return reasons.most_common(1)[0][0] if reasons else ""

    def _is_counted(self, uid: str) -> bool:
        """Return whether a member has its node already."""
        return uid in self.members.bound or self._decider.bookings.state(uid) not in UNCOUNTED

    def _end(self, cycle: Cycle, until: float) -> None:
        """Forget what was answered before a time, and end what was promised to members that are not being bound."""
        cycle.places = {}
        cycle.refused = {uid: refused for uid, refused in cycle.refused.items() if refused >= until}
        for uid in [uid for uid, answered in cycle.answered.items() if answered < until]:
            del cycle.answered[uid]
            self._decider.promises.drop(uid)
            self._unexpect(uid)

    def _refused(self, pod: Pod, decision: FilterDecision, refusal: GroupDoesNotFit) -> FilterDecision:
        failed = dict.fromkeys([*decision.passing, *decision.failed], str(refusal))
        reasons = {str(refusal): len(failed)}
        remembered = PodRefusal(pod.key, self._now(), refusal.kind, reasons, {}, only_seen_by_cards=True)
        return FilterDecision([], failed, refusals={refusal.kind: len(failed)}, refusal=remembered)
