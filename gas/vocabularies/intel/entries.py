"""The entries of a node's label or annotation: numbers and card names, and problems with them."""

from __future__ import annotations

import re

from gas.values.cards import Card, MalformedCard
from gas.values.quoted import listed

_NUMBER = re.compile(r"0|[1-9][0-9]{0,8}", re.ASCII)


def read_number(text: str) -> int | None:
    """Parse a number of up to nine digits without leading zeros; return None for any other text."""
    return int(text) if _NUMBER.fullmatch(text) is not None else None


def read_card(text: str) -> Card | None:
    """Parse a card name, ``"card3"`` -> ``Card(3)``; return None for any other text."""
    try:
        return Card.parse(text)
    except MalformedCard:
        return None


class EntryFaults:
    """The faulty entries of one text, reported in at most three sentences.

    place  where the text is: ``"label gpu.intel.com/gpu-numbers"``
    form   the form of a correct entry, as the end of "expected …"
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
        """Add an entry that names something that the node does not have."""
        self._unknown[entry] = None

    def repeated(self, entry: str) -> None:
        self._repeated[entry] = None

    def sentences(self) -> tuple[str, ...]:
        """Return one sentence for each kind of fault, with the entries in the order in which they were added."""
        sentences = (
            (self._malformed, f"expected {self._form}, found {listed(self._malformed)}; other entries are used"),
            (self._unknown, f"the node does not have {listed(self._unknown)}; other entries are used"),
            (self._repeated, f"{listed(self._repeated)} is listed more than once; the first one is used"),
        )
        return tuple(f"{self._place}: {sentence}" for entries, sentence in sentences if entries)
