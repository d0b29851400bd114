"""Why the extender may not answer yet, as one sentence, or that it may."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from gas.cluster.watch import Watch
from gas.errors import GasError


class NotReady(GasError):
    """This replica may not decide now. The scheduler gets the sentence, and its connection ends with that answer."""


class Election(Protocol):
    """Whether we lead, and why we cannot even stand for it."""

    @property
    def leads(self) -> bool: ...

    @property
    def refused(self) -> str | None: ...


class Readiness:
    """Ready is who has complete books and, among several replicas, leads. Only that one answers, binds and patches.

        starting --both lists read--> complete --leads, and has listed the pods once more--> ready
                                          ^---------------no longer leads----------------------'

    A new leader lists the pods again, since the last binds of the old one may still be on their way to its watch.

    election  None without leader election
    """

    def __init__(self, watches: Mapping[str, Watch[Any]], *, election: Election | None) -> None:
        self._watches = watches
        self._election = election
        self.catching_up = election is not None
        self.stopping = False

    def why_not(self) -> str | None:
        """The sentence for the ``Error`` of an answer; None when this replica decides."""
        for kind, watch in self._watches.items():
            if watch.refused is not None:
                cannot = "can no longer be watched" if watch.synced.is_set() else "cannot be listed"
                return f"the books are not complete, {kind} {cannot}: {watch.refused}"
            if not watch.synced.is_set():
                trouble = f"; the last try failed: {watch.trouble}" if watch.trouble else ""
                return f"the books are not complete yet: the first list of {kind} is still being read{trouble}"
        if self._election is not None:
            if not self._election.leads:
                if self._election.refused is not None:
                    return f"this replica of the extender cannot lead: {self._election.refused}"
                return "this replica of the extender does not lead; another one answers"
            if self.catching_up:
                return "this replica of the extender leads since a moment ago and still reads what the last leader did"
        return None

    def why_not_serving(self) -> str | None:
        """For ``/readyz``: while stopping, what is in hand is still finished, but nothing new should come."""
        return "this replica of the extender is stopping" if self.stopping else self.why_not()

    def may_act(self) -> bool:
        """Whether this replica decides."""
        return self.why_not() is None
