"""Serve lists and watches: selectors, pages of a list, and the stream of changes after a version."""

import asyncio
import base64
import contextlib
import re
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec

from sandbox.api.failure import ApiFailure, bad_request, expired_page
from sandbox.api.kinds import Kind
from sandbox.api.storage import Change, Compacted, Storage, Stored, Value

Requirement = Callable[[Value], bool]

_EQUALITY = re.compile(r"(?P<key>[^\s!=(),]+)\s*(?P<op>==?|!=)\s*(?P<value>[^\s!=(),]*)")


@dataclass(frozen=True, slots=True)
class Selection:
    """The objects that a list or watch is about. Without a namespace: those of all namespaces."""

    namespace: str | None = None
    requirements: tuple[Requirement, ...] = ()

    def has(self, value: Value) -> bool:
        if self.namespace is not None and value["metadata"].get("namespace") != self.namespace:
            return False
        return all(requirement(value) for requirement in self.requirements)


def parse_selection(kind: Kind, namespace: str | None, labels: str, fields: str) -> Selection:
    """Parse ``labelSelector`` and ``fieldSelector``, whose parts each compare with a text. Raises ApiFailure (400)."""
    return Selection(
        namespace,
        (
            *(_requirement(part, lambda key: ["metadata", "labels", key]) for part in labels.split(",") if part),
            *(_requirement(part, partial(_field_path, kind)) for part in fields.split(",") if part),
        ),
    )


def _requirement(text: str, path_of: Callable[[str], list[str]]) -> Requirement:
    if (match := _EQUALITY.fullmatch(text.strip())) is None:
        raise bad_request(f"unable to parse requirement: {text}")
    path, wanted, negated = path_of(match["key"]), match["value"], match["op"] == "!="
    return lambda value: (_field(value, path) == wanted) is not negated


def _field_path(kind: Kind, field: str) -> list[str]:
    if field not in kind.fields:
        raise bad_request(f"field label not supported: {field}")
    return field.split(".")


def _field(value: Value, path: list[str]) -> str:
    found: Any = value
    for name in path:
        found = found.get(name) if isinstance(found, dict) else None
    if isinstance(found, bool):
        return str(found).lower()
    return str(found) if found is not None else ""


_PRESENT = -1  # the version in a token that continues from the state at that time


def list_page(storage: Storage, kind: Kind, selection: Selection, limit: int, token: str) -> bytes:
    """Return the JSON of one page, which shows the state at the version of the first page.

    limit  maximum number of items on a page; 0 for no limit
    token  the ``continue`` token of the previous page; empty for the first

    Raises ApiFailure: 400 for a bad token, 410 if the history it needs is gone.
    """
    version, after_key = storage.version, ""
    if token:
        version, after_key = _read_token(token)
        if version == _PRESENT:
            version = storage.version
    try:
        state = storage.objects(kind.plural, version)
    except Compacted as gone:
        raise expired_page(_token(_PRESENT, after_key)) from gone
    found = [stored for stored in state if stored.key > after_key and selection.has(stored.value)]
    page = found[:limit] if limit else found
    metadata = {"resourceVersion": str(version)}
    if len(page) < len(found):
        metadata["continue"] = _token(version, page[-1].key)
    return _encoded(kind, metadata, page)


def _encoded(kind: Kind, metadata: dict[str, Any], page: list[Stored]) -> bytes:
    head = {"kind": f"{kind.name}List", "apiVersion": kind.api_version, "metadata": metadata}
    items = b",".join(stored.encoded for stored in page)
    return msgspec.json.encode(head)[:-1] + b',"items":[' + items + b"]}"


def _token(version: int, last_key: str) -> str:
    return base64.urlsafe_b64encode(f"{version} {last_key}".encode()).decode()


def _read_token(token: str) -> tuple[int, str]:
    try:
        version, last_key = base64.urlsafe_b64decode(token).decode().split(" ")
        return int(version), last_key
    except ValueError as error:
        raise bad_request(f"invalid continue token: continue key is not valid: {error}") from error


async def watch_lines(
    storage: Storage,
    kind: Kind,
    selection: Selection,
    version: str,  # the watch starts after it; with "" or "0" it first sends an ADDED for every existing object
    *,
    seconds: float,
    stopping: asyncio.Event,
    bookmark_seconds: float | None,  # None if the client wants no bookmarks
) -> AsyncIterator[bytes]:
    """Yield the JSON lines of one watch until its time is over, the server stops, or its history is gone (410).

    The first piece is empty: it makes the server send the response headers at once.
    """
    clock = asyncio.get_running_loop().time
    deadline = clock() + seconds
    woken = asyncio.Event()
    unlisten = storage.listen(woken.set)
    stop = asyncio.ensure_future(stopping.wait())
    stop.add_done_callback(lambda _: woken.set())
    try:
        yield b""
        sent = int(version or 0)
        if sent == 0:
            sent = storage.version
            for stored in storage.objects(kind.plural):
                if selection.has(stored.value):
                    yield _line("ADDED", kind, stored)
        seen = sent
        bookmark_at = deadline
        if bookmark_seconds is not None:
            bookmark_at = _next_bookmark(clock(), deadline, bookmark_seconds)
        while True:
            try:
                changes = storage.changes(seen)
            except Compacted as gone:
                failure = ApiFailure(410, "Expired", f"too old resource version: {gone.asked} ({gone.oldest})")
                yield b'{"type":"ERROR","object":%b}\n' % msgspec.json.encode(failure.status)
                return
            for change in changes:
                for word, stored in _event(change, kind, selection):
                    sent = stored.version
                    yield _line(word, kind, stored)
            seen = max(seen, storage.version)
            if bookmark_seconds is not None and clock() >= bookmark_at:
                bookmark_at = clock() + bookmark_seconds
                if seen > sent:
                    sent = seen
                    yield _bookmark_line(kind, seen)
            if clock() >= deadline:
                return
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(min(deadline, bookmark_at)):
                    await woken.wait()
            woken.clear()
            if stopping.is_set():
                return
    finally:
        unlisten()
        stop.cancel()


def _next_bookmark(now: float, deadline: float, every: float) -> float:
    """Return when the next bookmark is due: one before the watch ends, to resume from, and others at intervals."""
    before_end = deadline - 2
    return min(now + every, before_end) if before_end > now else now + every


def _event(change: Change, kind: Kind, selection: Selection) -> Iterator[tuple[str, Stored]]:
    """Yield the event that a change is within a selection, which an object may enter and leave."""
    if change.after.plural != kind.plural:
        return
    was_in = change.before is not None and selection.has(change.before.value)
    is_in = not change.gone and selection.has(change.after.value)
    if was_in and is_in:
        yield "MODIFIED", change.after
    elif is_in:
        yield "ADDED", change.after
    elif was_in and change.gone:
        yield "DELETED", change.after
    elif was_in and change.before is not None:
        yield "DELETED", change.before.at_version(change.after.version)


def typed_json(kind: Kind, stored: Stored) -> bytes:
    """Return the JSON of one object with ``kind`` and ``apiVersion``, as single objects and events carry it."""
    return b'{"kind":"%b","apiVersion":"%b",%b' % (kind.name.encode(), kind.api_version.encode(), stored.encoded[1:])


def _line(word: str, kind: Kind, stored: Stored) -> bytes:
    return b'{"type":"%b","object":%b}\n' % (word.encode(), typed_json(kind, stored))


def _bookmark_line(kind: Kind, version: int) -> bytes:
    mark = {"kind": kind.name, "apiVersion": kind.api_version, "metadata": {"resourceVersion": str(version)}}
    return b'{"type":"BOOKMARK","object":%b}\n' % msgspec.json.encode(mark)
