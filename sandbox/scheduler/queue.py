"""Order the pods to try: new pods at once, refused ones after a change and after their backoff."""

from collections.abc import Collection
from dataclasses import dataclass, field


@dataclass(slots=True)
class _Waiting:
    backoff: float = 0.0
    not_before: float = 0.0
    parked: bool = False
    parked_at: float = 0.0


@dataclass(slots=True, kw_only=True)
class SchedulingQueue:
    """Pods without a node, by UID, in order of arrival. Times are seconds of any clock, given by the caller.

        new --refuse--> parked --wake, or after `forgotten` seconds--> due, once its backoff is over
        new --fail--> due, once its backoff is over

    The backoff is ``first`` seconds after the first attempt and doubles up to ``longest``. A parked pod is tried again
    after ``forgotten`` seconds even if nothing has changed.
    """

    first: float = 1
    longest: float = 10
    forgotten: float = 300
    wakes: int = 0  # number of changes so far: read it before an attempt and pass it to `refuse` afterwards
    _waiting: dict[str, _Waiting] = field(default_factory=dict)

    def add(self, uid: str) -> None:
        self._waiting.setdefault(uid, _Waiting())

    def remove(self, uid: str) -> None:
        self._waiting.pop(uid, None)

    def wake(self) -> None:
        """Note a change in the cluster that may free capacity."""
        self.wakes += 1
        for waiting in self._waiting.values():
            waiting.parked = False

    def refuse(self, uid: str, now: float, wakes: int) -> None:
        """Park a pod that fits no node, unless something has changed since ``wakes`` was read."""
        if (waiting := self._back_off(uid, now)) is not None:
            waiting.parked = wakes == self.wakes
            waiting.parked_at = now

    def park(self, uid: str, now: float) -> None:
        """Park a pod that was not tried, without a backoff."""
        if (waiting := self._waiting.get(uid)) is not None:
            waiting.parked, waiting.parked_at = True, now

    def may_try(self, uids: Collection[str], now: float) -> bool:
        """Return whether the backoff of all these pods is over; until then, let all wait for the last one."""
        waiting = [each for uid in uids if (each := self._waiting.get(uid)) is not None]
        latest = max((each.not_before for each in waiting), default=now)
        for each in waiting if latest > now else ():
            each.not_before = latest
        return latest <= now

    def fail(self, uid: str, now: float) -> None:
        """Try a pod again after its backoff: the attempt failed for a reason other than capacity."""
        if (waiting := self._back_off(uid, now)) is not None:
            waiting.parked = False

    def due(self, now: float) -> str | None:
        return next((uid for uid in self._waiting if self._turn(self._waiting[uid]) <= now), None)

    def next_turn(self) -> float | None:
        return min((self._turn(waiting) for waiting in self._waiting.values()), default=None)

    def _turn(self, waiting: _Waiting) -> float:
        return waiting.parked_at + self.forgotten if waiting.parked else waiting.not_before

    def _back_off(self, uid: str, now: float) -> _Waiting | None:
        if (waiting := self._waiting.get(uid)) is None:
            return None
        waiting.backoff = min(2 * waiting.backoff or self.first, self.longest)
        waiting.not_before = now + waiting.backoff
        return waiting
