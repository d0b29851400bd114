"""How much a search may try: a count, not a time, so that equal questions get equal answers."""

from __future__ import annotations


class Steps:
    """The tries left for one decision, shared out among the searches that it may take.

    ran_out  whether any search since the last `share` was cut short
    """

    __slots__ = ("_left", "_until", "ran_out")

    def __init__(self, limit: int) -> None:
        self._left = limit
        self._until = 0
        self.ran_out = False

    def share(self, searches: int) -> None:
        """Begin the first of so many searches; what one leaves over is there for the next."""
        self._until = self._left - self._left // searches
        self.ran_out = False

    def spend(self) -> bool:
        """Use one try. False when there is none left for this search."""
        if self._left <= self._until:
            self.ran_out = True
            return False
        self._left -= 1
        return True
