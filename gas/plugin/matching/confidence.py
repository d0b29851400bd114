"""How sure a match is."""

from __future__ import annotations

from enum import StrEnum


class Confidence(StrEnum):
    """How sure it is that a call is for the container it was matched with."""

    KNOWN = "known"  # nobody else can be meant
    ALONE = "alone"  # nobody else is known that could be meant, but the watch may lag behind kubelet
    GUESSED = "guessed"  # others can be meant as well; a wrong guess shows in the receipts
