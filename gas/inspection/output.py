"""Write reports as tables, JSON, YAML and CSV. Texts of others are always shown as text: nothing in them is obeyed."""

from __future__ import annotations

import csv
import io
import json
import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from rich.cells import cell_len, set_cell_size

from gas.inspection.report import Column, Gauge, Report, Row, Value
from gas.values.amounts import gigabytes, is_bytes

DONE, NOT_SO, BAD_USE, UNREACHABLE = 0, 1, 2, 3
"""Exit codes: done; something does not fit or does not exist; a wrong command line; the cluster cannot be read."""

FORMATS = ("table", "wide", "json", "yaml", "csv")

_LONGEST = 63 + 1 + 253
"""Characters that a table shows of one text: the longest name of a Kubernetes object with its namespace."""

_GAP = "  "
_LEAST = 8
"""Characters to which a column is shortened if the terminal is too narrow."""

_BAR = 10
_RED, _YELLOW, _GREEN, _BOLD = "31", "33", "32", "1"

_Key = tuple[type, Value]
_NOTHING: frozenset[_Key] = frozenset((type(value), value) for value in (None, "", ()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """How a table is drawn.

    width    of the terminal; None if the output does not go to one, so that nothing is shortened
    colours  whether colours are used
    unicode  whether bars may be drawn with block characters
    bars     whether bars are drawn at all
    """

    width: int | None = None
    colours: bool = False
    unicode: bool = True
    bars: bool = True


def shown(text: str) -> str:
    r"""Return a text with everything escaped that could control a terminal or change the order of letters.

    Control characters, invisible ones, and letters of scripts that run from right to left become ``\u05d0``.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(each if _is_plain(each) else _escaped(each) for each in text)


def _is_plain(character: str) -> bool:
    return character.isprintable() and unicodedata.bidirectional(character) not in ("R", "AL", "AN")


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode()


def written(report: Report, form: str, look: Look) -> str:
    """Return a report in one of `FORMATS`, with a line end."""
    match form:
        case "json":
            rows = (" {\n" + ",\n".join(cells) + "\n }" for cells in _cells(report, _json_cell))
            return "[\n" + ",\n".join(rows) + "\n]\n" if report.rows else as_json([])
        case "yaml":
            return "".join("- " + "".join(cells)[2:] for cells in _cells(report, _yaml_cell)) or as_yaml([])
        case "csv":
            return _as_csv(report)
    return "".join(line + "\n" for line in table_lines(report, wide=form == "wide", look=look))


def as_json(data: object) -> str:
    """Return JSON in ASCII, so that no text in it can control a terminal."""
    return json.dumps(data, indent=1).replace("\x7f", "\\u007f") + "\n"


def as_yaml(data: object) -> str:
    """Return YAML in ASCII, block style; every text is quoted as in JSON, which YAML reads as well."""
    return "".join(f"{line}\n" for line in _yaml(data, ""))


def _yaml(data: object, margin: str) -> Iterator[str]:
    if isinstance(data, Mapping) and data:
        for key, value in data.items():
            yield from _yaml_entry(f"{margin}{_scalar(str(key))}:", value, margin + "  ")
    elif isinstance(data, list | tuple) and data:
        for value in data:
            if isinstance(value, Mapping | list | tuple) and value:
                first, *rest = _yaml(value, margin + "  ")
                yield f"{margin}- {first[len(margin) + 2 :]}"
                yield from rest
            else:
                yield f"{margin}- {_scalar(value)}"
    else:
        yield margin + _scalar(data)


def _yaml_entry(head: str, value: object, margin: str) -> Iterator[str]:
    if isinstance(value, Mapping | list | tuple) and value:
        yield head
        yield from _yaml(value, margin)
    else:
        yield f"{head} {_scalar(value)}"


def _scalar(value: object) -> str:
    if isinstance(value, str) and value.isascii() and value.isprintable() and '"' not in value and "\\" not in value:
        return f'"{value}"'  # most texts are plain
    if type(value) is int:
        return str(value)
    text = json.dumps(value, ensure_ascii=False)
    return re.sub(r"[^ -~]", lambda found: _code(ord(found[0])), text)


def _code(point: int) -> str:
    return f"\\u{point:04x}" if point < 0x10000 else f"\\U{point:08x}"


def _cells(report: Report, write: Callable[[str, Value], str]) -> Iterator[tuple[str, ...]]:
    """Return the cells of each row as a format writes them, from the name of the column and the value."""
    columns: list[list[str]] = []
    for column in report.columns:
        keys = _keys(report.rows, column)
        known = {key: write(column.name, key[1]) for key in set(keys)}
        columns.append([known[key] for key in keys])
    return zip(*columns, strict=True)


def _keys(rows: Sequence[Row], column: Column) -> list[_Key]:
    """Return the values of a column with their types, which tell 1 from True.

    Most cards of a large cluster say the same, so each format writes equal values of a column once.
    """
    name = column.name
    return [(value.__class__, value) for value in [row.get(name) for row in rows]]


def _json_cell(name: str, value: Value) -> str:
    return "  " + as_json({name: _datum(value)})[3:-3].replace("\n", "\n ")


def _yaml_cell(name: str, value: Value) -> str:
    return "".join(f"{line}\n" for line in _yaml({name: _datum(value)}, "  "))


def _datum(value: Value) -> object:
    if isinstance(value, Gauge):
        return {"booked": value.booked, "capacity": value.capacity}
    return list(value) if isinstance(value, tuple) else value


_FORMULA = ("=", "+", "-", "@")
"""With what a text begins that spreadsheets take for a formula and run."""


def _csv_text(text: str) -> str:
    """Return a text for a cell, with an apostrophe before what would be a formula: names of models may be anything."""
    return shown(f"'{text}" if text.startswith(_FORMULA) else text)


def _as_csv(report: Report) -> str:
    head: list[str] = []
    for column in report.columns:
        head += [f"{column.name}.booked", f"{column.name}.capacity"] if column.gauge else [column.name]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(head)
    for row in report.rows:
        cells: list[object] = []
        for column in report.columns:
            value = row.get(column.name)
            if column.gauge:
                cells += [value.booked, value.capacity] if isinstance(value, Gauge) else ["", ""]
            elif isinstance(value, tuple):
                cells.append(_csv_text(" ".join(value)))
            else:
                cells.append(_csv_text(value) if isinstance(value, str) else value)
        writer.writerow(cells)
    return text.getvalue()


@dataclass(slots=True)
class _Cell:
    """A cell of a table: its text, and the colour of its text or of the first ``filled`` characters."""

    text: str
    colour: str = ""


def table_lines(report: Report, *, wide: bool = False, look: Look = Look(), most: int | None = None) -> list[str]:
    """Return the lines of a table.

    The columns that have no value in any row are left out. If the terminal is narrow, bars go first, then the longest
    texts are shortened.

    most  rows to draw; None for all
    """
    rows = report.rows if most is None else report.rows[:most]
    keys = {column: _keys(rows, column) for column in report.columns if wide or not column.wide}
    columns = [column for column, of_column in keys.items() if not _NOTHING.issuperset(of_column)]
    if not columns:
        return []
    heads = [column.name.upper() for column in columns]
    bars = look.bars
    while True:
        cells = [{key: _cell(column, key[1], look, bars=bars) for key in set(keys[column])} for column in columns]
        widths = [
            max(len(head), *(_width(cell.text) for cell in known.values()))
            for head, known in zip(heads, cells, strict=True)
        ]
        total = sum(widths) + len(_GAP) * (len(widths) - 1)
        if look.width is None or total <= look.width:
            break
        if not bars:
            _shorten(widths, heads, total - look.width)
            break
        bars = False
    drawn: list[list[str]] = []
    for column, head, known, width in zip(columns, heads, cells, widths, strict=True):
        texts = {key: _padded(column, cell, width, look) for key, cell in known.items()}
        drawn.append([_padded(column, _Cell(head, _BOLD), width, look), *(texts[key] for key in keys[column])])
    return [_GAP.join(line).rstrip() for line in zip(*drawn, strict=True)]


def _shorten(widths: list[int], heads: Sequence[str], excess: int) -> None:
    """Take what is too much from the widest columns, but leave each its head and a few characters."""
    while excess > 0:
        at = max(range(len(widths)), key=lambda each: widths[each] - max(_LEAST, len(heads[each])))
        if widths[at] <= max(_LEAST, len(heads[at])):
            return
        widths[at] -= 1
        excess -= 1


def _padded(column: Column, cell: _Cell, width: int, look: Look) -> str:
    text = cell.text
    length = _width(text)
    if length > width:
        text, length = f"{set_cell_size(text, width - 1)}…" if look.unicode else set_cell_size(text, width), width
    padding = " " * (width - length)
    if look.colours and cell.colour:
        text = f"\x1b[{cell.colour}m{text}\x1b[0m"
    return padding + text if column.number else text + padding


def _width(text: str) -> int:
    return len(text) if text.isascii() else cell_len(text)


def _cell(column: Column, value: Value, look: Look, *, bars: bool) -> _Cell:
    if value is None:
        return _Cell("-")
    if isinstance(value, Gauge):
        return _gauge(column, value, look, bars=bars)
    if isinstance(value, tuple):
        return _Cell(_cut(" ".join(map(shown, value))) or "-")
    if isinstance(value, bool):
        return _Cell("yes" if value else "no")
    if isinstance(value, float):
        return _Cell(f"{value:.0%}")
    if isinstance(value, int):
        return _Cell(amount(column.resource, value))
    text = _cut(shown(value)) or "-"
    return _Cell(text, _HEALTH.get(text, "") if column.name in ("health", "state") else "")


_HEALTH = {"ok": _GREEN, "Running": _GREEN, "unhealthy": _RED, "gone": _RED, "disabled": _YELLOW, "Waiting": _YELLOW}


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


def amount(resource: str, value: int) -> str:
    """Write an amount of a resource: bytes in GB, all others as they are."""
    return f"{gigabytes(value)} GB" if is_bytes(resource) else str(value)


def _gauge(column: Column, gauge: Gauge, look: Look, *, bars: bool) -> _Cell:
    colour = _RED if gauge.share > 1 else _YELLOW if gauge.share >= 0.9 else _GREEN
    return _Cell(_gauge_text(column.resource, gauge, bars=bars, unicode=look.unicode), colour)


def _gauge_text(resource: str, gauge: Gauge, *, bars: bool, unicode: bool) -> str:
    if is_bytes(resource):
        numbers = f"{gigabytes(gauge.booked)}/{gigabytes(gauge.capacity)} GB"
    else:
        numbers = f"{gauge.booked}/{gauge.capacity}"
    if not bars:
        return numbers
    filled = min(_BAR, round(gauge.share * _BAR))
    full, empty = ("█", "░") if unicode else ("#", ".")
    return f"{full * filled}{empty * (_BAR - filled)} {numbers}"
