"""The one sentence in which kube-scheduler tells why a pod waits: equal reasons of all nodes counted together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

_LONGEST_NOTE = 1024
_ELLIPSIS = " ..."


def waiting_sentence(nodes: int, reasons: Iterable[str]) -> str:
    """``0/3 nodes are available: 1 Insufficient gpu.intel.com/i915, 2 no card has ….``

    reasons  of all nodes, one or more a node
    """
    counted = sorted(f"{count} {reason}" for reason, count in Counter(reasons).items())
    if not counted:
        return f"0/{nodes} nodes are available."
    return f"0/{nodes} nodes are available: {', '.join(counted)}."


def event_note(sentence: str) -> str:
    """The sentence as it fits into an event."""
    if len(sentence) <= _LONGEST_NOTE:
        return sentence
    return sentence[: _LONGEST_NOTE - len(_ELLIPSIS)] + _ELLIPSIS
