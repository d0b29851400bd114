"""Store objects by key, with one version counter and a window of history: the part of etcd and of the watch cache."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from gas.values.errors import GasError

Value = Mapping[str, Any]  # An object as in JSON. A stored value is never changed: a new version is a new mapping.


class Compacted(GasError):
    """The requested version is older than the stored history."""

    def __init__(self, asked: int, oldest: int) -> None:
        super().__init__(f"version {asked} is no longer available; the history begins at version {oldest}")
        self.asked = asked
        self.oldest = oldest


@dataclass(frozen=True, slots=True)
class Stored:
    """One version of one object. ``key`` is ``namespace/name``, or the name alone; ``encoded`` is JSON."""

    plural: str
    key: str
    version: int
    value: Value
    encoded: bytes

    def at_version(self, version: int) -> Stored:
        return _stamped(self.plural, self.key, version, self.value)


def _stamped(plural: str, key: str, version: int, value: Value) -> Stored:
    stamped = {**value, "metadata": {**value["metadata"], "resourceVersion": str(version)}}
    return Stored(plural, key, version, stamped, msgspec.json.encode(stamped))


@dataclass(frozen=True, slots=True)
class Change:
    """One write. ``after`` has the version of the write; if ``gone``, it is the last state of a removed object."""

    before: Stored | None
    after: Stored
    gone: bool = False


class Storage:
    """Objects and their history. Not thread-safe.

    Each write takes the next version; all kinds share one counter. The last ``history`` writes are kept to serve
    watches and to restore older states. Listeners are called after each write.
    """

    def __init__(self, history: int = 10_000) -> None:
        self._objects: dict[str, dict[str, Stored]] = {}
        self._window = history
        self._changes: list[Change] = []
        self._oldest = 0
        self.version = 0
        self._listeners: list[Callable[[], None]] = []

    def get(self, plural: str, key: str) -> Stored | None:
        return self._objects.get(plural, {}).get(key)

    def put(self, plural: str, key: str, value: Value) -> Stored:
        """Create or replace an object. A value equal to the stored one writes nothing and keeps the version."""
        before = self.get(plural, key)
        if before is not None and before.value == _stamped_like(before, value):
            return before
        after = _stamped(plural, key, self.version + 1, value)
        self._objects.setdefault(plural, {})[key] = after
        self._record(Change(before, after))
        return after

    def remove(self, plural: str, key: str) -> Stored:
        """Remove an object and return its last state. Raises KeyError if there is none."""
        before = self._objects[plural].pop(key)
        after = before.at_version(self.version + 1)
        self._record(Change(before, after, gone=True))
        return after

    def objects(self, plural: str, version: int | None = None) -> list[Stored]:
        """Return all objects of a kind, sorted by key, now or as they were at ``version``. Raises Compacted."""
        state = self._objects.get(plural, {})
        if version is not None and version != self.version:
            state = dict(state)
            for change in reversed(self.changes(version)):
                if change.after.plural != plural:
                    continue
                if change.before is None:
                    del state[change.after.key]
                else:
                    state[change.after.key] = change.before
        return [state[key] for key in sorted(state)]

    def changes(self, since: int) -> list[Change]:
        """Return the writes after version ``since``, oldest first. Raises Compacted."""
        if since < self._oldest:
            raise Compacted(since, self._oldest)
        first = bisect_right(self._changes, since, key=lambda change: change.after.version)
        return self._changes[first:]

    def compact(self) -> None:
        """Drop the history, as etcd does every five minutes: older versions are Compacted from now on."""
        self._changes.clear()
        self._oldest = self.version

    def listen(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call ``listener`` after each write. Returns a function that stops this."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def _record(self, change: Change) -> None:
        self.version = change.after.version
        self._changes.append(change)
        if len(self._changes) > self._window:
            dropped = len(self._changes) - self._window
            self._oldest = self._changes[dropped - 1].after.version
            del self._changes[:dropped]
        for listener in tuple(self._listeners):
            listener()


def _stamped_like(before: Stored, value: Value) -> Value:
    return {**value, "metadata": {**value["metadata"], "resourceVersion": str(before.version)}}
