"""Receive what a watch shows of one kind of object."""

import abc
from collections.abc import Iterator, Mapping
from typing import Any, Generic, Protocol, TypeVar

from gas.objects.stored import ObjectId

Object = TypeVar("Object")
Record = TypeVar("Record")


class Handler(Protocol[Object]):
    """The receiver of a watch's objects, called from the event loop, one call at a time."""

    def listed(self, objects: list[Object], /) -> None:
        """Process a part of a complete list: objects that are newer than any shown before.

        A list that breaks off is not completed; another one begins with its first part.
        """

    def complete(self, listed: list[ObjectId], /) -> None:
        """Forget all objects that are not in the complete list, whose parts have all come."""

    def changed(self, obj: Object, /) -> None:
        """Process an object that is new or has changed. The same state may come twice."""

    def deleted(self, obj: Object, /) -> None:
        """Forget an object that is gone or no longer selected. This was its last state."""


class Handlers(Generic[Object]):
    """The handlers of one kind of object: each gets what the kind's one watch shows, in their order."""

    def __init__(self, *handlers: Handler[Object]) -> None:
        self._handlers = list(handlers)

    def add(self, *handlers: Handler[Object], first: bool = False) -> None:
        """Add handlers, with ``first`` those that the others depend on. To be called before the watch runs."""
        self._handlers[0 if first else len(self._handlers) :] = [*handlers, *(self._handlers if first else ())]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._handlers)

    def listed(self, objects: list[Object], /) -> None:
        for handler in self._handlers:
            handler.listed(objects)

    def complete(self, listed: list[ObjectId], /) -> None:
        for handler in self._handlers:
            handler.complete(listed)

    def changed(self, obj: Object, /) -> None:
        for handler in self._handlers:
            handler.changed(obj)

    def deleted(self, obj: Object, /) -> None:
        for handler in self._handlers:
            handler.deleted(obj)


class Mirror(abc.ABC, Generic[Object, Record]):
    """A handler that stores one record of each object under the object's UID. ``records`` is to be read only."""

    def __init__(self) -> None:
        self._records: dict[str, Record] = {}
        self.records: Mapping[str, Record] = self._records

    @abc.abstractmethod
    def record(self, obj: Object, /) -> Record | None:
        """Return what to store of an object, None if nothing."""

    def replaced(self, key: str, old: Record | None, new: Record | None, /) -> None:
        """Update sums and indexes that are computed from the records: one is new, differs, or is gone."""

    def key(self, obj: Any) -> str:
        uid: str | None = obj.uid
        return uid or ""

    def put(self, key: str, new: Record | None) -> None:
        """Replace or remove the record of an object."""
        old = self._records.pop(key, None) if new is None else self._records.get(key)
        if new is not None:
            self._records[key] = new
        if old != new:
            self.replaced(key, old, new)

    def listed(self, objects: list[Object], /) -> None:
        for each in objects:
            self.changed(each)

    def complete(self, listed: list[ObjectId], /) -> None:
        there = {self.key(each) for each in listed}
        for key in [each for each in self._records if each not in there]:
            self.put(key, None)

    def changed(self, obj: Object, /) -> None:
        self.put(self.key(obj), self.record(obj))

    def deleted(self, obj: Object, /) -> None:
        self.put(self.key(obj), None)


class MirrorByName(Mirror[Object, Record]):
    """A handler that stores one record of each object under its name."""

    def key(self, obj: Any) -> str:
        name: str = obj.name
        return name
