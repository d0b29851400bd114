"""Amounts of resources: plain whole numbers by resource name, and Kubernetes' way to write a number.

Resource names are without their vendor's prefix (``millicores``, ``memory.max``); ``memory.*`` is in bytes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Context, Decimal, localcontext

from gas.errors import GasError

Amounts = Mapping[str, int]
"""Resource name -> amount. A name that is missing stands for 0."""

SortedAmounts = tuple[tuple[str, int], ...]
"""The same as pairs in order of their names: hashable, and the fastest to walk."""

TILES = "tiles"
"""The resource whose amount is a number of tiles: those of a card, or those wanted of each card."""

MAX_AMOUNT = 2**63 - 1
"""The largest number that Kubernetes itself can hold for an extended resource."""

_QUANTITY = re.compile(
    r"(?P<number>[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+))"
    r"(?P<suffix>[KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]{1,4})?",
    re.ASCII,
)
_POWERS_OF_TEN = {"n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_POWERS_OF_TWO = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_MULTIPLES = {suffix: 10**power for suffix, power in _POWERS_OF_TEN.items() if power > 0} | {
    suffix: 2**power for suffix, power in _POWERS_OF_TWO.items()
}
_LONGEST_QUANTITY = 256


class MalformedQuantity(GasError):
    """The text is no Kubernetes quantity, or no whole number from 0 to 2^63-1. ``reason`` is the bare reason."""

    def __init__(self, text: object, reason: str) -> None:
        super().__init__(f"{reason}, found {str(text)[:80]!r}")
        self.reason = reason


def parse_quantity(text: str | int | float) -> int:
    """A Kubernetes quantity as a whole number: ``"5Gi"`` -> 5368709120, ``"2000m"`` -> 2, ``3`` -> 3.

    Raises MalformedQuantity for anything else: an empty text, a fraction (``"1.5"``), a negative number, one over
    MAX_AMOUNT. Source: the grammar in apimachinery's ``resource.Quantity``; extended resources are whole numbers.
    """
    if isinstance(text, bool):
        raise MalformedQuantity(text, "expected a whole number")
    if isinstance(text, int):
        return _in_range(text, text)
    written = text if isinstance(text, str) else repr(text)
    if written.isascii() and written.isdigit() and len(written) < len(str(MAX_AMOUNT)):
        return int(written)
    match = _QUANTITY.fullmatch(written) if len(written) <= _LONGEST_QUANTITY else None
    if match is None:
        raise MalformedQuantity(text, "expected a quantity such as 5, 500k or 5Gi")
    if match["suffix"] in _MULTIPLES and match["number"].isdigit():  # how an API server writes: 16G, 5Gi
        return _in_range(int(match["number"]) * _MULTIPLES[match["suffix"]], text)
    with localcontext(Context(prec=2 * _LONGEST_QUANTITY)):
        exact = Decimal(match["number"]) * _scale(match["suffix"] or "")
        if abs(exact) > MAX_AMOUNT:
            raise MalformedQuantity(text, "expected at most 2^63-1")
        if exact != exact.to_integral_value():
            raise MalformedQuantity(text, "expected a whole number")
        return _in_range(int(exact), text)


def _scale(suffix: str) -> Decimal:
    if suffix in _POWERS_OF_TWO:
        return Decimal(2 ** _POWERS_OF_TWO[suffix])
    if suffix in _POWERS_OF_TEN:
        return Decimal(10) ** _POWERS_OF_TEN[suffix]
    return Decimal(10) ** int(suffix[1:]) if suffix else Decimal(1)


def _in_range(number: int, text: object) -> int:
    if number < 0:
        raise MalformedQuantity(text, "expected a number that is not negative")
    if number > MAX_AMOUNT:
        raise MalformedQuantity(text, "expected at most 2^63-1")
    return number


def sorted_amounts(amounts: Amounts) -> SortedAmounts:
    """The amounts in the order of their names."""
    return tuple(sorted(amounts.items()))


def add(amounts: dict[str, int], more: SortedAmounts) -> None:
    """Add ``more`` to ``amounts`` in place; `take_away` with the same ``more`` undoes it exactly.

    Names never stand for 0, so equal books are equal dictionaries.
    """
    for name, amount in more:
        if amount:
            amounts[name] = amounts.get(name, 0) + amount


def take_away(amounts: dict[str, int], less: SortedAmounts) -> None:
    """Subtract ``less`` in place. Names that come to 0 are dropped."""
    for name, amount in less:
        left = amounts.get(name, 0) - amount
        if left:
            amounts[name] = left
        else:
            amounts.pop(name, None)


def describe(name: str, amount: int) -> str:
    """An amount in words: ``"5.0 GB of memory.max"``, ``"500 millicores"``, ``"1 tile"``."""
    if is_bytes(name):
        return f"{gigabytes(amount)} GB of {name}"
    if name == TILES and amount == 1:
        return "1 tile"
    return f"{amount} {name}"


def is_bytes(name: str) -> bool:
    """Whether amounts of this resource are bytes."""
    return name.startswith("memory")


def gigabytes(amount: int) -> str:
    """Bytes as GB (10^9), one digit after the point, more where that would read 0.0: ``"5.0"``, ``"0.004"``."""
    number = amount / 1e9
    return f"{number:.1f}" if amount == 0 or abs(number) >= 0.05 else f"{Decimal(f'{number:.2g}'):f}"
