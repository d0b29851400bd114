"""The receiver of what a watch shows of one kind of object."""

from __future__ import annotations

import abc
from collections.abc import Collection
from typing import Any, Generic, Protocol, TypeVar

from gas.objects.stored import ObjectId

Object = TypeVar("Object")


class Handler(Protocol[Object]):
    """The receiver of a watch's objects, called from the event loop, one call at a time."""

    def listed(self, objects: list[Object], /) -> None:
        """Take a part of a complete list: objects that are newer than anything that came before.

        A list that breaks off is not completed; another one begins with its first part.
        """

    def complete(self, listed: list[ObjectId], /) -> None:
        """Forget all objects that are not in the complete list, whose parts have all come."""

    def changed(self, obj: Object, /) -> None:
        """Take an object that is new or has changed. The same state may come twice."""

    def deleted(self, obj: Object, /) -> None:
        """Forget an object that is gone or no longer selected. This was its last state."""


class Mirror(abc.ABC, Generic[Object]):
    """A handler that remembers something of each object, under its UID or its name."""

    @abc.abstractmethod
    def changed(self, obj: Object, /) -> None:
        """Learn of an object that is new or has changed."""

    @abc.abstractmethod
    def known(self) -> Collection[str]:
        """Return the keys of the objects of which something is remembered."""

    @abc.abstractmethod
    def forget(self, key: str) -> None:
        """Forget an object, known or not."""

    @staticmethod
    def key(obj: Any) -> str:
        """Return what an object is remembered under: its UID."""
        uid: str | None = obj.uid
        return uid or ""

    def listed(self, objects: list[Object], /) -> None:
        """Learn of a part of a complete list."""
        for each in objects:
            self.changed(each)

    def complete(self, listed: list[ObjectId], /) -> None:
        """Forget the objects that are not in the complete list."""
        there = {self.key(each) for each in listed}
        for key in [each for each in self.known() if each not in there]:
            self.forget(key)

    def deleted(self, obj: Object, /) -> None:
        """Forget an object."""
        self.forget(self.key(obj))


class MirrorByName(Mirror[Object]):
    """A handler that remembers something of each object under its name."""

    @staticmethod
    def key(obj: Any) -> str:
        """Return the object's name."""
        name: str = obj.name
        return name
