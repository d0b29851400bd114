"""The law of preemption: which pods are evicted for a more important one."""

from __future__ import annotations

from simulation import objects
from simulation.objects import Object
from simulation.observed import BoundPod, LawBroken, Observed, fits_beside

MOST_ROUNDS = 2
"""How often pods bound by the extender may be evicted for one nomination, each time pods that came after the last.

The first eviction counts; another may follow because the leader has not seen the nomination yet.
"""

KNOWN_AFTER = 1.0
"""Seconds after which the extender has seen a change, if nothing fails."""


class Evictions:
    """The evictions until now."""

    def __init__(self, observed: Observed) -> None:
        self._observed = observed
        self._evicted: set[str] = set()
        self._rounds: dict[str, tuple[str, int, int]] = {}  # by UID: the node, the version then, and how many count

    def nomination_ended(self, uid: str) -> None:
        """Take in that a pod is not nominated, or no longer."""
        self._rounds.pop(uid, None)

    def check(self, pod: Object, node: str, uids: list[str], asked: int, *, now: int, calm: bool) -> None:
        """Check that only less important pods of the node are evicted for a pod, which then fits, and not ever more.

        uids   of the pods that are evicted
        asked  version of the API server's storage when the extender was asked: what was bound later it may not know
        now    version now
        calm   whether nothing fails, and nothing else happens on the node

        Raises LawBroken.
        """
        name, priority = pod["metadata"]["name"], pod["spec"].get("priority") or 0
        victims = [self._observed.bound[uid] for uid in uids if uid in self._observed.bound]  # others have ended
        for each in victims:
            if each.node != node or (each.value["spec"].get("priority") or 0) >= priority:
                raise LawBroken("preemption", f"{each.name} on {each.node} is evicted for {name} on {node}")
        self._check_room_is_kept(pod, node, victims, now=now)
        if pod["spec"].get("initContainers") or objects.company_of(pod)[0] or objects.card_name_of(pod):
            return
        stay = [each for each in self._observed.on(node) if each.version <= asked and each not in victims]
        if not fits_beside(pod, self._observed.most.get(node, {}), stay):
            raise LawBroken("preemption", f"{len(uids)} pods of {node} are too few for {name}")
        if calm and self._is_known(node):
            for each in victims:
                if self._observed.fits(pod, node, [*stay, each]):
                    raise LawBroken("preemption", f"{each.name} is evicted for {name} without need")

    def _is_known(self, node: str) -> bool:
        """Return whether the extender must know what is on a node, as the objects say it."""
        observed = self._observed
        return (
            observed.clock() - observed.changed.get(node, 0.0) > KNOWN_AFTER
            and all(pod.use is not None for pod in observed.on(node))
            and not any(value["status"].get("nominatedNodeName") == node for value in observed.waiting.values())
        )

    def _check_room_is_kept(self, pod: Object, node: str, victims: list[BoundPod], *, now: int) -> None:
        """Check that pods which the extender binds after room was made for a nominated pod do not take it repeatedly.

        Pods that others bind may take it, and the leader may name victims again that it has not seen leave.
        """
        uid = pod["metadata"]["uid"]
        seen = self._observed.waiting.get(uid)
        is_nominated = seen is not None and bool(seen["status"].get("nominatedNodeName"))
        nominated, before, rounds = self._rounds.get(uid, (node, 0, 0)) if is_nominated else (node, 0, 0)
        new = (each for each in victims if each.uid not in self._evicted)
        taken = any(each.version > before and each.use is not None for each in new)
        rounds = taken + (rounds if nominated == node else 0)
        self._rounds[uid] = node, now, rounds
        self._evicted.update(each.uid for each in victims)
        if rounds > MOST_ROUNDS:
            name = pod["metadata"]["name"]
            raise LawBroken("preemption", f"pods that had just been bound were evicted for {name} {rounds} times")
