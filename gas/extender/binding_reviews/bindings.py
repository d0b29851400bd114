"""Decide which cards a Binding under review is given, and what becomes of them. No I/O; time is passed in.

The API server asks before it writes a Binding, and does not say afterwards whether it did. So cards are reserved for
the review, and are in doubt until the pod is seen bound. The API server writes the annotations of a Binding on the pod
together with the node, and takes UID and resource version of the Binding as preconditions of that write. So a Binding
that is given cards demands the version in which the pod was read. Once the pod has another version, the write can no
longer succeed, however late it comes, and the reservation can be cancelled.
"""

import enum
from collections.abc import Mapping
from dataclasses import dataclass

from cachetools import LRUCache

from gas.extender.bookings import Event, Move, SentBinding, State
from gas.extender.decider import CannotBind, Decider
from gas.extender.wire import BindingArgs
from gas.objects.stored import Pod
from gas.values.quoted import LONGEST_KEY, shown

MOST_EXPIRED = 3
EXPIRY_WINDOW = 60.0
"""Reviews of one pod that may go without a binding within the window in seconds. After that its reviews are refused
until the first of them is older: the sender of the reviews does not bind."""

MOST_EXPIRED_ON_NODE = 10
"""Reviews of all pods for one node that may go without a binding within `EXPIRY_WINDOW`. After that
its reviews are refused, so that a sender of many forged ones does not keep the cards from the extender's own binds."""

MOST_REMEMBERED = 10_000  # pods, and nodes, whose expired reviews are remembered


@dataclass(frozen=True, slots=True, kw_only=True)
class Binding:
    name: str
    namespace: str
    node: str
    uid: str  # of the pod; empty if the Binding does not demand it
    version: str  # in the same way
    annotations: Mapping[str, str]
    labels: Mapping[str, str]

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def shown(self) -> str:
        """The key for messages: a forged review may have any text as a name."""
        return shown(self.key, LONGEST_KEY)


class Source(enum.Enum):
    """Where the cards of a Binding come from."""

    CHOSEN = "chosen"  # they were chosen and booked now
    REPEATED = "repeated"  # an earlier review of this pod and node got the same
    CARRIED = "carried"  # the Binding has them already: it repeats what the extender is writing now
    DRY_RUN = "dry-run"  # they were chosen, and nothing was booked
    NONE = "none"  # the pod asks for something, but needs no cards


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """The metadata that a Binding must carry."""

    uid: str
    version: str
    annotations: Mapping[str, str]
    labels: Mapping[str, str]
    source: Source


class _Expiries:
    """The times at which reviews of a pod, or for a node, went without a Binding. ``most`` of them are tolerated."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._latest: LRUCache[str, tuple[float, ...]] = LRUCache(MOST_REMEMBERED)

    def add(self, key: str, clock: float) -> None:
        self._latest[key] = (*self._latest.get(key, ()), clock)[-self._most :]

    def wait(self, key: str, clock: float) -> float:
        """Return the seconds until a review is allowed again, 0 if one is now."""
        latest = self._latest.get(key, ())
        return max(0.0, latest[0] + EXPIRY_WINDOW - clock) if len(latest) == self._most else 0.0


class ReviewedBindings:
    """Give cards to Bindings under review, and count those that did not follow.

    A Binding that repeats the one that the extender is writing is allowed, because it may be that one.
    """

    def __init__(self, decider: Decider) -> None:
        self._decider = decider
        self._bookings = decider.bookings
        self._vocabularies = decider.options.vocabularies
        self._counted: set[str] = set()  # UIDs of pods whose review has ended and counts if no Binding follows
        self._expired = _Expiries(MOST_EXPIRED)
        self._expired_on = _Expiries(MOST_EXPIRED_ON_NODE)

    def give(self, binding: Binding, pod: Pod | None, *, now: float, clock: float, dry_run: bool = False) -> Given:
        """Reserve cards for a Binding and return what it must carry. A repeated review gets the same.

        The annotations of the Binding that a booking depends on are replaced by those of the decision; the others stay.
        Its UID and version are checked against those of the pod as it is now.

        ``pod`` is as it was read just now, None if it does not exist. Raises CannotBind, and BadNeed if its need cannot
        be read.
        """
        pod = _demanded(binding, pod)
        sent = self._bookings.sent(pod.uid)
        if sent is not None and self._repeats(binding, pod, sent):
            if not dry_run:
                self._bookings.report(pod.uid, Event.COPY)
            return self._given(binding, pod, sent.annotations, Source.CARRIED)
        if sent is not None and sent.state is State.REVIEWED:
            if sent.node != binding.node:
                raise CannotBind(
                    f"pod {binding.shown} was given cards on node {sent.node} a moment ago, "
                    "and that binding may still come; try again in a moment"
                )
            if not dry_run:
                sent.versions.add(pod.metadata.resource_version or "")
            return self._given(binding, pod, sent.annotations, Source.REPEATED)
        if not dry_run:
            self.check_patience(pod.uid, binding.key, clock=clock)
            self._check_patience_of_node(binding.node, clock=clock)
        args = BindingArgs(pod_name=binding.name, pod_namespace=binding.namespace, pod_uid=pod.uid, node=binding.node)
        choice = self._decider.reserve(args, pod, now=now, is_review=True, dry_run=dry_run)
        if dry_run:
            return self._given(binding, pod, choice, Source.DRY_RUN)
        has_cards = self._bookings.state(pod.uid) is State.REVIEWED
        return self._given(binding, pod, choice, Source.CHOSEN if has_cards else Source.NONE)

    def unchanged(self, uid: str, node: str) -> Pod | None:
        """Return the pod as the watch shows it, if a review for this node has read it in this very version."""
        pod, sent = self._decider.pods.waiting.get(uid), self._bookings.sent(uid)
        if pod is None or sent is None or not sent.is_reviewed or sent.node != node:
            return None
        return pod if pod.metadata.resource_version in sent.versions else None

    def moved(self, move: Move, node: str, *, clock: float) -> bool | None:
        """Note what became of a review for a node. Return whether it has expired, None while that is not known.

        It counts against its sender if no other client has changed the pod meanwhile.
        """
        if move.after is State.SETTLING:
            if move.before is State.REVIEWED and self.unchanged(move.uid, node) is not None:
                self._counted.add(move.uid)
            return None
        if move.after is State.REVIEWED:
            return None
        counts = move.uid in self._counted
        self._counted.discard(move.uid)
        if move.event is not Event.FREE:
            return False
        if counts:
            self._expired.add(move.uid, clock)
            self._expired_on.add(node, clock)
        return True

    def check_patience(self, uid: str, key: str, *, clock: float) -> None:
        """Raise CannotBind if too many reviews of a pod (``namespace/name``) went without a Binding lately."""
        if (wait := self._expired.wait(uid, clock)) > 0:
            raise CannotBind(
                f"pod {shown(key, LONGEST_KEY)} was given cards {MOST_EXPIRED} times within {EXPIRY_WINDOW:g} s and was"
                f" not bound; retry in {wait:.0f} s"
            )

    def _check_patience_of_node(self, node: str, *, clock: float) -> None:
        if (wait := self._expired_on.wait(node, clock)) > 0:
            raise CannotBind(
                f"cards of node {shown(node, LONGEST_KEY)} were given {MOST_EXPIRED_ON_NODE} times within"
                f" {EXPIRY_WINDOW:g} s to bindings that did not follow; retry in {wait:.0f} s"
            )

    def _repeats(self, binding: Binding, pod: Pod, sent: SentBinding) -> bool:
        """Return whether a Binding repeats what the extender is writing now.

        Cards alone are not enough, because any client can guess them. The time of the decision in nanoseconds is known
        only to clients that have seen the Binding, such as other webhooks.
        """
        if sent.state not in (State.WRITING, State.COPIED) or sent.node != binding.node:
            return False
        names = self._vocabularies.metadata | sent.annotations.keys()
        stated = {name: text for name, text in binding.annotations.items() if name in names}
        return binding.uid == pod.uid and stated == sent.annotations and names.isdisjoint(binding.labels)

    def _given(self, binding: Binding, pod: Pod, choice: Mapping[str, str], source: Source) -> Given:
        names = self._vocabularies.metadata
        others = {name: text for name, text in binding.annotations.items() if name not in names}
        return Given(
            uid=pod.uid,
            version=pod.metadata.resource_version or "",
            annotations=others | dict(choice),
            labels={name: text for name, text in binding.labels.items() if name not in names},
            source=source,
        )


def _demanded(binding: Binding, pod: Pod | None) -> Pod:
    """Return the pod if it is the one that the Binding demands and can be bound. Raises CannotBind."""
    if pod is None:
        raise CannotBind(f"pod {binding.shown} does not exist")
    if binding.uid and binding.uid != pod.uid:
        raise CannotBind(
            f"pod {binding.shown} is another pod of that name: its UID is {pod.uid},"
            f" the Binding demands {shown(binding.uid)}"
        )
    if binding.version and binding.version != pod.metadata.resource_version:
        raise CannotBind(
            f"pod {binding.shown} has changed: its resource version is {pod.metadata.resource_version}, "
            f"the Binding demands {shown(binding.version)}"
        )
    if pod.metadata.deletion_timestamp:
        raise CannotBind(f"pod {binding.shown} is being deleted")
    return pod
