"""What is wrong with the entries of one label or annotation of a node."""

from __future__ import annotations

from gas.quoted import listed


class EntryFaults:
    """Collects faulty entries of one text and tells them in at most three sentences, however many there are.

    place  where the text stands: ``"label gpu.intel.com/gpu-numbers"``
    form   what an entry should look like, as the end of "expected …"
    """

    def __init__(self, place: str, form: str) -> None:
        self._place = place
        self._form = form
        self._malformed: dict[str, None] = {}
        self._unknown: dict[str, None] = {}
        self._repeated: dict[str, None] = {}

    def malformed(self, entry: str) -> None:
        self._malformed[entry] = None

    def unknown(self, entry: str) -> None:
        """It names something that the node does not have."""
        self._unknown[entry] = None

    def repeated(self, entry: str) -> None:
        self._repeated[entry] = None

    def sentences(self) -> tuple[str, ...]:
        """The same for the same faults: entries are named in the order in which they came."""
        told = (
            (self._malformed, f"expected {self._form}, found {listed(self._malformed)}; the rest counts"),
            (self._unknown, f"the node does not have {listed(self._unknown)}; the rest counts"),
            (self._repeated, f"{listed(self._repeated)} is listed more than once; the first counts"),
        )
        return tuple(f"{self._place}: {sentence}" for entries, sentence in told if entries)
