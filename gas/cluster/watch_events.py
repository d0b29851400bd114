"""Decode the body of a watch: chunks of bytes to lines, lines to events."""

from __future__ import annotations

from typing import Generic, Protocol, TypeVar

import msgspec

from gas.cluster.errors import ApiRefused, ApiUnavailable, Forbidden, Status, status_error
from gas.objects.stored import ObjectMeta
from gas.values.errors import UNDECODABLE, GasError

LONGEST_LINE = 64 * 1024 * 1024  # Bytes. An object of Kubernetes has at most a few million; a longer line never ends.


class KubernetesObject(Protocol):
    @property
    def metadata(self) -> ObjectMeta: ...


T = TypeVar("T", bound=KubernetesObject)


class EndlessLine(GasError):
    def __init__(self) -> None:
        super().__init__(f"expected lines of at most {LONGEST_LINE} bytes from the API server, found a longer one")


class LineSplitter:
    """Split a stream of chunks into lines. Every byte is scanned once."""

    def __init__(self, longest: int = LONGEST_LINE) -> None:
        self._pieces: list[bytes] = []
        self._length = 0
        self._longest = longest

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the lines that this chunk completes, without line ends and empty lines. Raises EndlessLine."""
        *lines, rest = chunk.split(b"\n")
        if lines:
            lines[0] = b"".join((*self._pieces, lines[0]))
            self._pieces, self._length = [], 0
        if rest:
            self._pieces.append(rest)
            self._length += len(rest)
            if self._length > self._longest:
                raise EndlessLine
        return [line for line in lines if line and not line.isspace()]


class WatchEvent(msgspec.Struct, Generic[T], frozen=True, gc=False):
    """One event of a watch: ADDED, MODIFIED, DELETED or BOOKMARK."""

    type: str
    object: T


class UnreadableEvent(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A line whose object cannot be decoded as the expected type."""

    type: str = ""  # of the event; empty if even that cannot be decoded
    version: str | None = None  # the object's resourceVersion, if it can be decoded
    name: str = ""  # ``namespace/name``, as far as they can be decoded
    why: str  # expected and found


class _AnyObject(msgspec.Struct, rename="camel", frozen=True):
    metadata: _AnyMeta | None = None


class _AnyMeta(msgspec.Struct, rename="camel", frozen=True):
    resource_version: str | None = None
    namespace: str | None = None
    name: str | None = None


class _AnyEvent(msgspec.Struct, frozen=True):
    type: str
    object: _AnyObject


class _ErrorEvent(msgspec.Struct, frozen=True):
    object: Status


_ANY = msgspec.json.Decoder(_AnyEvent)
_ERROR = msgspec.json.Decoder(_ErrorEvent)
_TYPES = frozenset(("ADDED", "MODIFIED", "DELETED", "BOOKMARK"))


class EventDecoder(Generic[T]):
    """Decode the lines of a watch on objects of one type. ``request`` names the watch in errors."""

    def __init__(self, object_type: type[T], request: str) -> None:
        self._decoder = msgspec.json.Decoder(WatchEvent[object_type])  # type: ignore[valid-type]  # a type of run time
        self._request = request

    def decode(self, line: bytes) -> WatchEvent[T] | UnreadableEvent:
        """Return the event of a line. Raises ApiRefused (usually 410), Forbidden or ApiUnavailable for an ERROR."""
        try:
            event: WatchEvent[T] = self._decoder.decode(line)
        except UNDECODABLE as error:
            return self._decode_partly(line, error)
        if event.type in _TYPES:
            return event
        if event.type == "ERROR":
            raise self._error(line)
        return UnreadableEvent(type=event.type, why=f"expected an event of a known type, found {event.type[:40]!r}")

    def _decode_partly(self, line: bytes, error: Exception) -> UnreadableEvent:
        try:
            event = _ANY.decode(line)
        except UNDECODABLE:
            return UnreadableEvent(why=str(error))
        if event.type == "ERROR":
            raise self._error(line)
        metadata = event.object.metadata or _AnyMeta()
        name = "/".join(part for part in (metadata.namespace, metadata.name) if part)
        return UnreadableEvent(type=event.type, version=metadata.resource_version, name=name, why=str(error))

    def _error(self, line: bytes) -> ApiRefused | Forbidden | ApiUnavailable:
        try:
            status = _ERROR.decode(line).object
        except UNDECODABLE as error:
            return ApiUnavailable(f"{self._request} ended in an error that cannot be decoded: {error}")
        return status_error(status, request=self._request)
