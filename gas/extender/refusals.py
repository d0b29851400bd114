"""The last refusal of each waiting pod, with the numbers card by card."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from cachetools import LRUCache

MOST_PODS = 1024
MOST_NODES = 16
"""Of how many nodes the numbers are kept; all nodes are counted by reason."""


@dataclass(frozen=True, slots=True)
class PodRefusal:
    """What the filter answered last for a pod that fitted no node.

    time     seconds since the epoch
    reasons  how many nodes gave each sentence
    is_final whether no change of the cluster can help, only one of the pod
    details  for some of the nodes, a sentence for each card
    """

    pod: str
    time: float
    reasons: Mapping[str, int]
    details: Mapping[str, tuple[str, ...]]
    is_final: bool = False

    def summary(self) -> str:
        """One line for an event: the reasons, most frequent first, then the numbers as far as they go."""
        counted = Counter(self.reasons).most_common()
        reasons = "; ".join(f"{count} {'node' if count == 1 else 'nodes'}: {reason}" for reason, count in counted)
        numbers = " | ".join(f"{node}: {', '.join(cards)}" for node, cards in self.details.items() if cards)
        return f"{reasons}. {numbers}" if numbers else reasons


class Refusals:
    """Kept by pod UID until the pod is bound or gone; the oldest go first when there are too many."""

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
