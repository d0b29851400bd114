"""The last refusal of each waiting pod, with the numbers card by card."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from cachetools import LRUCache

MOST_PODS = 1024
MOST_NODES = 16
"""Nodes whose numbers are kept for one pod; all nodes are counted by reason."""


@dataclass(frozen=True, slots=True)
class PodRefusal:
    """The last filter of a pod that no node had room for.

    pod                 ``namespace/name``
    time                seconds since the epoch
    kind                the most frequent kind of the reasons, as in `Refusal`
    reasons             how many nodes gave each sentence
    details             for some of the nodes, a sentence for each card
    is_final            whether only a change of the pod can help, none of the cluster
    only_seen_by_cards  whether a node has enough in sum, so that only bookings by card show why it has no room
    """

    pod: str
    time: float
    kind: str
    reasons: Mapping[str, int]
    details: Mapping[str, tuple[str, ...]]
    is_final: bool = False
    only_seen_by_cards: bool = False

    def summary(self) -> str:
        """Return one line for an event: the reasons, most frequent first, then the numbers that are known."""
        counted = Counter(self.reasons).most_common()
        reasons = "; ".join(f"{count} {'node' if count == 1 else 'nodes'}: {reason}" for reason, count in counted)
        numbers = " | ".join(f"{node}: {', '.join(cards)}" for node, cards in self.details.items() if cards)
        return f"{reasons}. {numbers}" if numbers else reasons


class Refusals:
    """The last refusal of each pod, by UID, until it is bound or gone. If there are too many, the oldest go first."""

    def __init__(self) -> None:
        self._by_uid: LRUCache[str, PodRefusal] = LRUCache(MOST_PODS)

    def keep(self, uid: str, refusal: PodRefusal) -> None:
        self._by_uid[uid] = refusal

    def drop(self, uid: str) -> None:
        self._by_uid.pop(uid, None)

    def __iter__(self) -> Iterator[tuple[str, PodRefusal]]:
        return iter(list(self._by_uid.items()))

    def __len__(self) -> int:
        return len(self._by_uid)
