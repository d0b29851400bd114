"""How many GPU pods wait, for how long and why."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime

from gas.extender.decider import PODS_A_TURN, Decider
from gas.extender.verdicts import Turns

NOT_REFUSED = "not-refused"


@dataclass(frozen=True, slots=True)
class Wait:
    """Pods of one namespace that wait for one reason.

    since  when the oldest of them was created, in seconds since the epoch; infinite if that cannot be read
    """

    pods: int
    since: float


Waits = Mapping[tuple[str, str], Wait]
"""By namespace and kind of reason; NOT_REFUSED for pods of which no refusal is remembered."""


def waits(decider: Decider) -> Turns[Waits]:
    """Return the pods without a node by namespace and reason."""
    kinds = {uid: refusal.kind for uid, refusal in decider.refusals}
    counts: dict[tuple[str, str], int] = {}
    oldest: dict[tuple[str, str], str] = {}
    for at, (uid, pod) in enumerate(list(decider.pods.waiting.items()), start=1):
        place = pod.metadata.namespace or "default", kinds.get(uid, NOT_REFUSED)
        counts[place] = counts.get(place, 0) + 1
        if created := pod.metadata.creation_timestamp:
            oldest[place] = min(oldest.get(place, created), created)  # times in UTC sort as texts
        if at % PODS_A_TURN == 0:
            yield
    return {place: Wait(pods, _seconds(oldest.get(place, ""))) for place, pods in counts.items()}


def _seconds(moment: str) -> float:
    with suppress(ValueError):
        return datetime.fromisoformat(moment).timestamp()
    return float("inf")
