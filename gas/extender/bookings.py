"""The life of a pod's cards: one table of states and events, in front of the ledger. No I/O.

Watches, binds and reviews report events; no other code reserves, holds or releases a pod's cards. The rule of this
file: what an event does is written in `TABLE`; code that reads pods or sends requests only reports what it has seen.

                    .--------------- end of the nomination ---------------.
                    v                                                      |
    UNKNOWN --nominated--> PROMISED --------------------------------------'
       | `-------bind or review-------.  |
       |                              v  v
       |   bind: WRITING --copy--> COPIED          review: REVIEWED
       |            |  `--no response--.  | refused            | end of the review
       |     stored |                  v  v                    |
       |            v               SETTLING <-----------------'
       |         WRITTEN --vanished----^ |
       |                                 `--free--> UNKNOWN: its cards are free
       `--bound (after a restart, or by others)--> HELD <--bound-- any of these
                                                    `--gone--> UNKNOWN

A pod in WRITING to WRITTEN has reserved cards: they are decided, and its object does not show them yet. The first four
differ in which Bindings may still be stored, and so in what may be concluded. A pod whose booking ends is promised
cards again as long as its nomination stands.

Who reports: `gas.extender.bind` sends Bindings, `gas.extender.binding_reviews` reviews those of other clients,
`gas.extender.late_bindings` finds out what became of a pod in SETTLING, and `gas.extender.pods` reads what pods are
nominated for and hold. `gas.extender.promises` chooses which cards are promised.
"""

import enum
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from gas.ledger.ledger import Ledger
from gas.ledger.ledger import State as Booked
from gas.placement.choice import Footprint


class State(enum.Enum):
    """The state of a pod's cards, as far as this replica knows."""

    UNKNOWN = "unknown"  # nothing is booked, and no node is nominated
    PROMISED = "promised"  # nothing is booked; the pod is nominated for a node
    WRITING = "writing"  # the extender's own Binding is being written
    COPIED = "copied"  # the same, and another client may store a Binding that repeats it
    REVIEWED = "reviewed"  # another client's Binding was given the cards, and may be stored
    SETTLING = "settling"  # a Binding may have been stored: the pod is being read
    WRITTEN = "written"  # the extender's own Binding is stored; the watch has not shown it
    HELD = "held"  # the pod's object shows it bound with these cards


class Event(enum.Enum):
    NOMINATED = "nominated"  # kube-scheduler has nominated the pod for a node, before its volumes or victims are ready
    NOT_NOMINATED = "not nominated"  # that ended, or is for another node now
    BIND = "bind"  # cards are chosen, and the extender sends a Binding with them
    REVIEW = "review"  # cards are chosen for another client's Binding
    COPY = "copy"  # another client's Binding repeats the one that is being written
    STORED = "stored"  # the API server has stored the extender's Binding
    REFUSED = "refused"  # the API server has refused it
    NO_RESPONSE = "no response"  # it may have been stored, or not
    END_REVIEW = "end review"  # the reviewed Binding is late, or its cards are asked for
    VANISHED = "vanished"  # a complete list lacks the pod, which may be newer than the list
    FREE = "free"  # the pod is not bound, and no earlier Binding can bind it any more
    BOUND = "bound"  # the pod is shown bound to the node of its booking, or to any if it has none
    ELSEWHERE = "elsewhere"  # the pod is shown bound to another node than that of its booking
    GONE = "gone"  # the pod is gone or has ended


_ENDS = {Event.BOUND: State.HELD, Event.ELSEWHERE: State.UNKNOWN, Event.GONE: State.UNKNOWN}
_BEGINS = {Event.BIND: State.WRITING, Event.REVIEW: State.REVIEWED, Event.BOUND: State.HELD}
_MAY_BE_STORED = {Event.NO_RESPONSE: State.SETTLING, Event.VANISHED: State.SETTLING}

TABLE: Mapping[State, Mapping[Event, State]] = {
    State.UNKNOWN: {Event.NOMINATED: State.PROMISED, **_BEGINS},
    State.PROMISED: {Event.NOT_NOMINATED: State.UNKNOWN, **_BEGINS, **_ENDS},
    State.WRITING: {
        Event.COPY: State.COPIED,
        Event.STORED: State.WRITTEN,
        Event.REFUSED: State.UNKNOWN,
        **_MAY_BE_STORED,
        **_ENDS,
    },
    State.COPIED: {Event.STORED: State.WRITTEN, Event.REFUSED: State.SETTLING, **_MAY_BE_STORED, **_ENDS},
    State.REVIEWED: {Event.END_REVIEW: State.SETTLING, Event.VANISHED: State.SETTLING, **_ENDS},
    State.SETTLING: {Event.STORED: State.WRITTEN, Event.FREE: State.UNKNOWN, **_ENDS},
    State.WRITTEN: {Event.VANISHED: State.SETTLING, **_ENDS},
    State.HELD: _ENDS,
}
"""What an event does in a state. An event that a state does not name changes nothing, because each may come twice, late
or after another one. Only BIND and REVIEW must not come in a state that does not name them: the pod has its cards."""

RESERVED = frozenset({State.WRITING, State.COPIED, State.REVIEWED, State.SETTLING, State.WRITTEN})
MAY_BE_STORED = RESERVED - {State.WRITTEN}  # the states in which a Binding is on its way that is not known to be stored


class Move(NamedTuple):
    """An event that a pod's cards went through, whether it changed their state or not."""

    uid: str
    pod: str  # ``namespace/name``, empty for a pod that has no booking
    event: Event
    before: State
    after: State


@dataclass(slots=True)
class SentBinding:
    """The Binding by which a pod in WRITING, COPIED, REVIEWED or SETTLING may be bound.

    annotations  those of the decision, which it carries
    versions     of the pod, which reviewed Bindings demand that may still come
    """

    node: str
    annotations: Mapping[str, str] = field(default_factory=dict)
    versions: set[str] = field(default_factory=set)
    is_reviewed: bool = False
    state: State = State.SETTLING


class Bookings:
    """The state of every pod's cards. The ledger has the cards themselves, also those held by something else than pods.

    on_move   is called with every event
    on_freed  is called with a node on which cards may have become free
    """

    def __init__(
        self,
        ledger: Ledger,
        *,
        on_move: Callable[[Move], None] = lambda _move: None,
        on_freed: Callable[[str], None] = lambda _node: None,
    ) -> None:
        self._ledger = ledger
        self._sent: dict[str, SentBinding] = {}
        self._nodes: dict[str, str] = {}  # of the nominated pods, by UID
        self._nominated: dict[str, dict[str, None]] = {}  # by node, the nominated pods in the order in which they came
        self._on_move = on_move
        self._on_freed = on_freed

    def state(self, uid: str) -> State:
        if (sent := self._sent.get(uid)) is not None:
            return sent.state
        if (booked := self._ledger.booking(uid)) is not None:
            return State.HELD if booked.state is Booked.HELD else State.WRITTEN
        return State.PROMISED if uid in self._nodes else State.UNKNOWN

    def sent(self, uid: str) -> SentBinding | None:
        """Return the Binding that may still be stored for a pod; None if none may."""
        return self._sent.get(uid)

    def in_doubt(self) -> dict[str, str]:
        """Return the nodes of reviewed Bindings that may still be stored, by UID of their pods."""
        return {uid: sent.node for uid, sent in self._sent.items() if sent.is_reviewed}

    def nominated(self, node: str) -> Collection[str]:
        """Return the UIDs of the pods that are nominated for a node, in the order in which they were."""
        return self._nominated.get(node, {}).keys()

    def is_nominated(self, uid: str) -> bool:
        return uid in self._nodes

    def nominated_nodes(self) -> Collection[str]:
        return self._nominated.keys()

    def reserve(self, uid: str, pod: str, footprint: Footprint, sent: SentBinding) -> None:
        """Book cards for a pod whose Binding is sent or under review. Raises AlreadyBooked."""
        event, before = Event.REVIEW if sent.is_reviewed else Event.BIND, self.state(uid)
        self._ledger.reserve(uid, pod, sent.node, footprint)
        sent.state = TABLE[before][event]
        self._sent[uid] = sent
        self._on_move(Move(uid, pod, event, before, sent.state))

    def hold(self, uid: str, pod: str, node: str, footprint: Footprint) -> None:
        """Book the cards of a bound pod, in place of those that are booked for it."""
        self.nominate(uid, pod, "")
        before, booked = self.state(uid), self._ledger.booking(uid)
        self._sent.pop(uid, None)
        self._ledger.hold(uid, pod, node, footprint)
        self._on_move(Move(uid, pod, Event.BOUND, before, TABLE[before][Event.BOUND]))
        if booked is not None and booked.footprint != footprint:
            self._on_freed(node)

    def report(self, uid: str, event: Event, pod: str = "") -> State:
        """Let an event happen to a pod (``namespace/name``), and return the state before it.

        With BOUND the pod holds the cards that are reserved for it.
        """
        if event in _ENDS:
            self.nominate(uid, pod, "")
        before, booked = self.state(uid), self._ledger.booking(uid)
        after = TABLE[before].get(event, before)
        if after in MAY_BE_STORED:
            sent = self._sent.setdefault(uid, SentBinding(booked.node if booked is not None else ""))
            sent.state = after
        else:
            self._sent.pop(uid, None)
        if event is Event.BOUND:
            self._ledger.confirm(uid)
        elif after is State.UNKNOWN:
            self._ledger.release(uid)
        self._on_move(Move(uid, booked.pod if booked is not None else pod, event, before, self.state(uid)))
        if booked is not None and after is State.UNKNOWN:
            self._on_freed(booked.node)
        return before

    def nominate(self, uid: str, pod: str, node: str) -> None:
        """Note the node that a pod (``namespace/name``) is nominated for; the empty text if it is for none."""
        old = self._nodes.get(uid, "")
        if node == old:
            return
        before = self.state(uid)
        if old:
            del self._nodes[uid], self._nominated[old][uid]
            if not self._nominated[old]:
                del self._nominated[old]
        if node:
            self._nodes[uid] = node
            self._nominated.setdefault(node, {})[uid] = None
        event = Event.NOMINATED if node else Event.NOT_NOMINATED
        self._on_move(Move(uid, pod, event, before, self.state(uid)))
        if old:
            self._on_freed(old)
