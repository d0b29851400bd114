"""The receiver of what a watch shows of one kind of object."""

from __future__ import annotations

from typing import Protocol, TypeVar

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
