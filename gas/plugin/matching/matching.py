"""Whose devices kubelet is asking for: the memory of what was answered, and the search for the pod behind a call."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from gas.cards import Card
from gas.plugin.devices.allocation_policy import PreferredRequest
from gas.plugin.kubelet.listing import NO_IDS, Ids, Listing
from gas.plugin.matching.confidence import Confidence
from gas.plugin.matching.evidence import Allocation, Call, asks_as_much, can_get, is_possible, is_usual
from gas.plugin.matching.match import Match, Wish
from gas.plugin.matching.progress import Progress
from gas.plugin.matching.waiting_pods import PodsOfNode, Want
from gas.plugin.matching.wished_ids import promised_cards, spared_ids, wished_ids

SETTLED = 1.0
"""Seconds after which an answer of ours must be seen in a listing."""

_FITS, _UNDECIDED, _DOES_NOT_FIT = range(3)


@dataclass(frozen=True, slots=True)
class _Candidate:
    progress: Progress
    want: Want


@dataclass(frozen=True, slots=True)
class _Preferred:
    """The question that the next Allocate belongs to, and whose it was."""

    request: PreferredRequest
    candidate: _Candidate | None
    confidence: Confidence

    def leads_to(self, call: Allocation) -> bool:
        asked = self.request
        return (
            asked.resource == call.resource
            and asked.size == call.size
            and asked.must_include <= call.ids <= asked.available
        )


class Matching:
    """The memory of one node's plugin, for all its resources.

                     .--------- GetPreferredAllocation --------.
                     |                                         v
        (no pod) --- Allocate ---> in the middle of a pod <--- asked ---- Allocate ---> the same pod goes on, or it
            ^                          |        ^                |                      is complete
            |                          |        `-- Allocate ----'
            `-- all containers served, or a call that cannot be this pod's: kubelet refused it ('broken off'),
                or kubelet was restarted (a pod that was in the middle may then go on later)

    Whose a call is, from the surest to the last resort:

    1. Allocate after its own GetPreferredAllocation: the same container. Sure.
    2. The pod in the middle, when its next container can explain the call (`gas.plugin.matching.evidence`): sure, as
       pods never interleave, and the ids of a refused pod are offered again at once.
    3. The first container of a pod that nothing was answered for. One such pod that can get its cards is taken: it is
       `ALONE`, and wrong only when kubelet is ahead of our watch. Of several one is guessed: first those that can get
       exactly the cards decided for them, then pods without decision; of each the smallest ``gas-ts`` first.
    4. Nothing fits, because something was missed (a restart of the plugin in the middle of a pod, a wrong guess
       before): any container that wants as many of this resource and is not known to have them. A guess.
    5. Without any candidate nobody is matched; kubelet's own choice stands and the receipts tell later.

    What makes 3 and 4 sure is a listing **taken while kubelet waits for the answer**: kubelet takes up pods one by one
    and lists a pod from that moment on, not before, so of all that wait for their devices only the right one is in
    it. Where `Wish.one_entry_suffices`, it is enough to ask for that pod: ``prefer(request, listing={key: …})``. When
    it is still not sure and the listing has `strangers`, the watch will show the pod in a moment. (A pod that kubelet
    has just refused for reasons of its own keeps its own entry until that is written, some milliseconds; it is mistaken
    for the right one if nothing else that waits is known then, and the receipts tell.)

    A wrong guess between pods that nothing distinguishes exchanges their cards: every container has as many cards as
    it wants, each of the pods gets a receipt, and what contradicts a later listing is forgotten here.

    A listing must not be taken between kubelet's choice of ids and the end of its Allocate: kubelet 1.34 may forget
    that these ids are taken when it cleans up after another pod at the same moment. So ask for one within
    GetPreferredAllocation, or when no call has come for a while, never within Allocate.
    """

    def __init__(self, pods: PodsOfNode) -> None:
        self._pods = pods
        self._progress: dict[str, Progress] = {}
        self._current: Progress | None = None
        self._asked: _Preferred | None = None
        self._followed = 0

    def follow(self) -> None:
        """Take over what the watch has shown. Every call does so; done before, it is not done while kubelet waits.

        The pod in the middle stays though it is deleted: kubelet does not know that yet.
        """
        if self._followed == self._pods.changes and len(self._progress) == len(self._pods):
            return
        for uid in [uid for uid in self._progress if self._pods.get(uid) is None]:
            if self._progress[uid] is not self._current or self._current.is_complete:
                del self._progress[uid]
        for pod in self._pods:
            if (progress := self._progress.get(pod.uid)) is None:
                self._progress[pod.uid] = Progress(pod)
            else:
                progress.pod = pod
        self._followed = self._pods.changes

    def prefer(self, request: PreferredRequest, *, listing: Listing | None = None) -> Wish:
        """Which ids the container should get. May be asked again for the same call, with a listing taken meanwhile.

        listing  taken after kubelet made this call and before it is answered; None or empty when there is none
        """
        self.follow()
        if listing:
            waiting = [progress for progress in self._progress.values() if not progress.pod.is_admitted]
            self._take_in(listing, waiting, settled_before=float("inf"))
        candidate, confidence = self._whose(request, listing or None)
        self._asked = _Preferred(request, candidate, confidence)
        match = _match(candidate, confidence, request)
        ids = wished_ids(match.given.cards, request) if match and match.given else ()
        spared = self._spared(request) if len(ids) < request.size else NO_IDS
        return Wish(ids, spared.difference(ids), match)

    def allocate(self, resource: str, ids: Ids, *, now: float) -> Match | None:
        """Kubelet gives these ids to a container, for good. Answers which one it is, as far as that can be known.

        now  seconds of a clock that only goes forward
        """
        self.follow()
        call = Allocation(resource, ids)
        asked, self._asked = self._asked, None
        if asked is not None and asked.leads_to(call):
            candidate, confidence, question = asked.candidate, asked.confidence, asked.request
        else:
            candidate, confidence = self._whose(call, None)
            question = None
        self._note(candidate, ids, confidence, now=now)
        return _match(candidate, confidence, question)

    def learn(self, listing: Listing, *, asked: float) -> None:
        """Compare the memory with a listing taken between calls, and with the first one before serving.

        asked  when kubelet was asked for it, by the clock of `allocate`
        """
        self.follow()
        self._take_in(listing, self._progress.values(), settled_before=asked - SETTLED)

    def kubelet_restarted(self) -> None:
        """Kubelet begins anew, with the pods it has not finished; what it had chosen it still knows."""
        self._current = self._asked = None
        for progress in self._progress.values():
            progress.broken_off = False

    def strangers(self, listing: Listing) -> frozenset[str]:
        """Pods that kubelet has and the watch has not shown yet: when no pod fits a call, it is worth to wait a
        moment for the watch."""
        # What an entry says is looked at, and so decoded, only where the name is not known: of hundreds hardly ever.
        unknown = [key for key in listing if not self._pods.knows(key)]
        return frozenset(key for key in unknown if self._pods.is_new(key, listing[key]))

    def given_to_init_containers(self, uid: str) -> dict[int, frozenset[Card]]:
        """What a pod's ordinary init containers were given, by their place, as far as it is sure. Nobody else
        remembers."""
        progress = self._progress.get(uid)
        if progress is None or progress.confidence is Confidence.GUESSED:
            return {}
        return {index: frozenset(id_.card for id_ in ids) for index, ids in progress.of_init_containers().items()}

    def is_busy_with(self, uid: str) -> bool:
        """Whether kubelet is in the middle of this pod."""
        return self._current is not None and self._current.pod.uid == uid and not self._current.is_complete

    def _take_in(self, listing: Listing, of: Iterable[Progress], *, settled_before: float) -> None:
        for progress in of:
            if (containers := listing.get(progress.pod.key)) is not None:
                progress.take_in(containers, is_settled=progress.answered_at <= settled_before)
        if self._current is not None and self._current.is_fresh:
            self._current = None

    def _whose(self, call: Call, listing: Listing | None) -> tuple[_Candidate | None, Confidence]:
        """The most likely container, and how sure that is."""
        in_order = list(self._in_order(call, listing))
        candidates = in_order or list(self._out_of_order(call, listing))
        if not candidates:
            return None, Confidence.GUESSED
        best = min(candidates, key=lambda candidate: self._rank(candidate, call))
        is_alone = len({candidate.progress.pod.uid for candidate in candidates}) == 1
        goes_on = bool(in_order) and best.progress is self._current
        if goes_on and (listing is None or best.progress.confidence is Confidence.KNOWN):
            return best, best.progress.confidence
        if listing is not None:
            return best, Confidence.KNOWN if is_alone and not self.strangers(listing) else Confidence.GUESSED
        is_plain = is_alone and bool(in_order) and _is_expected(best, call)
        return best, Confidence.ALONE if is_plain else Confidence.GUESSED

    def _in_order(self, call: Call, listing: Listing | None) -> Iterator[_Candidate]:
        for progress in self._progress.values():
            if progress.pod.is_admitted or progress.is_complete or not _is_in(listing, progress):
                continue
            if progress.broken_off:
                continue
            for want in progress.next_wants():
                if is_possible(progress, want, call):
                    yield _Candidate(progress, want)

    def _out_of_order(self, call: Call, listing: Listing | None) -> Iterator[_Candidate]:
        """Containers that would be next if something was missed."""
        if listing is not None:
            self._take_in(listing, self._progress.values(), settled_before=float("inf"))
        for progress in self._progress.values():
            if not _is_in(listing, progress):
                continue
            if progress.pod.is_admitted and (listing is None or self.strangers(listing)):
                continue
            known = Progress(progress.pod) if progress.confidence is Confidence.GUESSED else progress
            for want in known.unserved():
                if asks_as_much(want, call):
                    yield _Candidate(known, want)

    def _rank(self, candidate: _Candidate, call: Call) -> tuple[object, ...]:
        """Smaller is likelier; of equals, which are containers of one pod, the first."""
        pod = candidate.progress.pod
        given = pod.decided_for(candidate.want.index)
        return (
            candidate.progress is not self._current,
            not is_usual(candidate.progress, call),
            _UNDECIDED if given is None else _FITS if can_get(given.cards, call) else _DOES_NOT_FIT,
            pod.timestamp is None,
            pod.timestamp or 0,
            pod.created,
            pod.key,
        )

    def _note(self, candidate: _Candidate | None, ids: Ids, confidence: Confidence, *, now: float) -> None:
        progress = candidate.progress if candidate else None
        if self._current is not None and self._current is not progress and not self._current.is_complete:
            self._current.broken_off = True
        self._current = progress
        if candidate is None or progress is None:
            return
        progress.serve(candidate.want, ids)
        progress.confidence = confidence
        progress.answered_at = now
        self._progress[progress.pod.uid] = progress

    def _spared(self, request: PreferredRequest) -> Ids:
        """Of the ids offered, as many of each card as containers yet to come were promised."""
        promised: Counter[Card] = Counter()
        for progress in self._progress.values():
            if not progress.pod.is_admitted and not progress.broken_off:
                promised += promised_cards(progress.pod, progress.unserved())
        return spared_ids(promised, request)


def _is_expected(candidate: _Candidate, call: Call) -> bool:
    given = candidate.progress.pod.decided_for(candidate.want.index)
    return is_usual(candidate.progress, call) and (given is None or can_get(given.cards, call))


def _is_in(listing: Listing | None, progress: Progress) -> bool:
    return listing is None or progress.pod.key in listing


def _match(candidate: _Candidate | None, confidence: Confidence, question: PreferredRequest | None) -> Match | None:
    if candidate is None:
        return None
    pod, want = candidate.progress.pod, candidate.want
    return Match(pod, want, pod.decided_for(want.index), pod.hierarchies[want.index], confidence, question)
