"""Check the laws of PodGroups: each has its minimum or nothing, and what members are promised ends in time."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sandbox.api.storage import Change
from simulation import objects
from simulation.objects import Object
from simulation.observed import BoundPod, LawBroken, Observed

PROMISED = 12.0  # seconds after its last answer in which a member's promise must end, or its bind must come
KNOWN_AFTER = 1.0  # seconds after which the extender has seen a change, if nothing hides it
CYCLE_GAP = 0.5  # most seconds between two questions of one cycle
TOGETHER = 5.0  # seconds between the first bind of a group and the last one that its minimum needs
REMEMBERED = 15.0  # seconds for which a member that is gone counts: its group may just have been bound without it


class _Group:
    def __init__(self) -> None:
        self.minimum = 0  # 0 if its PodGroup is not there
        self.created = 0.0
        self.is_new = False  # a pod of it was tried when the extender may not have known its PodGroup
        self.bound: dict[str, float] = {}  # by UID of its pods that are bound and have not ended, since when
        self.since = 0.0  # when the first of them was bound
        self.came: set[str] = set()  # UIDs of pods that were bound, or went, since then
        self.gone: dict[str, float] = {}  # by UID of pods that are gone or have ended, when that was
        self.asked = self.begun = 0.0  # when the scheduler last asked about it, and when that cycle began
        self.refused = False  # the last question about it was answered with a refusal of all


class PodGroups:
    """The laws of PodGroups.

    known  no promise is lost, and nothing hides pods from the extender for longer than `KNOWN_AFTER`
    """

    def __init__(self, observed: Observed) -> None:
        self._observed = observed
        self.known = False
        self._groups: dict[str, _Group] = {}  # by name
        self._members: dict[str, str] = {}  # by UID, the group of a pod that has not ended
        self._answered: dict[str, float] = {}  # by UID, when the extender last let a member pass

    def see(self, change: Change) -> None:
        value = change.after.value
        group, gang = self._group(value["metadata"]["name"]), value["spec"]["schedulingPolicy"].get("gang") or {}
        group.minimum, group.created = 0 if change.gone else gang.get("minCount", 0), self._observed.clock()

    def see_pod(self, change: Change) -> None:
        """Record a pod as it is now."""
        value, now = change.after.value, self._observed.clock()
        uid, name = value["metadata"]["uid"], objects.group_of(value)
        if name:
            group = self._group(name)
            if change.gone or objects.is_over(value):
                self._members.pop(uid, None)
                group.bound.pop(uid, None)
                group.gone[uid] = now
                group.came.add(uid)
            else:
                self._members[uid] = name
                if value["spec"].get("nodeName") and uid not in group.bound:
                    if not group.bound:
                        group.since = now
                        group.came = {each for each, at in group.gone.items() if now - at < REMEMBERED}
                    group.bound[uid] = now
                    group.came.add(uid)

    def minimum_of(self, value: Object) -> int:
        """Return how many pods of a pod's group must have a node at the same time; 0 if it is scheduled by itself."""
        return self._group(name).minimum if (name := objects.group_of(value)) else 0

    def asked(self, pod: Object) -> None:
        """Note that the scheduler asks about a pod."""
        if name := objects.group_of(pod):
            group = self._group(name)
            group.refused = False
            if self._observed.clock() - group.asked > CYCLE_GAP:
                group.begun = self._observed.clock()
            group.asked = self._observed.clock()
            group.is_new = group.is_new or self._observed.clock() - group.created <= KNOWN_AFTER

    def answered(self, pod: Object, offered: Sequence[str], response: Mapping[str, Any]) -> None:
        """Check that a member passes on one of the nodes that it is offered, if on any."""
        uid, name = pod["metadata"]["uid"], objects.group_of(pod)
        if not name or response.get("Error"):
            return
        group, passing = self._group(name), response.get("NodeNames") or ()
        if passing:
            self._answered[uid] = self._observed.clock()
            is_one = len(passing) == 1 and passing[0] in offered
            if self.known and uid in self._members and not group.is_new and not is_one:
                raise LawBroken("pod groups", f"pod {pod['metadata']['name']} passes on {passing}, of {offered}")
        of_all = f"of the {group.minimum} pods that its PodGroup needs"
        group.refused = any(of_all in why for why in (response.get("FailedNodes") or {}).values())

    def check_refused(self, pod: Object, why: str) -> None:
        """Check that the bind of a member is not refused the cards that it was promised in the group's last cycle."""
        group, promised = self._group(objects.group_of(pod)), self._answered.get(pod["metadata"]["uid"], 0.0)
        if self.known and group.minimum and not group.is_new and promised >= group.begun:
            raise LawBroken("pod groups", f"pod {pod['metadata']['name']} is refused what it was promised: {why}")

    def check_promises(self, promised: Iterable[str]) -> None:
        """Check that pods, by UID, to which a replica promises cards as members of groups, still need them."""
        if not self.known:
            return
        now = self._observed.clock()
        for uid in promised:
            if (name := self._members.get(uid)) is None:
                ended = max((group.gone.get(uid, 0.0) for group in self._groups.values()), default=0.0)
                if now - ended > KNOWN_AFTER:
                    raise LawBroken("pod groups", f"cards are promised to {uid}, which is gone")
            elif now - self._group(name).bound.get(uid, now) > KNOWN_AFTER:
                raise LawBroken("pod groups", f"cards are promised to {uid}, which is bound")
            elif now - self._answered.get(uid, now) > PROMISED:
                raise LawBroken("pod groups", f"cards are promised to {uid} for more than {PROMISED} s")
            elif self._group(name).refused:
                raise LawBroken("pod groups", f"cards are promised to {uid}, whose group {name} was refused")

    def check_whole(self) -> None:
        """Check that no group has had only a part of its minimum for longer than `TOGETHER`."""
        for name, group in self._groups.items() if self.known else ():
            is_late = bool(group.bound) and self._observed.clock() - group.since > TOGETHER
            if is_late and len(group.came) < group.minimum:
                found = f"{len(group.came)} of at least {group.minimum} pods were bound"
                raise LawBroken("pod groups", f"group {name} is torn: {found}")

    def check_at_end(self) -> None:
        """Check that no group waits whose waiting pods have room at the same time.

        If the scheduler offers a member only some nodes, the extender may plan others for these, and never be asked
        about it.
        """
        self.check_whole()
        for name, group in self._groups.items():
            waiting = [value for value in self._observed.waiting.values() if objects.group_of(value) == name]
            if not group.minimum or any("deletionTimestamp" in value["metadata"] for value in waiting):
                continue
            if any(objects.ONLY_NODE in objects.annotations_of(value) for value in waiting):
                continue
            nodes = {node: self._observed.on(node) for node in self._observed.nodes}
            if any(pod.use is None for pods in nodes.values() for pod in pods):
                continue
            missing = max(group.minimum - len(group.bound), 1)
            if len(waiting) >= missing and self._have_room(waiting, missing, nodes):
                raise LawBroken("progress", f"{missing} waiting pods of group {name} have room at the same time")

    def _have_room(self, waiting: Sequence[Object], count: int, nodes: Mapping[str, list[BoundPod]]) -> bool:
        """Return whether as many of these pods, of one container with one card each, have room at the same time."""
        if count == 0:
            return True
        if len(waiting) < count:
            return False
        value, rest = waiting[0], waiting[1:]
        for node, there in nodes.items():
            for card in self._observed.capacity(node):
                only = {**value, "metadata": {**value["metadata"], "annotations": {objects.ALLOW: card}}}
                if self._observed.fits(only, node, there):
                    use = {card: objects.demand(value["spec"]["containers"][0])[1]}
                    more = BoundPod(f"planned {count}", node, value, 0, use, use)
                    if self._have_room(rest, count - 1, {**nodes, node: [*there, more]}):
                        return True
        return self._have_room(rest, count, nodes)

    def _group(self, name: str) -> _Group:
        return self._groups.setdefault(name, _Group())
