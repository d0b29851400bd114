"""Remember what containers were given, and find the container behind a call of kubelet."""

from collections import Counter
from collections.abc import Collection, Container, Iterable, Iterator
from dataclasses import dataclass
from math import inf

from gas.placement.choice import ContainerChoice
from gas.placement.need import Role
from gas.plugin.card_pods import Holder
from gas.plugin.devices.allocation_policy import ids_for_cards, ids_of_one_card, spared_ids
from gas.plugin.devices.device_ids import NO_IDS, AllocateRequest, Call, Ids, PreferredRequest
from gas.plugin.kubelet.pod_resources import Listing
from gas.plugin.matching.gpu_pods import Demand, GpuPod, GpuPods
from gas.plugin.matching.progress import Confidence, Progress, asks_as_much, can_get
from gas.values.cards import Card

SETTLED = 1.0  # seconds after which an Allocate must be visible in kubelet's list

LISTED_LATE = "kubelet did not list its pods in time"
NOT_LISTED = "kubelet does not list its pods"
NOT_ASKED = "kubelet did not ask for a preference"

_FITS, _UNDECIDED, _DOES_NOT_FIT = range(3)


@dataclass(frozen=True, slots=True)
class Target:
    """A container that a call can be for, with the demand that the call serves, and its pod's progress."""

    progress: Progress
    demand: Demand

    @property
    def pod(self) -> GpuPod:
        return self.progress.pod

    @property
    def decided(self) -> ContainerChoice | None:
        return self.pod.decided_for(self.demand.index)

    def __str__(self) -> str:
        return f"{self.pod.key}/{self.demand.container}"


@dataclass(frozen=True, slots=True)
class Match:
    target: Target | None  # the likeliest one; None if no known container can be meant
    confidence: Confidence
    doubt: str  # why it may be wrong, as a clause for the log; empty for `Confidence.KNOWN`
    question: PreferredRequest | None  # kubelet's GetPreferredAllocation for these devices; None if it made none
    # ``namespace/name`` of the pods that kubelet lists and the watch has not shown yet: the call may be for one of them
    unwatched_pods: frozenset[str] = frozenset()

    @property
    def confirming_pod(self) -> GpuPod | None:
        """The pod whose own entry in kubelet's list confirms the match: it appears there, with devices yet to come.

        None if the match is certain already, or if a single entry cannot make it so.
        """
        if self.target is None or self.confidence is not Confidence.ALONE:
            return None
        pod = self.target.pod
        return pod if any(demand.role is not Role.INIT for demand in pod.demands) else None


@dataclass(frozen=True, slots=True)
class Preference:
    """The reply to GetPreferredAllocation, before the allocation policy completes it."""

    # offered ids, ``size`` at most: those that kubelet insists on, then those of decided cards that are free or, when
    # nothing is decided, of one card if the resource demands it
    ids: tuple[str, ...]
    spared: frozenset[str]  # offered ids that containers yet to come were promised; the policy takes them last
    match: Match


class Matcher:
    """Find the container behind each call, for all resources of one node: `gas.plugin.card_pods.CardPods` by matching.

    Only this class remembers calls.

                     .--------- GetPreferredAllocation --------.
                     |                                         v
        (no pod) --- Allocate ---> in the middle of a pod <--- asked ---- Allocate ---> the same pod goes on, or it
            ^                          |        ^                |                      is complete
            |                          |        `-- Allocate ----'
            `-- all containers served, or a call that cannot be this pod's: kubelet refused it ('abandoned'),
                or kubelet was restarted (a pod that was in the middle may then go on later)

    Candidates, from the most certain to the last resort:

    1. Allocate after its own GetPreferredAllocation is for the same container. Certain.
    2. The pod in the middle, if its next container can explain the call (`gas.plugin.matching.progress`). Certain:
       pods never interleave, and the ids of a refused pod are offered again at once.
    3. The first container of a pod that was not served yet. If only one such pod can get its cards it is `ALONE`, and
       wrong only when kubelet is ahead of the watch. Of several one is guessed: first those that can get exactly their
       decided cards, then pods without a decision; of each the smallest ``gas-ts`` first.
    4. If nothing fits, because something was missed (a restart of the plugin in the middle of a pod, a wrong guess
       before): any container that wants as many ids of this resource and is not known to have them. A guess.
    5. Without any candidate the match has no target; kubelet's own choice stands and the receipts report it later.

    A listing **taken while kubelet waits for the reply** makes 3 and 4 certain: kubelet takes up pods one by one and
    lists a pod from that moment on, so of all pods that wait for their devices only the right one is in it. For
    `Match.confirming_pod` the entry of that pod alone is enough. When the match is still not certain and has
    `Match.unwatched_pods`, the watch will soon show the pod. (A pod that kubelet has just refused for its own reasons
    keeps its entry for some milliseconds, until the refusal is written. It is mistaken for the right one if no other
    waiting pod is known then, and the receipts report it.)

    A wrong guess between pods that nothing distinguishes exchanges their cards: every container has as many cards as
    it wants, each of the pods gets a receipt, and what contradicts a later listing is dropped here.

    A listing must not be taken between kubelet's choice of ids and the end of its Allocate: kubelet may forget
    that these ids are taken when it cleans up after another pod at the same moment. So request one within
    GetPreferredAllocation, or when no call has come for a while, never within Allocate.

    one_card  the resources of which a pod without a decision gets ids of one card
    """

    def __init__(self, pods: GpuPods, *, one_card: Container[str] = ()) -> None:
        self.pods = pods
        self._one_card = one_card
        self._progress: dict[str, Progress] = {}
        self._current: Progress | None = None
        self._asked: Match | None = None  # what GetPreferredAllocation was matched with, until the next Allocate
        self._preferred: frozenset[str] = NO_IDS  # what it was answered, as far as it was decided
        self._refresh()
        pods.subscribe(self._refresh)

    def __iter__(self) -> Iterator[GpuPod]:
        return iter(self.pods)

    def prefer(self, request: PreferredRequest, *, listing: Listing | None = None, doubt: str = "") -> Preference:
        """Return the ids that the container should get. May be called again for the same question, with a listing.

        ``listing`` was taken after kubelet made this call and before its reply. ``doubt`` is why a match that is not
        certain may be wrong, if there is a better reason than the listing shows.
        """
        if listing:
            waiting = [progress for progress in self._progress.values() if not progress.pod.is_admitted]
            self._reconcile(listing, waiting, settled_before=inf)
        self._asked = match = self._find(request, listing or None, doubt)
        target = match.target
        ids: tuple[str, ...] = ()
        if target and target.decided:
            ids = ids_for_cards(target.decided.cards, target.demand.per_card, request)
        elif request.resource in self._one_card:
            ids = ids_of_one_card(
                request,
                promised=self._promised(),
                held=target.progress.cards_of(request.resource) if target else (),
                to_come=target.progress.ids_to_come(request.resource) if target else 0,
            )
        spared = spared_ids(self._promised(), request) if len(ids) < request.size else NO_IDS
        self._preferred = frozenset(ids)
        return Preference(ids, spared - self._preferred, match)

    def allocate(self, request: AllocateRequest, *, now: float) -> Match:
        """Record that kubelet gives these ids to a container, and return which one. ``now`` is in monotonic seconds."""
        match, self._asked = self._asked, None
        if match is None or match.question is None or not match.question.can_lead_to(request, self._preferred):
            match = self._find(request, None, NOT_ASKED)
        self._record(match, request.ids, now=now)
        return match

    def learn(self, listing: Listing, *, asked: float) -> None:
        """Correct the memory by a listing taken between calls, or by the first one before serving.

        ``asked`` is when kubelet was asked for it, by the clock of `allocate`.
        """
        self._reconcile(listing, self._progress.values(), settled_before=asked - SETTLED)

    def kubelet_restarted(self) -> None:
        """Forget which pod kubelet was in the middle of: it starts again, and still knows the ids it had chosen."""
        self._current = self._asked = None
        for progress in self._progress.values():
            progress.abandoned = False

    def unwatched_pods(self, listing: Listing) -> frozenset[str]:
        return frozenset(key for key, containers in listing.items() if self.pods.is_unwatched(key, containers))

    def init_container_cards(self, uid: str) -> dict[int, frozenset[Card]]:
        """Return the cards that a pod's ordinary init containers got, by container index, as far as they are certain.

        Nothing else keeps them: kubelet does not list ordinary init containers.
        """
        progress = self._progress.get(uid)
        if progress is None or Role.INIT not in progress.pod.roles or progress.confidence is Confidence.GUESSED:
            return {}
        return {index: frozenset(id_.card for id_ in ids) for index, ids in progress.init_container_ids().items()}

    def present(self) -> Collection[str] | None:
        return self.pods.present()

    def holders(self, resource: str, ids: Ids) -> list[Holder]:
        """Return the pods of which a container got exactly these ids, as far as that is remembered.

        There is more than one only while a deleted pod and the next one with its ids are both known.
        """
        self._forget_gone()
        return [
            Holder(progress.pod, progress.confidence is Confidence.KNOWN)
            for progress in self._progress.values()
            if progress.has_served(resource, ids)
        ]

    def users(self) -> dict[Card, set[str]]:
        users: dict[Card, set[str]] = {}
        for pod in self.pods:
            if pod.is_admitted and pod.given is not None:
                for card in {card for container in pod.given.containers for card in container.cards}:
                    users.setdefault(card, set()).add(pod.uid)
        return users

    def is_busy_with(self, uid: str) -> bool:
        return self._current is not None and self._current.pod.uid == uid and not self._current.is_complete

    def _refresh(self) -> None:
        """Update the pods from the watch, after each event, so that kubelet never waits for it.

        The pod in the middle stays even if it is deleted, which kubelet does not know yet.
        """
        for uid in [uid for uid in self._progress if self.pods.get(uid) is None]:
            if self._progress[uid] is not self._current or self._current.is_complete:
                del self._progress[uid]
        for pod in self.pods:
            if (progress := self._progress.get(pod.uid)) is None:
                self._progress[pod.uid] = Progress(pod)
            else:
                progress.pod = pod

    def _forget_gone(self) -> None:
        """Forget deleted pods that kubelet has finished meanwhile."""
        if len(self._progress) > len(self.pods):
            self._refresh()

    def _reconcile(self, listing: Listing, progresses: Iterable[Progress], *, settled_before: float) -> None:
        for progress in progresses:
            if (containers := listing.get(progress.pod.key)) is not None:
                progress.reconcile(containers, is_settled=progress.served_at <= settled_before)
        if self._current is not None and self._current.is_untouched:
            self._current = None

    def _find(self, call: Call, listing: Listing | None, doubt: str) -> Match:
        self._forget_gone()
        question = call if isinstance(call, PreferredRequest) else None
        unwatched = self.unwatched_pods(listing) if listing is not None else frozenset[str]()
        in_order = list(self._in_order(call, listing))
        candidates = in_order or list(self._out_of_order(call, listing, unwatched))
        if not candidates:
            doubt = doubt or _doubt("no pod that kubelet lists requests these devices", listing, unwatched)
            return Match(None, Confidence.NONE, doubt, question, unwatched)
        best = min(candidates, key=lambda candidate: self._rank(candidate, call))
        is_alone = len({candidate.pod.uid for candidate in candidates}) == 1
        confidence = Confidence.GUESSED
        # In the middle of a pod that is certain, a listing would add nothing.
        is_certain = listing is None or best.progress.confidence is Confidence.KNOWN
        if in_order and best.progress is self._current and is_certain:
            confidence = best.progress.confidence
        elif listing is not None and is_alone and not unwatched:
            confidence = Confidence.KNOWN
        elif listing is None and is_alone and in_order and best.progress.is_usual(call):
            confidence = Confidence.GUESSED if _gets_its_cards(best, call) is False else Confidence.ALONE
        if confidence is Confidence.KNOWN:
            doubt = ""
        else:
            doubt = doubt or _doubt("several containers match", listing, unwatched)
        return Match(best, confidence, doubt, question, unwatched)

    def _in_order(self, call: Call, listing: Listing | None) -> Iterator[Target]:
        for progress in self._progress.values():
            if progress.pod.is_admitted or progress.is_complete or progress.abandoned:
                continue
            if listing is not None and progress.pod.key not in listing:
                continue
            for demand in progress.next_demands():
                if progress.can_explain(call, demand):
                    yield Target(progress, demand)

    def _out_of_order(self, call: Call, listing: Listing | None, unwatched: frozenset[str]) -> Iterator[Target]:
        """Yield the containers that would be next if something was missed."""
        if listing is not None:
            self._reconcile(listing, self._progress.values(), settled_before=inf)
        for progress in self._progress.values():
            if listing is not None and progress.pod.key not in listing:
                continue
            if progress.pod.is_admitted and (listing is None or unwatched):
                continue
            known = Progress(progress.pod) if progress.confidence is Confidence.GUESSED else progress
            for demand in known.unserved():
                if asks_as_much(demand, call):
                    yield Target(known, demand)

    def _rank(self, candidate: Target, call: Call) -> tuple[object, ...]:
        """Return a sort key that is smaller for likelier candidates. Containers of one pod, in order, compare equal."""
        pod = candidate.pod
        gets_its_cards = _gets_its_cards(candidate, call)
        return (
            candidate.progress is not self._current,
            not candidate.progress.is_usual(call),
            _UNDECIDED if gets_its_cards is None else _FITS if gets_its_cards else _DOES_NOT_FIT,
            inf if pod.timestamp is None else pod.timestamp,
            pod.created,
            pod.key,
        )

    def _record(self, match: Match, ids: Ids, *, now: float) -> None:
        target = match.target
        progress = target.progress if target is not None else None
        if self._current is not None and self._current is not progress and not self._current.is_complete:
            self._current.abandoned = True
        self._current = progress
        if target is None or progress is None:
            return
        progress.serve(target.demand, ids)
        progress.confidence = match.confidence
        progress.served_at = now
        self._progress[progress.pod.uid] = progress

    def _promised(self) -> Counter[Card]:
        """Count the ids of each card that containers yet to come were promised."""
        promised: Counter[Card] = Counter()
        for progress in self._progress.values():
            if not progress.pod.is_admitted and not progress.abandoned:
                promised += progress.promised_cards()
        return promised


def _gets_its_cards(candidate: Target, call: Call) -> bool | None:
    """Return whether the container can get its decided cards; None if there is no decision."""
    decided = candidate.decided
    return None if decided is None else can_get(decided.cards, candidate.demand.per_card, call)


def _doubt(listed: str, listing: Listing | None, unwatched: frozenset[str]) -> str:
    """Return why a match may be wrong; ``listed`` is the reason if the listing is complete."""
    if listing is None:
        return LISTED_LATE
    if unwatched:
        return f"the watch has not shown {', '.join(sorted(unwatched))} yet, which kubelet lists"
    return listed
