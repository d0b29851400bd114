"""Remember the last decisions and refusals, for people. Nothing is decided by them."""

from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from cachetools import LRUCache

MOST_DECISIONS = 1024
MOST_PENDING = 1024  # pods that were filtered and not bound yet of which the numbers are kept

MOST_ALTERNATIVES = 5
_MOST_SCORES = 16  # scores that are kept until the bind: kube-scheduler may choose a node in spite of its score


@dataclass(frozen=True, slots=True)
class Alternative:
    """Another node with room for the pod. ``score`` is None if nodes were not scored."""

    node: str
    score: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    time: float  # seconds since the epoch
    uid: str
    pod: str
    node: str
    cards: str  # as in the annotation ``gas-container-cards``; empty if there are none
    verb: str  # ``bind``, or ``review`` for a Binding of another client
    passing: int | None = None  # nodes that had room at the last filter; None if this replica did not filter the pod
    score: int | None = None  # of the node; None if it is not among the highest ones or nodes were not scored
    alternatives: tuple[Alternative, ...] = ()  # other nodes that had room, those with the highest scores first
    # of the last filter, of the last prioritize, and of this verb with its write
    milliseconds: Mapping[str, float] = field(default_factory=dict)
    error: str = ""  # why the pod was not bound; empty if it was


@dataclass(slots=True)
class _Asked:
    passing: int = 0
    nodes: Sequence[str] = ()
    scores: Sequence[tuple[str, int]] = ()
    milliseconds: dict[str, float] = field(default_factory=dict)


class Decisions:
    """The last decisions, newest first. The verbs report to it."""

    def __init__(self) -> None:
        self._made: deque[Decision] = deque(maxlen=MOST_DECISIONS)
        self._asked: LRUCache[str, _Asked] = LRUCache(MOST_PENDING)

    def filtered(self, uid: str, passing: Sequence[str], seconds: float) -> None:
        """Remember which nodes had room for a pod. A request without a UID, which no bind follows, is ignored."""
        if uid:
            first = tuple(passing[: MOST_ALTERNATIVES + 1])
            self._asked[uid] = _Asked(len(passing), first, (), {"filter": _milliseconds(seconds)})

    def scored(self, uid: str, scores: Sequence[tuple[str, int]], seconds: float) -> None:
        """Remember the scores of nodes, which are the best first."""
        if (asked := self._asked.get(uid)) is not None:
            asked.scores = scores[:_MOST_SCORES]
            asked.milliseconds["prioritize"] = _milliseconds(seconds)

    def made(
        self, uid: str, pod: str, node: str, cards: str, *, verb: str, seconds: float, now: float, error: str = ""
    ) -> None:
        """Record a decision, with the numbers of the filter and prioritize requests before it."""
        asked = self._asked.get(uid) if error else self._asked.pop(uid, None)
        known = asked if asked is not None else _Asked()
        others: list[tuple[str, int | None]] = (
            [*known.scores] if known.scores else [(name, None) for name in known.nodes]
        )
        self._made.appendleft(
            Decision(
                time=now,
                uid=uid,
                pod=pod,
                node=node,
                cards=cards,
                verb=verb,
                passing=None if asked is None else asked.passing,
                score=dict(known.scores).get(node),
                alternatives=tuple(Alternative(*each) for each in others if each[0] != node)[:MOST_ALTERNATIVES],
                milliseconds={**known.milliseconds, verb: _milliseconds(seconds)},
                error=error,
            )
        )

    def __iter__(self) -> Iterator[Decision]:
        return iter(list(self._made))


def _milliseconds(seconds: float) -> float:
    return round(seconds * 1000, 3)


MOST_PODS = 1024  # pods whose last refusal is remembered
MOST_NODES = 16  # nodes whose numbers are kept for one pod; all nodes are counted by reason


@dataclass(frozen=True, slots=True)
class PodRefusal:
    """The last filter of a pod that no node had room for."""

    pod: str
    time: float  # seconds since the epoch
    kind: str  # the most frequent kind of refusal, see `Refusal`
    reasons: Mapping[str, int]  # how many nodes gave each sentence
    details: Mapping[str, tuple[str, ...]]  # for some of the nodes, a sentence for each card
    is_final: bool = False  # whether only a change of the pod can help, none of the cluster
    # whether some node has enough in sum, so that only bookings by card explain the refusal
    only_seen_by_cards: bool = False

    def summary(self) -> str:
        """Return one line for an event: the reasons, most frequent first, then the numbers that are known."""
        counted = Counter(self.reasons).most_common()
        reasons = "; ".join(f"{count} {'node' if count == 1 else 'nodes'}: {reason}" for reason, count in counted)
        numbers = " | ".join(f"{node}: {', '.join(cards)}" for node, cards in self.details.items() if cards)
        return f"{reasons}. {numbers}" if numbers else reasons
