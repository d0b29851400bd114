"""Represent reports as columns and rows of plain values; select and sort rows (``-l``, ``--where``, ``--sort-by``)."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import msgspec

from gas.inspection.cluster import natural
from gas.objects.stored import Requirement
from gas.values.errors import GasError
from gas.values.quoted import quoted


class Booked(msgspec.Struct, frozen=True, gc=False):
    booked: int
    capacity: int

    @property
    def share(self) -> float:
        """The booked part, 1 for all. More than 1 if the card has shrunk below what is booked."""
        return self.booked / self.capacity if self.capacity > 0 else float(self.booked > 0)


Value = str | int | float | bool | None | Booked | tuple[str, ...]
Row = Mapping[str, Value]


class Column(NamedTuple):
    name: str  # the key in the rows, and what users sort by
    wide: bool = False  # left out of a narrow table
    number: bool = False  # aligned to the right
    resource: str = ""  # of its amounts; empty if they are of none
    gauge: bool = False  # its values are `Booked`


def columns(*names: str, wide: bool = False, number: bool = False) -> tuple[Column, ...]:
    return tuple(Column(name, wide=wide, number=number) for name in names)


@dataclass(frozen=True, slots=True)
class Report:
    """A table of plain values, with sentences about rows that it does not show."""

    columns: tuple[Column, ...]
    rows: Sequence[Row]
    notes: tuple[str, ...] = ()


class BadExpression(GasError):
    """A column, or an expression about one, that does not exist in the report, or a malformed selector."""

    exit_code = 2


def sort_rows(report: Report, by: str, said: str = "flag --sort-by") -> Report:
    """Return the report with its rows sorted by a column, in descending order after a hyphen. Raises BadExpression.

    said  where the column was named
    """
    if not by:
        return report
    name = _column(report, by.removeprefix("-"), said)
    present = [row for row in report.rows if row.get(name) is not None]
    absent = [row for row in report.rows if row.get(name) is None]
    if len({isinstance(_order(row[name]), tuple) for row in present}) > 1:
        raise BadExpression(f"{said}: column {quoted(name)} has texts and numbers")
    ordered = sorted(present, key=lambda row: _order(row[name]), reverse=by.startswith("-"))
    return replace(report, rows=ordered + absent)


_CONDITION = re.compile(r"([\w.-]+?)(!=|==?|~|<|>)(.*)", re.DOTALL)
_COMPARE: Mapping[str, Callable[[float, float], bool]] = {"<": float.__lt__, ">": float.__gt__}


def keep_rows(report: Report, conditions: Sequence[str]) -> Report:
    """Return the report with the rows that meet all conditions, such as ``health!=ok``. Raises BadExpression.

    ``=``, ``==`` and ``!=`` compare texts, ``~`` looks for a part of the text, ``<`` and ``>`` compare numbers; of a
    resource they compare the booked part in percent.
    """
    rows = list(report.rows)
    for condition in conditions:
        if (found := _CONDITION.fullmatch(condition)) is None:
            raise BadExpression(
                f"flag --where: expected a condition such as health!=ok or memory.max>80, found {quoted(condition)}"
            )
        name, operator, wanted = found.groups()
        name = _column(report, name, "flag --where")
        rows = [row for row in rows if _meets(row.get(name), operator, wanted, condition)]
    return replace(report, rows=rows)


def _meets(value: Value, operator: str, wanted: str, condition: str) -> bool:
    if operator in _COMPARE:
        try:
            number = float(wanted)
        except ValueError:
            raise BadExpression(
                f"flag --where: expected a number after {operator}, found {quoted(wanted)} in {quoted(condition)}"
            ) from None
        if isinstance(value, Booked):
            value = value.share * 100
        return isinstance(value, int | float) and _COMPARE[operator](float(value), number)
    texts = value if isinstance(value, tuple) else (_plain(value),)
    if operator == "~":
        return any(wanted.lower() in text.lower() for text in texts)
    return (wanted in texts or wanted == ",".join(texts)) == (operator != "!=")


def _plain(value: Value) -> str:
    if isinstance(value, Booked):
        return f"{value.booked}/{value.capacity}"
    return "" if value is None else str(value)


def _order(value: Value) -> Any:
    if isinstance(value, Booked):
        return value.share
    if isinstance(value, tuple):
        return tuple(map(natural, value))
    return value if isinstance(value, int | float) else natural(str(value))


def _column(report: Report, name: str, said: str) -> str:
    """Return the name of a column as the report has it, in whatever case it is given. Raises BadExpression."""
    names = [column.name for column in report.columns]
    for found in (name, *names):
        if found in names and found.lower() == name.lower():
            return found
    raise BadExpression(f"{said}: expected a column of this report ({', '.join(names)}), found {quoted(name)}")


_KEY = r"[A-Za-z0-9](?:[\w./-]*[A-Za-z0-9])?"
_VALUE = r"[\w.-]*"
_EQUALITY = re.compile(rf"({_KEY})\s*(==|=|!=)\s*({_VALUE})", re.ASCII)
_SET = re.compile(rf"({_KEY})\s+(in|notin)\s*\(([^()]*)\)", re.ASCII)
_PRESENCE = re.compile(rf"(!?)\s*({_KEY})", re.ASCII)
_PART = re.compile(r"((?:\([^()]*\)|[^,])*),")


Selector = Callable[[Mapping[str, str]], bool]  # labels -> whether they are selected


def parse_selector(text: str) -> Selector:
    """Parse a selector. Raises BadExpression."""
    requirements = [_requirement(part.strip(), text) for part in _PART.findall(f"{text},")]
    return lambda labels: all(each.is_met(labels.get(each.key)) for each in requirements)


def _requirement(part: str, whole: str) -> Requirement:
    if found := _EQUALITY.fullmatch(part):
        operator = "NotIn" if found[2] == "!=" else "In"
        return Requirement(key=found[1], operator=operator, values=frozenset((found[3],)))
    if found := _SET.fullmatch(part):
        values = frozenset(value.strip() for value in found[3].split(","))
        return Requirement(key=found[1], operator="NotIn" if found[2] == "notin" else "In", values=values)
    if found := _PRESENCE.fullmatch(part):
        return Requirement(key=found[2], operator="DoesNotExist" if found[1] else "Exists")
    raise BadExpression(
        f"flag -l: expected a label selector such as app=web,tier!=test,zone in (a,b), found {quoted(whole)}"
    )
