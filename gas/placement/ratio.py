"""Ratios: amounts that depend on the card, because a container asks for a part of what the card has."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from gas.values.amounts import Amounts, StatedMemory, describe, is_whole
from gas.values.errors import InvalidValue

PERCENT = 100


@dataclass(frozen=True, slots=True, order=True)
class Ratio:
    """A part of what a card has of a resource. Raises InvalidValue for a part that is negative or fractional.

    ``Ratio("memory.max", 50)`` is half of the card's memory. ``Ratio("millicores", 4 * GB, of="memory.max")`` is as
    large a part of the card's millicores as 4 GB are of its memory. The parts of all containers of a pod that hold a
    card at the same time are added before they are rounded down.
    """

    resource: str
    part: int  # the numerator: percent, or an amount of the resource ``of``
    of: str = ""

    def __post_init__(self) -> None:
        if not is_whole(self.part):
            raise InvalidValue(f"ratio of {self.resource}: expected a whole part, 0 or more, found {self.part}")

    def in_words(self, stated: StatedMemory | None = None) -> str:
        """Describe the part; ``stated`` is how the pod states memory."""
        if not self.of:  # in words, because kube-scheduler takes a percent sign in a reason for a format
            return f"{self.part} percent of {self.resource}"
        return f"{self.resource} in proportion to {describe(self.of, self.part, stated)}"

    def __str__(self) -> str:
        return self.in_words()


Wanted = tuple[str, int] | Ratio  # what a container takes of one resource of a card: an amount with its name or a ratio


def name_of(wanted: Wanted) -> str:
    return wanted.resource if isinstance(wanted, Ratio) else wanted[0]


def whole(of: str, capacity: Amounts) -> int:
    """Return what a part is divided by on a card: 100, or how much the card has of the resource ``of``.

    It is never 0: a card that has nothing of the resource has no room for any amount of it either.
    """
    return PERCENT if not of else capacity.get(of) or 1


def amounts_on(card: Amounts, plain: Mapping[str, int], ratios: Iterable[Ratio]) -> dict[str, int]:
    """Return amounts and ratios together as amounts of one card, which has the amounts ``card``."""
    total = dict(plain)
    for ratio in ratios:
        has = card.get(ratio.resource, 0) if not ratio.of or card.get(ratio.of) else 0
        amount = has * ratio.part // whole(ratio.of, card)
        total[ratio.resource] = total.get(ratio.resource, 0) + amount
    return total


def add_ratios(total: dict[str, Ratio], more: Iterable[Ratio]) -> None:
    """Add ratios to those of other containers, by resource."""
    for ratio in more:
        before = total[ratio.resource].part if ratio.resource in total else 0
        total[ratio.resource] = replace(ratio, part=before + ratio.part)
