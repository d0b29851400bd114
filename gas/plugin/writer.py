import asyncio
from typing import Generic, TypeVar

Wanted = TypeVar("Wanted")


class Writer(Generic[Wanted]):
    """A writer of something that only one plugin of a node may write at a time."""

    def __init__(self) -> None:
        self._wanted: Wanted | None = None
        self._held = False
        self._look = asyncio.Event()  # set when something may have to be written

    def want(self, wanted: Wanted) -> None:
        """Set what should be there. Nothing is written before the first call."""
        self._wanted = wanted
        self._look.set()

    def hold(self) -> None:
        """Write nothing until `resume`: another plugin of this node writes."""
        self._held = True

    def resume(self) -> None:
        self._held = False
        self._look.set()
