"""Which pod is tried next: new ones at once, refused ones when something changed and their pause is over."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class _Waiting:
    attempts: int = 0
    not_before: float = 0.0
    parked: bool = False
    parked_at: float = 0.0


class SchedulingQueue:
    """Pods without a node, by UID, in the order they came. Times are seconds of any clock, given by the caller.

        new --refuse--> parked --wake, or after `forgotten` seconds--> due, once its pause is over
        new --fail--> due, once its pause is over

    first, longest  the pause after the first attempt; it doubles up to the longest
    forgotten       a parked pod is tried again after so long even if nothing happened
    """

    def __init__(self, *, first: float = 1, longest: float = 10, forgotten: float = 300) -> None:
        self._waiting: dict[str, _Waiting] = {}
        self._first = first
        self._longest = longest
        self._forgotten = forgotten
        self._wakes = 0

    @property
    def wakes(self) -> int:
        """How often something changed; to be read before an attempt and given to `refuse` after it."""
        return self._wakes

    def add(self, uid: str) -> None:
        self._waiting.setdefault(uid, _Waiting())

    def remove(self, uid: str) -> None:
        self._waiting.pop(uid, None)

    def wake(self) -> None:
        """Something in the cluster changed that may make room."""
        self._wakes += 1
        for waiting in self._waiting.values():
            waiting.parked = False

    def refuse(self, uid: str, now: float, wakes: int) -> None:
        """No node can take the pod. What changed during the attempt, after ``wakes`` was read, is not lost."""
        if (waiting := self._pause(uid, now)) is not None:
            waiting.parked = wakes == self._wakes
            waiting.parked_at = now

    def fail(self, uid: str, now: float) -> None:
        """The attempt broke for a reason that has nothing to do with room: try again after the pause."""
        self._pause(uid, now)

    def due(self, now: float) -> str | None:
        """The first pod whose turn it is."""
        return next((uid for uid in self._waiting if self._turn(self._waiting[uid]) <= now), None)

    def next_turn(self) -> float | None:
        """When the next pod is due; None when no pod waits."""
        return min((self._turn(waiting) for waiting in self._waiting.values()), default=None)

    def _turn(self, waiting: _Waiting) -> float:
        return waiting.parked_at + self._forgotten if waiting.parked else waiting.not_before

    def _pause(self, uid: str, now: float) -> _Waiting | None:
        if (waiting := self._waiting.get(uid)) is None:
            return None
        waiting.not_before = now + min(self._first * 2**waiting.attempts, self._longest)
        waiting.attempts += 1
        return waiting
