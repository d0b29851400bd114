"""Cards and tiles, the GPUs that containers get."""

from __future__ import annotations

import re
from typing import NamedTuple

from gas.errors import GasError

_CARD = re.compile(r"card(0|[1-9][0-9]{0,8})", re.ASCII)


class MalformedCard(GasError):
    """The text is not a card name. ``text`` is what was found."""

    def __init__(self, text: str) -> None:
        super().__init__(f"expected a card name such as card0, found {text[:80]!r}")
        self.text = text


class Card(int):
    """One GPU of a node; the kernel calls it ``card<number>``. Raises MalformedCard for a negative number.

    It is an int, so that cards sort in natural order (card2 before card10) and hash at the speed of C: every filter
    looks up thousands of them.
    """

    __slots__ = ()

    def __new__(cls, number: int | str) -> Card:
        card = super().__new__(cls, number)
        if card < 0:
            raise MalformedCard(f"card{number}")
        return card

    @classmethod
    def parse(cls, text: str) -> Card:
        """Parse ``"card10"`` into ``Card(10)``.

        Raises MalformedCard, also for leading zeros, which the kernel never writes.
        """
        if (match := _CARD.fullmatch(text)) is None:
            raise MalformedCard(text)
        return cls(match[1])

    def __str__(self) -> str:
        return f"card{int(self)}"

    def __repr__(self) -> str:
        return f"Card({int(self)})"


class Tile(NamedTuple):
    """One tile of a card; the kernel calls it ``gt<index>``."""

    card: Card
    index: int  # type: ignore[assignment]  # shadows the method of tuple, which no caller needs
