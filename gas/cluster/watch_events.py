"""One line of a watch: what happened to which object."""

from __future__ import annotations

from typing import Generic, Protocol, TypeVar

import msgspec

from gas.cluster.errors import ApiRefused, ApiUnavailable, Forbidden, Status, status_error
from gas.objects import ObjectMeta


class KubernetesObject(Protocol):
    """What a watch must know of every object: its metadata."""

    @property
    def metadata(self) -> ObjectMeta: ...


T = TypeVar("T", bound=KubernetesObject)


class WatchEvent(msgspec.Struct, Generic[T], frozen=True, gc=False):
    """type  ADDED, MODIFIED, DELETED or BOOKMARK"""

    type: str
    object: T


class Unreadable(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A line whose object cannot be read as what it should be.

    type     of the event; empty when not even that can be read
    version  the object's resourceVersion, if it can be read
    what     ``namespace/name``, as far as it can be read
    why      what was expected and found
    """

    type: str = ""
    version: str | None = None
    what: str = ""
    why: str


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
_KNOWN = frozenset(("ADDED", "MODIFIED", "DELETED", "BOOKMARK"))


class EventDecoder(Generic[T]):
    """Decodes the lines of a watch on objects of one type; a line that can be read is looked at once."""

    def __init__(self, object_type: type[T], request: str) -> None:
        self._decoder = msgspec.json.Decoder(WatchEvent[object_type])  # type: ignore[valid-type]  # a type of run time
        self._request = request

    def decode(self, line: bytes) -> WatchEvent[T] | Unreadable:
        """Raises what an ERROR event says: ApiRefused (410 above all), Forbidden, ApiUnavailable."""
        try:
            event: WatchEvent[T] = self._decoder.decode(line)
        except (msgspec.DecodeError, RecursionError) as error:
            return self._read_what_can_be(line, error)
        if event.type in _KNOWN:
            return event
        if event.type == "ERROR":
            raise self._error(line)
        return Unreadable(type=event.type, why=f"expected an event of a known type, found {event.type[:40]!r}")

    def _read_what_can_be(self, line: bytes, error: Exception) -> Unreadable:
        try:
            event = _ANY.decode(line)
        except (msgspec.DecodeError, RecursionError):
            return Unreadable(why=str(error))
        if event.type == "ERROR":
            raise self._error(line)
        metadata = event.object.metadata or _AnyMeta()
        what = "/".join(part for part in (metadata.namespace, metadata.name) if part)
        return Unreadable(type=event.type, version=metadata.resource_version, what=what, why=str(error))

    def _error(self, line: bytes) -> ApiRefused | Forbidden | ApiUnavailable:
        try:
            status = _ERROR.decode(line).object
        except (msgspec.DecodeError, RecursionError) as error:
            return ApiUnavailable(f"{self._request} ended in an error that cannot be read: {error}")
        return status_error(status, request=self._request)
