"""The model: what replicas, API server and users may do about a pod, and the laws.

Each node has one card, which one pod fills. A step is one atomic action. Requests may be stored late or never, and
responses may be lost. So a request that waits for its turn, is sent again or is kept by a webhook needs no step of its
own. A version of a pod is the present one or an older one, no more. Clocks are not modelled: a leader stops before its
Lease expires, and the API server lets versions be changed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

NONE = -1  # no card, or no replica

STEPS = {
    "bind": "gas.extender.bind.Binder._bind_version",
    "refused": "gas.extender.bind.Binder._write",
    "no response": "gas.extender.bind.Binder._start_settling",
    "review": "gas.extender.binding_reviews.bindings.ReviewedBindings.give",
    "copy": "gas.extender.binding_reviews.bindings.ReviewedBindings._is_being_written",
    "end review": "gas.extender.binding_reviews.reviews.BindReviews._settle",
    "change version": "gas.extender.late_bindings.settled_pod",
    "settle": "gas.extender.bind.Binder._settle",
    "watch": "gas.extender.pods.Pods.changed",
    "elect": "gas.cluster.lease.LeaderElection._take",
    "end earlier bindings": "gas.extender.late_bindings.end_earlier_bindings",
    "read pods": "gas.extender.readiness.read_bound_pods",
    "lose the lead": "gas.extender.leadership.leadership.Leadership.changed",
    "restart": "gas.extender.assembly.Extender.run",
    "store": "gas.cluster.objects.bind_pod",
    "delete": "gas.extender.pods.Pods.deleted",
}
"""The code that takes each step, or whose request or watch event it is."""

NOT_AWAITED = frozenset({"review", "copy", "lose the lead", "restart", "delete"})  # steps of users, and faults


class View(NamedTuple):
    """A replica's knowledge of a pod: unseen, waiting, stale (waiting in an older version), reserved, held or gone.

    task  the open question about a reserved pod: writing (the response to its own Binding), copied (the same, and
          another client may repeat the Binding), reviewed (whether another client's Binding follows), settling (whether
          it is bound), changed (the same, and no earlier Binding can bind it any more)
    """

    known: str = "unseen"
    card: int = NONE
    task: str = ""


class Binding(NamedTuple):
    """A Binding on its way. ``sender``: the replica that waits for the response."""

    sender: int
    card: int
    is_current: bool


class Pod(NamedTuple):
    """A pod as it is stored (waiting, bound, ending or gone), as replicas know it, and its Bindings on their way."""

    stored: str
    card: int
    views: tuple[View, ...]
    bindings: tuple[Binding, ...] = ()

    @property
    def holds_card(self) -> bool:
        return self.stored in ("bound", "ending")

    def seen(self, replica: int, view: View) -> Pod:
        """Replace the view of a replica, which waits for a response only while it writes."""
        views = (*self.views[:replica], view, *self.views[replica + 1 :])
        waits = view.task in ("writing", "copied")
        sent = (each if waits or each.sender != replica else each._replace(sender=NONE) for each in self.bindings)
        return self._replace(views=views)._with(sent)

    def sent(self, sender: int, card: int, *, is_current: bool = True) -> Pod:
        return self._with((*self.bindings, Binding(sender, card, is_current)))

    def changed(self) -> Pod:
        views = tuple(each._replace(known="stale") if each.known == "waiting" else each for each in self.views)
        return self._replace(views=views)._with(each._replace(is_current=False) for each in self.bindings)

    def _with(self, bindings: Iterable[Binding]) -> Pod:
        return self._replace(bindings=tuple(sorted(set(bindings))))


Steps = Iterator[tuple[str, Pod]]


@dataclass(frozen=True, kw_only=True)
class Rules:
    """The rules of the product. Each that is False is a fault."""

    demands_version: bool = True
    one_leader: bool = True
    ends_earlier_bindings: bool = True
    settles_at_start: bool = True
    reads_pods_at_start: bool = True
    changes_version: bool = True
    settles_without_response: bool = True
    settles_copies: bool = True
    cancels_what_is_settled: bool = True
    holds_until_gone: bool = True

    def can_store(self, pod: Pod, binding: Binding) -> bool:
        return pod.stored == "waiting" and (binding.is_current or not self.demands_version)

    def read(self, pod: Pod) -> View:
        """Return what a replica knows of a pod that it reads now."""
        if pod.stored == "waiting":
            return View("waiting")
        holds = pod.stored == "bound" or (pod.stored == "ending" and self.holds_until_gone)
        return View("held", pod.card) if holds else View("gone")

    def decisions(self, pod: Pod, replica: int, free: Iterable[int]) -> Steps:
        """Yield what the replica that decides, whose ledger has some cards free, may do about a pod."""
        (known, booked, task), read = pod.views[replica], self.read(pod)
        if known in ("waiting", "stale"):
            for card in free:
                writing = pod.seen(replica, View("reserved", card, "writing"))
                yield "bind", writing.sent(replica, card, is_current=known == "waiting")
        if pod.stored == "waiting":
            for card in (booked,) if task == "reviewed" else free if booked == NONE else ():
                yield "review", pod.seen(replica, View("reserved", card, "reviewed")).sent(NONE, card)
            if task == "writing":
                yield "copy", pod.seen(replica, View("reserved", booked, "copied")).sent(NONE, booked)
        if known != read.known and not (known == "reserved" and read.known == "waiting"):
            yield "watch", pod.seen(replica, read)

    def outcomes(self, pod: Pod, replica: int) -> Steps:
        """Yield how a replica, which need no longer lead, may find out what became of a Binding."""
        view = pod.views[replica]
        settling = pod.seen(replica, view._replace(task="settling"))
        if view.task == "reviewed":
            yield "end review", settling
        if view.task in ("writing", "copied"):
            free = pod.seen(replica, View("stale"))
            yield "no response", settling if self.settles_without_response else free
            if any(each.sender == replica and not self.can_store(pod, each) for each in pod.bindings):
                yield "refused", settling if view.task == "copied" and self.settles_copies else free
        if view.task == "settling" and pod.stored == "waiting":
            after = pod.seen(replica, view._replace(task="changed"))
            yield "change version", after.changed() if self.changes_version else after
        elif view.task in ("settling", "changed"):
            read = self.read(pod)
            is_kept = read.known == "waiting" and not self.cancels_what_is_settled
            yield "settle", pod.seen(replica, view._replace(task="") if is_kept else read)

    def of_others(self, pod: Pod) -> Steps:
        """Yield what the API server and users may do."""
        for binding in pod.bindings:
            if self.can_store(pod, binding):
                left = tuple(each for each in pod.bindings if each != binding)
                bound = pod._replace(stored="bound", card=binding.card, bindings=left).changed()
                yield "store", bound  # without a response
                if binding.sender != NONE:
                    yield "store", bound.seen(binding.sender, View("reserved", binding.card))
        if pod.stored == "bound":
            yield "delete", pod._replace(stored="ending").changed()
        elif pod.stored != "gone":
            yield "delete", pod._replace(stored="gone", card=NONE).changed()

    def of_lead(self, phases: Sequence[str], replica: int, views: Collection[View]) -> Iterator[tuple[str, str]]:
        """Yield how a replica may begin or cease to decide, each with its next phase.

        follower --elect--> elected --end earlier bindings--> ended --read pods--> deciding
        """
        match phases[replica]:
            case "follower":
                if not self.one_leader or set(phases) == {"follower"}:
                    yield "elect", "elected"
            case "elected":
                yield "end earlier bindings", "ended"
            case "ended":
                if not self.settles_at_start or not any(view.task for view in views):
                    yield "read pods", "deciding"
        if phases[replica] != "follower":
            yield "lose the lead", "follower"
        yield "restart", "follower"

    def follow_lead(self, step: str, pod: Pod, replica: int) -> Pod:
        """Return a pod after a step of `of_lead`. A follower's reservations matter, the rest is read again."""
        is_reserved = pod.views[replica].known == "reserved"
        if step == "end earlier bindings" and pod.stored == "waiting" and self.ends_earlier_bindings:
            return pod.changed()
        if step == "read pods" and not (is_reserved and pod.stored == "waiting"):
            return pod.seen(replica, self.read(pod) if self.reads_pods_at_start else View("stale"))
        if step == "restart" or (step == "lose the lead" and not is_reserved):
            return pod.seen(replica, View())
        return pod


def broken_law(phases: Sequence[str], pods: Sequence[Pod], cards: int, steps: Collection[str]) -> str:
    """Return what a state, in which some steps are possible, breaks. Empty if nothing."""
    given = [pod.card for pod in pods if pod.holds_card]
    if len(set(given)) < len(given):
        return "a card is given twice"
    deciding = [replica for replica, phase in enumerate(phases) if phase == "deciding"]
    if any(pod.views[each].card not in (pod.card, NONE) for pod in pods if pod.holds_card for each in deciding):
        return "a bound pod has another card than was decided"
    fits = len(given) < cards and any(pod.stored == "waiting" for pod in pods)
    return "a pod that fits waits without end" if fits and NOT_AWAITED.issuperset(steps) else ""


PLANTED = {
    "no version in the Binding": Rules(demands_version=False),
    "two leaders": Rules(one_leader=False),
    "no version changed when a leader starts": Rules(ends_earlier_bindings=False),
    "a leader starts with reservations of its earlier lead": Rules(settles_at_start=False),
    "a leader starts without reading the pods": Rules(reads_pods_at_start=False),
    "settled at a stale read": Rules(changes_version=False),
    "a Binding without a response counts as failed": Rules(settles_without_response=False),
    "a refused Binding that was copied counts as failed": Rules(settles_copies=False),
    "a settled reservation is kept": Rules(cancels_what_is_settled=False),
    "cards released when a pod is deleted, before it is gone": Rules(holds_until_gone=False),
}
