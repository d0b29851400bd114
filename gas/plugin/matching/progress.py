"""How far kubelet has come with one pod: which of its containers have their devices."""

from __future__ import annotations

from gas.placement.need import Role
from gas.plugin.kubelet.listing import NO_IDS, ContainerIds, Ids
from gas.plugin.matching.confidence import Confidence
from gas.plugin.matching.waiting_pods import PodOfNode, Want


class Progress:
    """One pod's wants and what they were answered with.

    pod          as the watch last showed it; it may be deleted while kubelet goes on asking for it
    confidence   that what is noted here is really this pod's; nothing is noted: no doubt
    broken_off   whether kubelet turned to another pod in the middle of it: it refused this one
    answered_at  when the last answer was given
    """

    def __init__(self, pod: PodOfNode) -> None:
        self.pod = pod
        self.confidence = Confidence.KNOWN
        self.broken_off = False
        self.answered_at = float("-inf")
        self._served: dict[Want, Ids | None] = {}
        self._agreed: tuple[PodOfNode, ContainerIds] | None = None

    def __repr__(self) -> str:
        return f"Progress({self.pod.key}, {len(self._served)} of {len(self.pod.wants)})"

    @property
    def is_fresh(self) -> bool:
        return not self._served

    @property
    def is_complete(self) -> bool:
        return len(self._served) == len(self.pod.wants)

    def unserved(self) -> tuple[Want, ...]:
        return tuple(want for want in self.pod.wants if want not in self._served)

    def next_wants(self) -> tuple[Want, ...]:
        """Those of the first container that has not got everything: within it kubelet's order is any."""
        unserved = self.unserved()
        return tuple(want for want in unserved if want.index == unserved[0].index)

    def pool(self, resource: str) -> Ids | None:
        """What the pod's init containers leave to its next containers; None when that is not known."""
        pool: Ids = NO_IDS
        for want in self.pod.wants:
            if want.resource != resource or want not in self._served:
                continue
            ids = self._served[want]
            if ids is None:
                return None
            pool = pool | ids if want.role is Role.INIT else pool - ids
        return pool

    def held(self, resource: str) -> Ids:
        """The ids that nobody can be offered while the pod lives, as far as they are known."""
        return NO_IDS.union(
            *(
                ids
                for want, ids in self._served.items()
                if ids and want.resource == resource and want.role is not Role.INIT
            )
        )

    def of_init_containers(self) -> dict[int, Ids]:
        """By place of the ordinary init container, what it was answered with; a place that is missing is unknown."""
        return {want.index: ids for want, ids in self._served.items() if want.role is Role.INIT and ids is not None}

    def serve(self, want: Want, ids: Ids) -> None:
        """It got these; the containers before it have theirs then, though nobody may know which."""
        self._agreed = None
        for earlier in self.pod.wants:
            if earlier.index < want.index:
                self._served.setdefault(earlier, None)
        self._served[want] = ids

    def take_in(self, containers: ContainerIds, *, is_settled: bool) -> None:
        """Believe kubelet over memory. What contradicts it was a wrong guess, and all of that is forgotten.

        is_settled  whether the answers noted here had the time to appear in what kubelet says

        The very same ``containers`` once more is no news, unless something was noted since or had to settle.
        """
        if self._agreed is not None and self._agreed[0] is self.pod and self._agreed[1] is containers:
            return
        staying = [want for want in self.pod.wants if want.role is not Role.INIT and want.container in containers]
        listed = {want: containers[want.container].get(want.resource, NO_IDS) for want in staying}
        if any(self._contradicts(want, ids, is_settled=is_settled) for want, ids in listed.items()):
            self._served.clear()
            self.confidence, self.broken_off = Confidence.KNOWN, False
        for want, ids in listed.items():
            if ids:
                self.serve(want, ids)
                self.confidence = Confidence.KNOWN
        self._agreed = (self.pod, containers) if is_settled else None

    def _contradicts(self, want: Want, ids: Ids, *, is_settled: bool) -> bool:
        if want not in self._served:
            return False
        mine = self._served[want]
        return (mine is not None and mine != ids) if ids else is_settled
