"""Check the laws of promised room: the cards that nominated pods would get are kept for them, and no longer."""

from collections.abc import Collection, Mapping
from typing import NamedTuple

from simulation import objects
from simulation.objects import Object
from simulation.observed import BoundPod, LawBroken, Observed, fits_with

STANDS = 60.0  # seconds for which a nomination that kube-scheduler withdraws may stand for the extender
KNOWN_AFTER = 1.0  # seconds after which the extender has seen a change, if nothing hides it


class _Nomination(NamedTuple):
    node: str
    since: float


class Promises:
    """The laws of pods that kube-scheduler has nominated for a node.

    known  nothing hides nominations and bookings from the extender for longer than `KNOWN_AFTER`, and only it books
    """

    def __init__(self, observed: Observed) -> None:
        self._observed = observed
        self.known = False
        self._nominations: dict[str, _Nomination] = {}  # by UID of waiting pods
        self._withdrawn: dict[str, _Nomination] = {}  # by UID of waiting pods, since when the last one is withdrawn
        self._room: dict[str, float] = {}  # by node, when it last got room, or the order of its nominated pods changed
        self._changed: dict[str, float] = {}  # by node, when that was, or its promises may have changed otherwise
        self._tied: dict[str, str] = {}  # by UID, the node to which a pod is tied that is promised cards there

    def room(self, node: str) -> None:
        """Note that cards of a node have become free."""
        self._room[node] = self._observed.clock()

    def changed(self, node: str) -> None:
        """Note that a node has changed, or that cards there are taken without the extender."""
        self.room(node)
        self._changed[node] = self._observed.clock()
        self._tied = {uid: tied for uid, tied in self._tied.items() if tied != node}

    def waits(self, uid: str, value: Object) -> None:
        """Note a waiting pod as it is now."""
        known, node = self._nominations.get(uid), value["status"].get("nominatedNodeName") or ""
        if known is not None and known.node != node:
            self.ends(uid)
            self._withdrawn[uid] = _Nomination(known.node, self._observed.clock())
        if node and (known is None or known.node != node):
            self._withdrawn.pop(uid, None)
            self._nominations[uid] = _Nomination(node, self._observed.clock())

    def ends(self, uid: str) -> None:
        """Note that a pod is bound or gone, or that its nomination has ended."""
        self._tied.pop(uid, None)
        self._withdrawn.pop(uid, None)
        if (known := self._nominations.pop(uid, None)) is not None:
            self._room[known.node] = self._observed.clock()

    def ties(self, uid: str, node: str) -> None:
        """Note that a pod can only be bound to a node from now on."""
        if not self._is_nominated(uid, node) or node not in self._observed.nodes:
            return
        if self._nominations[uid].since - self._changed.get(node, 0.0) > KNOWN_AFTER:
            self._tied[uid] = node

    def check(self, pod: BoundPod) -> None:
        """Check that a pod, just bound by the extender, has no cards that were promised to a nominated pod.

        Which pod is promised which cards is up to the extender. But the most important pod for which there is room is
        promised some, and so are all equal pods that have room together.
        """
        if not self.known or self._observed.clock() - self._room.get(pod.node, 0.0) <= KNOWN_AFTER:
            return
        after = self._observed.on(pod.node)
        if any(each.use is None for each in after):
            return
        first = self._first(pod)
        before = [each for each in after if each is not pod]
        alone = [value for value in first.values() if self._fits(value, pod.node, before)]
        shapes = {str(objects.demand(each["spec"]["containers"][0])) for each in first.values()}
        if len(shapes) == 1 and all(map(_is_simple, first.values())):
            promised, left = (self._together(alone, pod.node, pods) for pods in (before, after))
        else:
            promised = len(alone) == len(first) > 0
            left = any(self._fits(value, pod.node, after) for value in first.values())
        if left < promised:
            names = ", ".join(sorted(value["metadata"]["name"] for value in first.values()))
            raise LawBroken("promises", f"pod {pod.name} has cards of {pod.node} that are promised to {names}")

    def _first(self, pod: BoundPod) -> Mapping[str, Object]:
        """Return the most important pods that are nominated for the node of a pod and may keep cards from it."""
        now = self._observed.clock()
        found = {uid: value for uid, value in self._observed.waiting.items() if self._is_nominated(uid, pod.node)}
        most = max(map(_priority, found.values()), default=0)
        own = _priority(pod.value)
        if most < own or (most == own and pod.value["status"].get("nominatedNodeName") == pod.node):
            return {}
        first = {uid: value for uid, value in found.items() if _priority(value) == most}
        return first if all(now - self._nominations[uid].since > KNOWN_AFTER for uid in first) else {}

    def _together(self, values: Collection[Object], node: str, pods: Collection[BoundPod]) -> int:
        """Return how many of some equal pods of one container with one card fit on a node together."""
        there, count = list(pods), 0
        for value in values:
            card = next((card for card in self._observed.capacity(node) if self._fits_on(value, node, card, there)), "")
            if not card:
                break
            use = {card: objects.demand(value["spec"]["containers"][0])[1]}
            there.append(BoundPod(f"promised {count}", node, value, 0, use, use))
            count += 1
        return count

    def _fits(self, value: Object, node: str, pods: Collection[BoundPod]) -> bool:
        """Return whether a pod fits on a node by its cards. The sums of all requests are up to the scheduler."""
        return fits_with(value, self._observed.capacity(node), pods)

    def _fits_on(self, value: Object, node: str, card: str, pods: Collection[BoundPod]) -> bool:
        only = {**value, "metadata": {**value["metadata"], "annotations": {objects.ALLOW: card}}}
        return self._fits(only, node, pods)

    def check_refused(self, uid: str, why: str) -> None:
        """Check that a pod is not refused cards that it was promised until its volumes were made on a node."""
        if self.known and (node := self._tied.get(uid)) is not None and not self._may_be_taken(uid, node):
            name = self._observed.waiting[uid]["metadata"]["name"]
            raise LawBroken("promises", f"pod {name} has its volumes on {node}, and is refused its cards there: {why}")

    def _may_be_taken(self, uid: str, node: str) -> bool:
        """Return whether more important pods may have the cards that a pod was promised."""
        others = [value for other, value in self._observed.waiting.items() if self._is_nominated(other, node)]
        others += [pod.value for pod in self._observed.on(node)]
        return max(map(_priority, others)) > _priority(self._observed.waiting[uid])

    def _is_nominated(self, uid: str, node: str) -> bool:
        return (known := self._nominations.get(uid)) is not None and known.node == node

    def check_books(self, replica: str, nominated: Mapping[str, set[str]]) -> None:
        """Compare the nominated pods that a replica knows, by node, with the objects. Withdrawn ones may be known."""
        wanted: dict[str, set[str]] = {}
        for uid, known in self._nominations.items():
            if "deletionTimestamp" not in self._observed.waiting[uid]["metadata"]:
                wanted.setdefault(known.node, set()).add(uid)
        now = self._observed.clock()
        for uid, known in self._withdrawn.items():
            if now - known.since <= STANDS and uid in nominated.get(known.node, ()):
                wanted.setdefault(known.node, set()).add(uid)
        if nominated != wanted:
            raise LawBroken("promises", f"{replica} knows the nominated pods {nominated}, expected {wanted}")


def _priority(value: Object) -> int:
    return value["spec"].get("priority") or 0


def _is_simple(value: Object) -> bool:
    containers = value["spec"]["containers"]
    return len(containers) == 1 and objects.demand(containers[0])[0] == 1
