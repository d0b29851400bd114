"""Write reports as tables, JSON, YAML and CSV. Texts from outside are shown, never obeyed."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from gas.inspection.report import Booked, Column, Report, Row, Value
from gas.values.amounts import gigabytes, is_bytes
from gas.values.quoted import escaped

DONE, NOT_SO, BAD_USE, UNREACHABLE = 0, 1, 2, 3
"""Exit codes: done; something does not fit or does not exist; a wrong command line; the cluster cannot be read."""

FORMATS = ("table", "wide", "json", "yaml", "csv")

_LONGEST = 63 + 1 + 253  # most characters of a text in a table: the longest name of an object with its namespace

_GAP = "  "
_LEAST = 16  # characters to which the last text of a row is shortened before a column is left out
_WIDE = re.compile(r"[^\x00-\u02ff░█…]")  # letters that may not be one column wide

_AGES = ((86400, "d"), (3600, "h"), (60, "m"), (1, "s"))

_BAR = 10
_RED, _YELLOW, _GREEN, _BOLD = "31", "33", "32", "1"

_Key = tuple[type, Value]
_NOTHING: frozenset[_Key] = frozenset((type(value), value) for value in (None, "", ()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    width: int | None = None  # of the terminal; None if the output does not go to one, so that nothing is shortened
    colours: bool = False
    unicode: bool = True  # bars may be drawn with block characters


def written(report: Report, form: str, look: Look, *, headers: bool = True) -> str:
    """Return a report in one of `FORMATS`, with a line end. ``headers`` are those of tables."""
    if form == "yaml" and report.rows:
        return _rows_in_yaml(report)
    if form in ("json", "yaml"):
        names = [column.name for column in report.columns]
        return as_data([{name: row.get(name) for name in names} for row in report.rows], form)
    if form == "csv":
        return _as_csv(report)
    lines = table_lines(report, wide=form == "wide", look=look)
    return "".join(line + "\n" for line in (lines if headers else lines[1:]))


def as_data(data: object, form: str) -> str:
    """Return data as JSON or YAML in ASCII, so that no text in it can control a terminal."""
    text = msgspec.json.format(msgspec.json.encode(data), indent=2 if form == "yaml" else 1).decode()
    if form == "yaml":
        return _NOT_PLAIN.sub(_in_yaml, _in_blocks(text)) + "\n"
    return _NOT_PLAIN.sub(_in_json, text) + "\n"


_NOT_PLAIN = re.compile(r"[^ -~\n]")


def _in_json(found: re.Match[str]) -> str:
    return "\\u007f" if found[0] == "\x7f" else json.dumps(found[0])[1:-1]


def _in_yaml(found: re.Match[str]) -> str:
    point = ord(found[0])
    return f"\\u{point:04x}" if point < 0x10000 else f"\\U{point:08x}"


_END = re.compile(r"\n *[]}],?(?=\n|$)")
_WITHOUT_KEY = re.compile(r'\n *(?! |"[^"\\]*(?:\\.[^"\\]*)*": )')
_BEGIN_IN_LIST = re.compile(r"- [\[{]\n *")


def _in_blocks(text: str) -> str:
    """Return JSON that is indented by 2 as YAML in block style, in which quoted texts are those of JSON."""
    begin = text.partition("\n")[0]
    if begin == text:
        return text
    lines = _END.sub("", text[len(begin) :]).replace(",\n", "\n").replace("\n  ", "\n")
    lines = _WITHOUT_KEY.sub(r"\g<0>- ", lines).replace(": {\n", ":\n").replace(": [\n", ":\n")
    return _BEGIN_IN_LIST.sub("- ", lines)[1:]


def _rows_in_yaml(report: Report) -> str:
    """Return what `as_data` returns for rows, written column by column."""
    drawn: list[list[str]] = []
    for column in report.columns:
        keys = _keys(report.rows, column)
        known = dict.fromkeys(keys)
        texts = as_data([{column.name: value} for _, value in known], "yaml")[2:-1].split("\n- ")
        of_key = dict(zip(known, texts, strict=True))
        drawn.append([of_key[key] for key in keys])
    return "".join(f"- {text}\n" for text in map("\n  ".join, zip(*drawn, strict=True)))


_FORMULA = ("=", "+", "-", "@")  # the beginnings of texts that spreadsheets take for a formula and run


def _csv_text(text: str) -> str:
    """Return a text for a cell, with an apostrophe before what would be a formula: names of models may be anything."""
    return escaped(f"'{text}" if text.startswith(_FORMULA) else text)


def _as_csv(report: Report) -> str:
    head: list[str] = []
    for column in report.columns:
        head += [f"{column.name}.booked", f"{column.name}.capacity"] if column.gauge else [column.name]
    import csv
    import io

    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(head)
    for row in report.rows:
        cells: list[object] = []
        for column in report.columns:
            value = row.get(column.name)
            if column.gauge:
                cells += [value.booked, value.capacity] if isinstance(value, Booked) else ["", ""]
            elif isinstance(value, tuple):
                cells.append(_csv_text(" ".join(value)))
            else:
                cells.append(_csv_text(value) if isinstance(value, str) else value)
        writer.writerow(cells)
    return text.getvalue()


class _Cell(NamedTuple):
    text: str
    colour: str = ""


def table_lines(report: Report, *, wide: bool = False, look: Look = Look(), most: int | None = None) -> list[str]:
    """Return the lines of a table with at most ``most`` rows.

    Columns that have no value in any row are left out. If the terminal is narrow, bars go first, then the last text of
    each row is shortened, then the least useful columns are left out.
    """
    rows = report.rows if most is None else report.rows[:most]
    keys = {column: _keys(rows, column) for column in report.columns if wide or not column.wide}
    columns = [column for column, of_column in keys.items() if not _NOTHING.issuperset(of_column)]
    if not columns:
        return []
    heads = [column.name.upper() for column in columns]
    bars = True
    while True:
        cells = [{key: _cell(column, key[1], look, bars=bars) for key in set(keys[column])} for column in columns]
        widths = [
            max(len(head), *(_width(cell.text) for cell in known.values()))
            for head, known in zip(heads, cells, strict=True)
        ]
        if look.width is None or sum(widths) + len(_GAP) * (len(widths) - 1) <= look.width:
            shown = list(range(len(columns)))
            break
        if not bars:
            shown = _narrowed(columns, heads, widths, look.width)
            break
        bars = False
    drawn: list[list[str]] = []
    for column, head, known, width in [(columns[at], heads[at], cells[at], widths[at]) for at in shown]:
        texts = {key: _padded(column, cell, width, look) for key, cell in known.items()}
        drawn.append([_padded(column, _Cell(head, _BOLD), width, look), *(texts[key] for key in keys[column])])
    return [_GAP.join(line).rstrip() for line in zip(*drawn, strict=True)]


def _keys(rows: Sequence[Row], column: Column) -> list[_Key]:
    """Return the values of a column with their types, which distinguish 1 from True.

    Most cards of a large cluster say the same, so equal values of a column are drawn or written once.
    """
    name = column.name
    return [(value.__class__, value) for value in [row.get(name) for row in rows]]


def _narrowed(columns: Sequence[Column], heads: Sequence[str], widths: list[int], most: int) -> list[int]:
    """Return the positions of the columns that fit, and shorten the last text among them.

    Wide columns are left out first, then numbers, each from the right; the last column stays longer, since it explains
    the row, and the first one always.
    """
    shown = list(range(len(columns)))
    last = shown[-1]
    spare = sorted(shown[1:], key=lambda at: (2 if columns[at].wide and at != last else int(columns[at].number), at))
    while True:
        texts = [at for at in shown if not (columns[at].number or columns[at].gauge)]
        cut = texts[-1] if texts else shown[-1]
        room = widths[cut] - (sum(widths[at] for at in shown) + len(_GAP) * (len(shown) - 1) - most)
        if room >= min(widths[cut], max(_LEAST, len(heads[cut]))) or len(shown) == 1:
            widths[cut] = max(min(widths[cut], room), 1)
            return shown
        shown.remove(spare.pop())


def _padded(column: Column, cell: _Cell, width: int, look: Look) -> str:
    text = cell.text
    length = _width(text)
    if length > width:
        from rich.cells import set_cell_size

        text, length = f"{set_cell_size(text, width - 1)}…" if look.unicode else set_cell_size(text, width), width
    padding = " " * (width - length)
    if look.colours and cell.colour:
        text = f"\x1b[{cell.colour}m{text}\x1b[0m"
    return padding + text if column.number else text + padding


def _width(text: str) -> int:
    if text.isascii() or not _WIDE.search(text):
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def _cell(column: Column, value: Value, look: Look, *, bars: bool) -> _Cell:
    if value is None:
        return _Cell("-")
    if isinstance(value, Booked):
        return _gauge(column, value, look, bars=bars)
    if isinstance(value, tuple):
        return _Cell(_cut(" ".join(map(escaped, value))) or "-")
    if isinstance(value, bool):
        return _Cell("yes" if value else "no")
    if isinstance(value, float):
        return _Cell(f"{value:.0%}")
    if isinstance(value, int):
        return _Cell(amount(column.resource, value))
    text = _cut(escaped(value)) or "-"
    return _Cell(text, _HEALTH.get(text, "") if column.name in ("health", "state") else "")


_HEALTH = {"ok": _GREEN, "Running": _GREEN, "unhealthy": _RED, "gone": _RED, "disabled": _YELLOW, "Waiting": _YELLOW}


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


def amount(resource: str, value: int) -> str:
    """Format an amount of a resource: bytes in GB, an age as kubectl does, all others as they are."""
    if resource == "age":
        seconds, letter = next((each for each in _AGES if value >= 2 * each[0]), _AGES[-1])
        return f"{value // seconds}{letter}"
    return f"{gigabytes(value)} GB" if is_bytes(resource) else str(value)


def _gauge(column: Column, gauge: Booked, look: Look, *, bars: bool) -> _Cell:
    if is_bytes(column.resource):
        numbers = f"{gigabytes(gauge.booked)}/{gigabytes(gauge.capacity)} GB"
    else:
        numbers = f"{gauge.booked}/{gauge.capacity}"
    filled = min(_BAR, round(gauge.share * _BAR))
    full, empty = ("█", "░") if look.unicode else ("#", ".")
    colour = _RED if gauge.share > 1 else _YELLOW if gauge.share >= 0.9 else _GREEN
    return _Cell(f"{full * filled}{empty * (_BAR - filled)} {numbers}" if bars else numbers, colour)
