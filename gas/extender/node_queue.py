import asyncio
from collections.abc import Iterable


class NodeQueue:
    """A queue of different node names from the decider, which does no I/O, to a task, which takes all at once."""

    def __init__(self) -> None:
        self._names: dict[str, None] = {}
        self._arrived = asyncio.Event()

    def add(self, *names: str) -> None:
        """Append nodes; one that is queued already moves to the end."""
        for name in names:
            self._names.pop(name, None)
            self._names[name] = None
        if names:
            self._arrived.set()

    def put_back(self, names: Iterable[str]) -> None:
        """Queue nodes again, before those that came since they were taken."""
        self._names = dict.fromkeys(names) | self._names
        if self._names:
            self._arrived.set()

    async def take(self) -> list[str]:
        """Wait for nodes, then remove and return all of them in their order."""
        await self._arrived.wait()
        self._arrived.clear()
        names, self._names = list(self._names), {}
        return names
