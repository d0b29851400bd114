"""Watches: the stream of changes after a version, as JSON lines."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass

import msgspec

from gas.sandbox.failure import ApiFailure, expired_watch
from gas.sandbox.kinds import Kind
from gas.sandbox.selectors import Selection
from gas.sandbox.storage import Change, Compacted, Storage, Stored


@dataclass(frozen=True, slots=True)
class WatchOptions:
    """What a watch request asks for.

    version   start after this one; "" or "0": first an ADDED for all there is
    seconds   end of the watch; the real server chooses half an hour to an hour where the client does not say
    """

    version: str = ""
    bookmarks: bool = False
    seconds: float = 2700


class _Bell:
    """Wakes one watch after any write, and for good when the server stops."""

    def __init__(self, storage: Storage, stopping: asyncio.Event) -> None:
        self._rung = asyncio.Event()
        self._unlisten = storage.listen(self._rung.set)
        self._stopping = stopping

    async def rung(self, seconds: float) -> bool:
        """Wait for a write, at most so long. False when the server stops."""
        waits = [asyncio.ensure_future(self._rung.wait()), asyncio.ensure_future(self._stopping.wait())]
        try:
            await asyncio.wait(waits, timeout=max(seconds, 0), return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        self._rung.clear()
        return not self._stopping.is_set()

    def close(self) -> None:
        self._unlisten()


async def watch_lines(
    storage: Storage,
    kind: Kind,
    selection: Selection,
    options: WatchOptions,
    *,
    stopping: asyncio.Event,
    bookmark_seconds: float,
) -> AsyncIterator[bytes]:
    """The lines of one watch until its time is over, the server stops, or the history it needs is gone (410).

    Begins with an empty piece, which makes the server send the head of the answer at once.
    """
    clock = asyncio.get_running_loop().time
    deadline = clock() + options.seconds
    bell = _Bell(storage, stopping)
    try:
        yield b""
        sent = int(options.version or 0)
        if sent == 0:
            sent = storage.version
            for stored in storage.objects(kind.plural):
                if stored.value in selection:
                    yield _line("ADDED", kind, stored)
        seen = sent
        bookmark_at = _next_bookmark(clock(), deadline, bookmark_seconds)
        while True:
            try:
                changes = storage.changes(seen)
            except Compacted as gone:
                yield _failure_line(expired_watch(gone.asked, gone.oldest))
                return
            for change in changes:
                for word, stored in _event(change, kind, selection):
                    sent = stored.version
                    yield _line(word, kind, stored)
            seen = max(seen, storage.version)
            if options.bookmarks and clock() >= bookmark_at:
                bookmark_at = clock() + bookmark_seconds
                if seen > sent:
                    sent = seen
                    yield _bookmark_line(kind, seen)
            if clock() >= deadline:
                return
            if not await bell.rung(min(deadline, bookmark_at) - clock()):
                return
    finally:
        bell.close()


def _next_bookmark(now: float, deadline: float, every: float) -> float:
    """One in good time before the watch ends, so that the client resumes from there, and others at intervals."""
    before_end = deadline - 2
    return min(now + every, before_end) if before_end > now else now + every


def _event(change: Change, kind: Kind, selection: Selection) -> Iterator[tuple[str, Stored]]:
    """What a change is to somebody who sees only a selection: an object may enter it and fall out of it."""
    if change.after.plural != kind.plural:
        return
    was_in = change.before is not None and change.before.value in selection
    is_in = not change.gone and change.after.value in selection
    if was_in and is_in:
        yield "MODIFIED", change.after
    elif is_in:
        yield "ADDED", change.after
    elif was_in and change.gone:
        yield "DELETED", change.after
    elif was_in and change.before is not None:
        yield "DELETED", change.before.at_version(change.after.version)


def typed_json(kind: Kind, stored: Stored) -> bytes:
    """The JSON of one object with its kind and version, as single objects and events carry it."""
    return b'{"kind":"%b","apiVersion":"%b",%b' % (kind.name.encode(), kind.api_version.encode(), stored.encoded[1:])


def _line(word: str, kind: Kind, stored: Stored) -> bytes:
    return b'{"type":"%b","object":%b}\n' % (word.encode(), typed_json(kind, stored))


def _bookmark_line(kind: Kind, version: int) -> bytes:
    mark = {"kind": kind.name, "apiVersion": kind.api_version, "metadata": {"resourceVersion": str(version)}}
    return b'{"type":"BOOKMARK","object":%b}\n' % msgspec.json.encode(mark)


def _failure_line(failure: ApiFailure) -> bytes:
    return b'{"type":"ERROR","object":%b}\n' % msgspec.json.encode(failure.status)
