"""An annotation that cannot be believed."""

from __future__ import annotations

from gas.errors import GasError


class MalformedAnnotation(GasError):
    """What an annotation says about given cards or tiles makes no sense. ``annotation`` is its name."""

    def __init__(self, annotation: str, reason: str) -> None:
        super().__init__(f"annotation {annotation}: {reason}")
        self.annotation = annotation


LONGEST = 65_536
"""Characters of an annotation that are looked at: room for 7,000 cards. Nothing we write comes near it."""


def check_length(annotation: str, text: str) -> None:
    """Raises MalformedAnnotation for a text that nobody can have written in earnest."""
    if len(text) > LONGEST:
        raise MalformedAnnotation(annotation, f"expected at most {LONGEST} characters, found {len(text)}")
