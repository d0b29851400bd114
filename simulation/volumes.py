"""Make the volumes of pods once their nodes are chosen, as a provisioner does. It outlives schedulers."""

import asyncio
from collections.abc import Callable

from sandbox.scheduler.scheduler import VolumesFailed
from simulation import objects
from simulation.objects import Object


class Volumes:
    """The volumes of pods that ask for some by an annotation.

    nodes    by UID, where the volumes of a pod are; it can have no other node
    on_made  is called with UID and node
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self.nodes: dict[str, str] = {}
        self.on_made: Callable[[str, str], None] = lambda _uid, _node: None
        self._clock = clock
        self._failures: dict[str, int] = {}  # by UID, how often they were not made
        self._until: dict[tuple[str, str], float] = {}  # by UID and node, when they are made

    def node_of(self, pod: Object) -> str | None:
        return self.nodes.get(pod["metadata"]["uid"])

    def are_missing(self, pod: Object) -> bool:
        return objects.VOLUME_SECONDS in objects.annotations_of(pod) and self.node_of(pod) is None

    async def make(self, pod: Object, node: str) -> None:
        """Make the volumes of a pod, or go on with those that were begun for another scheduler."""
        uid, annotations = pod["metadata"]["uid"], objects.annotations_of(pod)
        until = self._until.setdefault((uid, node), self._clock() + float(annotations[objects.VOLUME_SECONDS]))
        await asyncio.sleep(max(until - self._clock(), 0.001))
        failures = self._failures.get(uid, 0)
        if failures < int(annotations.get(objects.VOLUME_FAILURES, "0")):
            self._failures[uid] = failures + 1
            del self._until[uid, node]
            raise VolumesFailed("the volumes were not made")
        self.nodes[uid] = node
        self.on_made(uid, node)
