"""Give the pods of a PodGroup their cards together or not at all. No I/O.

kube-scheduler goes through a group's pods in one cycle: it asks for one, assumes it on the node that it has chosen,
and asks for the next. If too few find a node, it takes all back; the binds follow only after the cycle. So places for
all of them are planned at the first question, each is answered with its one node, and its cards are promised there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from cachetools import LRUCache

from gas.extender.bookings import State
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
"""Seconds for which a member's cards are promised after its filter. A cycle takes less, and after it the bind or
kube-scheduler's nomination follows within milliseconds."""

CYCLE_GAP = 0.5
"""Seconds between two questions about a group after which the second one is of another cycle: kube-scheduler asks for
the members one after the other, and tries a group again after a second or more."""

MOST_GROUPS = 1024  # whose last cycle is remembered
MOST_MEMBERS = 10_000  # whose nodes are remembered
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


class MinimumCounts(Mirror[PodGroup, tuple[str, int]]):
    """The number of members of each PodGroup that must run at the same time. Fed by a watch."""

    def __init__(self) -> None:
        super().__init__()
        self.of_group: dict[str, int] = {}  # by ``namespace/name``

    def record(self, obj: PodGroup) -> tuple[str, int] | None:
        return None if obj.min_count is None else (obj.key, obj.min_count)

    def replaced(self, _uid: str, old: tuple[str, int] | None, new: tuple[str, int] | None) -> None:
        if old is not None:
            self.of_group.pop(old[0], None)
        if new is not None:
            self.of_group[new[0]] = new[1]


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
    places: dict[str, Place] = field(default_factory=dict)  # planned, by UID
    answered: set[str] = field(default_factory=set)  # UIDs of the members that got their node
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
        self._offered: LRUCache[str, frozenset[str]] = LRUCache(MOST_MEMBERS)  # by UID, the nodes of the last question
        self._shared: LRUCache[frozenset[str], frozenset[str]] = LRUCache(MOST_OFFERS)

    @property
    def hooks(self) -> Hooks:
        return Hooks(together=(group_of,), restricting=(self.restrict,), observers=(self,), handlers=(self.members,))

    def asked(self, pod: Pod, need: PodNeed, names: Sequence[str]) -> None:
        """End the cycle of the pod's group if this question is of another one."""
        if (cycle := self._cycles.get(group := group_of(pod))) is not None and (
            pod.uid in cycle.answered or self._decider.clock() - cycle.latest > CYCLE_GAP
        ):
            self._end(group)

    def restrict(
        self, pod: Pod, need: PodNeed, decision: FilterDecision, facts: Callable[[str], NodeFacts | None]
    ) -> Turns[FilterDecision]:
        """Let a member pass on its one node, or refuse it because its group does not fit."""
        group = group_of(pod)
        minimum = self.minimums.of_group.get(group)
        if minimum is None or pod.node_name or not need.wants_cards:
            return decision
        names = [*decision.passing, *decision.failed]
        cycle = self._cycles.setdefault(group, Cycle(self._decider.clock()))
        cycle.latest = self._decider.clock()
        offered = frozenset(names)
        self._offered[pod.uid] = self._shared.setdefault(offered, offered)
        if not self._is_possible(cycle.places.get(pod.uid), pod, decision):
            needed = minimum - self._bound(group) - len(cycle.answered)
            cycle.places = yield from self._plan(pod, need, group, names, needed)
        if self._decider.pods.is_gone(pod.uid):  # nothing would end a promise to it
            cycle.places.pop(pod.uid, None)
            return decision
        bound = self._bound(group)
        fitting = bound + len(cycle.answered | cycle.places.keys())
        if fitting < minimum or (place := cycle.places.get(pod.uid)) is None:
            if fitting < minimum:
                self._end(group)
            return self._refused(pod, decision, GroupDoesNotFit(fitting, max(minimum, fitting + 1), cycle.lack))
        cycle.answered.add(pod.uid)
        nominated = Nominated(pod.uid, pod.key, place.node, pod.priority, need)
        self._decider.promises.put(Promised(nominated, place.cards), PROMISE)
        others = {name: str(PlannedElsewhere()) for name in decision.passing if name != place.node}
        return replace(decision, passing=[place.node], failed={**decision.failed, **others})

    def _is_possible(self, place: Place | None, pod: Pod, decision: FilterDecision) -> bool:
        """Return whether a member can still have its place."""
        facts = self._decider.nodes.facts(place.node) if place is not None else None
        if place is None or facts is None or place.node not in decision.passing:
            return False
        promised = self._decider.promises.to_others(pod).get(place.node, ())
        return has_room(self._decider.ledger.sums(place.node, promised), place.cards, facts.inventory)

    def _bound(self, group: str) -> int:
        return sum(self._is_counted(uid) for uid in self.members.of_group.get(group, ()))

    def _plan(self, pod: Pod, need: PodNeed, group: str, names: Sequence[str], needed: int) -> Turns[dict[str, Place]]:
        """Plan the members that still need a node, apart from those that were answered in this cycle."""
        answered = self._cycles[group].answered
        members = [Member(pod.uid, need, self._offered[pod.uid])]
        for uid in sorted(self.members.of_group.get(group, ())):
            waiting = self._decider.pods.waiting.get(uid)
            if uid in answered or uid == pod.uid or waiting is None or waiting.suspended or self._is_counted(uid):
                continue
            try:
                own = self._decider.need(waiting)
            except BadNeed:
                continue
            if own.wants_cards:
                members.append(Member(uid, own, self._offered.get(uid)))
        others = frozenset[str]().union(*(each.offered or () for each in members)).difference(names)
        every = [*names, *sorted(others)]
        promised = self._decider.promises.to_others(pod)
        places = yield from Planner(self._decider.nodes, self._decider.verdicts, promised).plan(members, every, needed)
        left_out = [each.need for each in members if each.uid not in places]
        self._cycles[group].lack = self._lack(left_out[0], every, promised, places) if left_out else ""
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

    def _end(self, group: str) -> None:
        """Forget a cycle, and end what it has promised to members that are not being bound."""
        for uid in self._cycles.pop(group).answered:
            self._decider.promises.drop(uid)
            self._unexpect(uid)

    def _refused(self, pod: Pod, decision: FilterDecision, refusal: GroupDoesNotFit) -> FilterDecision:
        failed = dict.fromkeys([*decision.passing, *decision.failed], str(refusal))
        reasons = {str(refusal): len(failed)}
        remembered = PodRefusal(pod.key, self._now(), refusal.kind, reasons, {}, only_seen_by_cards=True)
        return FilterDecision([], failed, refusals={refusal.kind: len(failed)}, refusal=remembered)
