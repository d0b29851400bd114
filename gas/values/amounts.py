"""Amounts of resources, as whole numbers by resource name, and Kubernetes quantities.

Resource names are without their vendor's prefix (``millicores``, ``memory.max``); ``memory.*`` is in bytes.
"""

import re
from collections.abc import Iterable, Mapping
from decimal import ROUND_CEILING, Context, Decimal, localcontext
from enum import StrEnum
from functools import lru_cache
from typing import NamedTuple

from gas.values.errors import GasError, InvalidValue
from gas.values.quoted import quoted, shown

Amounts = Mapping[str, int]  # Resource name -> amount. The amount of a missing name is 0.
SortedAmounts = tuple[tuple[str, int], ...]  # as pairs in the order of names: hashable, fastest to iterate
TILES = "tiles"  # the resource whose amount is a number of tiles: those of a card, or those wanted of each card
MEMORY_MAX = "memory.max"  # the resource whose amount is bytes of a card's memory
MILLICORES = "millicores"  # the resource whose amount is thousandths of a card's compute

MILLICORES_OF_A_CARD = 1000

MAX_AMOUNT = 2**63 - 1  # the largest amount of an extended resource that Kubernetes can hold


class MemoryUnit(StrEnum):
    """A unit in which a resource without a unit of its own counts memory."""

    MIB = "MiB"
    GIB = "GiB"

    @property
    def bytes(self) -> int:
        return 2**20 if self is MemoryUnit.MIB else 2**30


class StatedMemory(NamedTuple):
    """How the owner of a pod states memory: ``StatedMemory("aliyun.com/gpu-mem", MemoryUnit.GIB)``."""

    resource: str
    unit: MemoryUnit

    @property
    def counted_as(self) -> str:
        """The name of the resource without its prefix, as ledgers have it if it is a count resource as well."""
        return self.resource.rpartition("/")[2]

    def __str__(self) -> str:
        return f"{self.unit} of {self.resource}"


_QUANTITY = re.compile(
    r"(?P<number>[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+))"
    r"(?P<suffix>[KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]{1,4})?",
    re.ASCII,
)
_USUAL = re.compile(r"([0-9]{1,99})([KMGTPE]i|[kMGTPE])", re.ASCII)  # the form that an API server writes: 16G, 5Gi
_POWERS_OF_TEN = {"n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_POWERS_OF_TWO = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_MULTIPLES = {suffix: 10**power for suffix, power in _POWERS_OF_TEN.items() if power > 0} | {
    suffix: 2**power for suffix, power in _POWERS_OF_TWO.items()
}
_LONGEST_QUANTITY = 256


class MalformedQuantity(GasError):
    """The text is not a quantity, or not a whole number up to 2^63-1; ``reason`` leaves out what was found."""

    def __init__(self, text: object, reason: str) -> None:
        super().__init__(f"{reason}, found {quoted(text)}")
        self.reason = reason


def parse_quantity(text: str | int | float) -> int:
    """Parse a Kubernetes quantity into a whole number: ``"5Gi"`` -> 5368709120, ``"2000m"`` -> 2, ``3`` -> 3.

    Raises MalformedQuantity for anything else: an empty text, a fraction (``"1.5"``), a negative number, a number over
    MAX_AMOUNT. Source: the grammar in apimachinery's ``resource.Quantity``; extended resources are whole numbers.
    """
    if isinstance(text, bool):
        raise MalformedQuantity(text, "expected a whole number")
    if isinstance(text, int):
        return _in_range(text, text)
    written = text if isinstance(text, str) else repr(text)
    if written.isascii() and written.isdigit() and len(written) < len(str(MAX_AMOUNT)):
        return int(written)
    if (match := _USUAL.fullmatch(written)) is not None:
        return _in_range(int(match[1]) * _MULTIPLES[match[2]], text)
    exact = exact_quantity(text)
    if exact.copy_abs() > MAX_AMOUNT:
        raise MalformedQuantity(text, "expected at most 2^63-1")
    if exact != exact.to_integral_value():
        raise MalformedQuantity(text, "expected a whole number")
    return _in_range(int(exact), text)


@lru_cache(1024)
def parse_rounded_up(text: str | int | float, *, thousandths: bool = False) -> int:
    """Parse a quantity and round it up to whole units, or to thousandths of one: ``"1.5"`` -> 2, or 1500.

    This is how kube-scheduler counts requests: ``Value()``, and ``MilliValue()`` for CPU. The result is at most
    MAX_AMOUNT. Raises MalformedQuantity if the text is not a quantity, or is negative.
    """
    exact = exact_quantity(text, times=1000 if thousandths else 1)
    if exact < 0:
        raise MalformedQuantity(text, "expected a number that is not negative")
    return MAX_AMOUNT if exact > MAX_AMOUNT else int(exact.to_integral_value(ROUND_CEILING))


def exact_quantity(text: str | int | float, *, times: int = 1) -> Decimal:
    """Return a quantity, which may be negative, as an exact number. Raises MalformedQuantity if it is none."""
    written = text if isinstance(text, str) else repr(text)
    match = _QUANTITY.fullmatch(written) if len(written) <= _LONGEST_QUANTITY else None
    if match is None:
        raise MalformedQuantity(text, "expected a quantity such as 5, 500k or 5Gi")
    with localcontext(Context(prec=2 * _LONGEST_QUANTITY)):
        return Decimal(match["number"]) * scale_of(match["suffix"] or "") * times


def scale_of(suffix: str) -> Decimal:
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
    return tuple(sorted(amounts.items()))


def is_whole(number: object) -> bool:
    return isinstance(number, int) and number >= 0


def check_amounts(amounts: Iterable[tuple[str, int]], owner: object) -> None:
    """Raise InvalidValue for an amount that is negative or fractional; ``owner`` begins the sentence."""
    for name, amount in amounts:
        if not isinstance(amount, int) or amount < 0:
            raise InvalidValue(f"{owner}: expected a whole amount of {name}, 0 or more, found {amount}")


def check_sorted(amounts: SortedAmounts, owner: object) -> None:
    """Raise InvalidValue as `check_amounts`, and for names out of order."""
    check_amounts(amounts, owner)
    last = ""
    for name, _ in amounts:
        if name <= last:
            raise InvalidValue(
                f"{owner}: expected each resource once, in the order of names, found {name!r} after {last!r}"
            )
        last = name


def add(amounts: dict[str, int], more: Iterable[tuple[str, int]], times: int = 1) -> None:
    """Add ``more`` to ``amounts`` in place; with ``times=-1`` it is taken away, which undoes that exactly.

    Amounts of 0 are left out, so equal amounts are equal dictionaries.
    """
    for name, amount in more:
        if total := amounts.get(name, 0) + times * amount:
            amounts[name] = total
        else:
            amounts.pop(name, None)


def describe(name: str, amount: int, stated: StatedMemory | None = None) -> str:
    """Describe an amount in words: ``"5.0 GB of memory.max"``, ``"500 millicores"``, ``"1 tile"``.

    stated  for the memory of a pod whose owner states it otherwise than in bytes
    """
    if stated is not None and name == MEMORY_MAX:
        return f"{-(-amount // stated.unit.bytes)} {stated}"
    if is_bytes(name):
        return f"{gigabytes(amount)} GB of {shown(name)}"
    if name == TILES and amount == 1:
        return "1 tile"
    return f"{amount} {shown(name)}"


def is_bytes(name: str) -> bool:
    return name.startswith("memory")


def gigabytes(amount: int) -> str:
    """Format bytes as GB (10^9) with one decimal, or more where that would read 0.0: ``"5.0"``, ``"0.004"``."""
    number = amount / 1e9
    return f"{number:.1f}" if amount == 0 or abs(number) >= 0.05 else f"{Decimal(f'{number:.2g}'):f}"
