"""The model: what replicas, API server and users may do about a pod, and the laws.

What a replica knows of a pod's cards is a state of `gas.extender.bookings`, and what an event does to it is read from
the product's own table. The model adds who reports which event when, and what is stored meanwhile.

Each node has one card, which one pod fills. A step is one atomic action. Requests may be stored late or never, and
responses may be lost. So a request that waits for its turn, is sent again or is kept by a webhook needs no step of its
own. A version of a pod is the present one or an older one, no more. Clocks are not modelled: a leader stops before its
Lease expires, and the API server lets versions be changed. Nominations are not modelled either: they change who gets a
card, and no booking.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from gas.extender.bookings import MAY_BE_STORED, RESERVED, TABLE, Event, State

NONE = -1  # no card, or no replica

STEPS = {
    "bind": "gas.extender.bind.Binder._bind_version",
    "refused": "gas.extender.bind.Binder._bind_version",
    "no response": "gas.extender.bind.Binder._bind_version",
    "review": "gas.extender.binding_reviews.bindings.ReviewedBindings.give",
    "copy": "gas.extender.binding_reviews.bindings.ReviewedBindings._repeats",
    "end review": "gas.extender.binding_reviews.reviews.BindReviews._end",
    "change version": "gas.extender.late_bindings.settled_pod",
    "settle": "gas.extender.late_bindings.Settler._settle",
    "watch": "gas.extender.pods.Pods.changed",
    "old list": "gas.extender.pods.Pods.complete",
    "elect": "gas.cluster.lease.LeaderElection._take",
    "end earlier bindings": "gas.extender.late_bindings.end_earlier_bindings",
    "read pods": "gas.extender.readiness.read_bound_pods",
    "lose the lead": "gas.extender.readiness.Readiness.chosen",
    "restart": "gas.extender.assembly.Extender.run",
    "store": "gas.cluster.objects.bind_pod",
    "delete": "gas.extender.pods.Pods.deleted",
}
"""The code that takes each step, or whose request or watch event it is."""

# steps of users, and faults
NOT_AWAITED = frozenset({"review", "copy", "old list", "lose the lead", "restart", "delete"})

Table = Mapping[State, Mapping[Event, State]]


class View(NamedTuple):
    """A replica's knowledge of a pod: the state of its cards, and which card.

    seen  how the pod was seen last, where it matters: in UNKNOWN unseen, waiting, stale (waiting in an older version)
          or gone; in SETTLING changed, once no earlier Binding can bind it any more
    """

    state: State = State.UNKNOWN
    card: int = NONE
    seen: str = "unseen"


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

    def seen(self, replica: int, view: View, *, waits: bool = True) -> Pod:
        """Replace the view of a replica. A response to its Binding matters if it ``waits``, and in a few states."""
        views = (*self.views[:replica], view, *self.views[replica + 1 :])
        waits = waits and view.state in (State.WRITING, State.COPIED, State.SETTLING)
        sent = (each if waits or each.sender != replica else each._replace(sender=NONE) for each in self.bindings)
        return self._replace(views=views)._with(sent)

    def sent(self, sender: int, card: int, *, is_current: bool = True) -> Pod:
        return self._with((*self.bindings, Binding(sender, card, is_current)))

    def changed(self) -> Pod:
        views = tuple(each._replace(seen="stale") if each.seen == "waiting" else each for each in self.views)
        return self._replace(views=views)._with(each._replace(is_current=False) for each in self.bindings)

    def _with(self, bindings: Iterable[Binding]) -> Pod:
        return self._replace(bindings=tuple(sorted(set(bindings))))


Steps = Iterator[tuple[str, Pod]]


@dataclass(frozen=True, kw_only=True)
class Rules:
    """The rules of the product. Each that is False is a fault, and so is a table with other rows."""

    demands_version: bool = True
    one_leader: bool = True
    ends_earlier_bindings: bool = True
    settles_at_start: bool = True
    reads_pods_at_start: bool = True
    changes_version: bool = True
    holds_until_gone: bool = True
    table: Table = field(default_factory=lambda: TABLE)  # what an event does in a state

    def can_store(self, pod: Pod, binding: Binding) -> bool:
        return pod.stored == "waiting" and (binding.is_current or not self.demands_version)

    def after(self, view: View, event: Event, *, card: int | None = None, seen: str = "") -> View:
        """Return a view after an event. It keeps its card, if it has one still, unless ``card`` is another one."""
        state = self.table[view.state].get(event, view.state)
        if state is State.UNKNOWN:
            return View(seen=seen)
        return View(state, view.card if card is None else card, "")

    def read(self, pod: Pod, view: View) -> View:
        """Return a view after the pod is read, or shown by a watch."""
        if pod.stored == "waiting":
            return View(seen="waiting") if view.state is State.UNKNOWN else view
        if pod.stored == "bound" or (pod.stored == "ending" and self.holds_until_gone):
            if view.card not in (NONE, pod.card):
                view = self.after(view, Event.ELSEWHERE)
            return self.after(view, Event.BOUND, card=pod.card)
        return self.after(view, Event.GONE, seen="gone")

    def decisions(self, pod: Pod, replica: int, free: Iterable[int]) -> Steps:
        """Yield what the replica that decides, whose ledger has some cards free, may do about a pod."""
        view = pod.views[replica]
        if view.seen in ("waiting", "stale"):
            for card in free:
                writing = pod.seen(replica, self.after(view, Event.BIND, card=card))
                yield "bind", writing.sent(replica, card, is_current=view.seen == "waiting")
        if pod.stored == "waiting":
            if view.state is State.REVIEWED:
                yield "review", pod.sent(NONE, view.card)
            for card in free if view.state is State.UNKNOWN else ():
                yield "review", pod.seen(replica, self.after(view, Event.REVIEW, card=card)).sent(NONE, card)
            if view.state in (State.WRITING, State.COPIED):
                yield "copy", pod.seen(replica, self.after(view, Event.COPY)).sent(NONE, view.card)
        if view.state not in RESERVED and (read := self.read(pod, view)) != view:
            yield "watch", pod.seen(replica, read)

    def outcomes(self, pod: Pod, replica: int) -> Steps:
        """Yield how a replica, which need no longer lead, may find out what became of a Binding."""
        view = pod.views[replica]
        if view.state in RESERVED:
            if (read := self.read(pod, view)) != view:
                yield "watch", pod.seen(replica, read)
            yield "old list", pod.seen(replica, self.after(view, Event.VANISHED, seen="stale"))
        if view.state is State.REVIEWED:
            yield "end review", pod.seen(replica, self.after(view, Event.END_REVIEW, seen="stale"))
        if view.state in (State.WRITING, State.COPIED):
            yield "no response", pod.seen(replica, self.after(view, Event.NO_RESPONSE, seen="stale"), waits=False)
            if any(each.sender == replica and not self.can_store(pod, each) for each in pod.bindings):
                yield "refused", pod.seen(replica, self.after(view, Event.REFUSED, seen="stale"), waits=False)
        if view.state is State.SETTLING and pod.stored == "waiting" and view.seen != "changed":
            after = pod.seen(replica, view._replace(seen="changed"))
            yield "change version", after.changed() if self.changes_version else after
        elif view.state is State.SETTLING:
            is_free = pod.stored == "waiting"
            settled = self.after(view, Event.FREE, seen="waiting") if is_free else self.read(pod, view)
            yield "settle", pod.seen(replica, settled)

    def of_others(self, pod: Pod) -> Steps:
        """Yield what the API server and users may do."""
        for binding in pod.bindings:
            if self.can_store(pod, binding):
                left = tuple(each for each in pod.bindings if each != binding)
                bound = pod._replace(stored="bound", card=binding.card, bindings=left).changed()
                yield "store", bound  # without a response
                if (sender := binding.sender) != NONE:
                    yield "store", bound.seen(sender, self.after(pod.views[sender], Event.STORED), waits=False)
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
                if not self.settles_at_start or not any(view.state in MAY_BE_STORED for view in views):
                    yield "read pods", "deciding"
        if phases[replica] != "follower":
            yield "lose the lead", "follower"
        yield "restart", "follower"

    def follow_lead(self, step: str, pod: Pod, replica: int) -> Pod:
        """Return a pod after a step of `of_lead`. A follower's reservations matter, the rest is read again."""
        view = pod.views[replica]
        is_reserved = view.state in RESERVED
        if step == "end earlier bindings" and pod.stored == "waiting" and self.ends_earlier_bindings:
            return pod.changed()
        if step == "read pods" and not (is_reserved and pod.stored == "waiting"):
            return pod.seen(replica, self.read(pod, view) if self.reads_pods_at_start else View(seen="stale"))
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


def _table(event: Event, after: State, *states: State) -> Rules:
    """Return the rules of a table in which an event does something else in some states."""
    return Rules(table={**TABLE, **{state: {**TABLE[state], event: after} for state in states}})


PLANTED = {
    "no version in the Binding": Rules(demands_version=False),
    "two leaders": Rules(one_leader=False),
    "no version changed when a leader starts": Rules(ends_earlier_bindings=False),
    "a leader starts with reservations of its earlier lead": Rules(settles_at_start=False),
    "a leader starts without reading the pods": Rules(reads_pods_at_start=False),
    "settled at a stale read": Rules(changes_version=False),
    "cards released when a pod is deleted, before it is gone": Rules(holds_until_gone=False),
    "a Binding without a response counts as failed": _table(
        Event.NO_RESPONSE, State.UNKNOWN, State.WRITING, State.COPIED
    ),
    "a refused Binding that was copied counts as failed": _table(Event.REFUSED, State.UNKNOWN, State.COPIED),
    "a copy of a Binding is not noted": _table(Event.COPY, State.WRITING, State.WRITING),
    "cards are free when their review ends": _table(Event.END_REVIEW, State.UNKNOWN, State.REVIEWED),
    "a pod that an old list lacks is gone": _table(Event.VANISHED, State.UNKNOWN, *RESERVED),
    "a settled reservation is kept": _table(Event.FREE, State.WRITTEN, State.SETTLING),
    "a pod that is bound before its response is free": _table(Event.BOUND, State.UNKNOWN, State.WRITING),
}
