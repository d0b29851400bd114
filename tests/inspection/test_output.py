"""How reports are written: every format, any width, and texts that try to do harm."""

from __future__ import annotations

import csv
import io
import json
import unicodedata

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from gas.inspection.output import Look, as_data, table_lines, written
from gas.inspection.report import Booked, Column, Report, Row
from gas.inspection.rows import pod_report
from gas.values.quoted import escaped
from tests.inspection.example_cluster import example_cluster

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
DATA = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS.filter(bool), inner, max_size=3),
    max_leaves=12,
)
COLUMNS = (
    Column("name"),
    Column("memory.max", resource="memory.max", gauge=True),
    Column("pods", number=True),
    Column("list", wide=True),
)
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "name": TEXTS.map(lambda text: f"n{text}"),
            "memory.max": st.none() | st.builds(Booked, st.integers(0, 10**12), st.integers(0, 10**12)),
            "pods": st.none() | st.integers(0, 1000),
            "list": st.lists(TEXTS, max_size=3).map(tuple),
        }
    ),
    max_size=6,
)


@given(DATA)
def test_yaml_and_json_are_read_as_they_were_written_and_cannot_control_a_terminal(data: object) -> None:
    assert json.loads(as_data(data, "json")) == data
    assert yaml.safe_load(as_data(data, "yaml")) == data
    for text in (as_data(data, "json"), as_data(data, "yaml")):
        assert all(character == "\n" or " " <= character <= "~" for character in text)


@given(TEXTS)
def test_a_shown_text_has_nothing_that_controls_a_terminal_or_the_order_of_letters(text: str) -> None:
    for character in escaped(text):
        assert character.isprintable()
        assert unicodedata.bidirectional(character) not in ("R", "AL", "AN", "RLO", "LRO", "RLE", "RLI", "FSI")


@pytest.mark.parametrize("text", ["gpu-1", "Data Center GPU Flex 170", "größer", "[bold]x[/]", "日本"])
def test_an_ordinary_text_is_shown_as_it_is(text: str) -> None:
    assert escaped(text) == text


@given(ROWS, st.integers(20, 120), st.booleans(), st.booleans())
def test_all_lines_of_a_table_are_one_line_of_the_terminal(
    rows: list[Row], width: int, wide: bool, unicode: bool
) -> None:
    lines = table_lines(Report(COLUMNS, rows), wide=wide, look=Look(width=width, unicode=unicode))

    assert all(cell_len(line) <= width for line in lines)
    assert len(lines) == (len(rows) + 1 if rows else 0)
    if not unicode:
        assert not {"█", "░", "…"} & set("".join(lines)) - set("".join(str(row["name"]) for row in rows))


@given(ROWS)
def test_yaml_and_json_have_all_values_of_all_rows_in_one_style(rows: list[Row]) -> None:
    report = Report((*COLUMNS, Column("any")), [{**row, "any": at % 2 == 0 or at % 3} for at, row in enumerate(rows)])
    data = [
        {
            column.name: {"booked": value.booked, "capacity": value.capacity} if isinstance(value, Booked) else value
            for column in report.columns
            for value in [row[column.name]]
        }
        for row in report.rows
    ]
    assert written(report, "json", Look()) == as_data(data, "json")
    assert written(report, "yaml", Look()) == as_data(data, "yaml")


@given(ROWS)
def test_csv_has_the_same_columns_whatever_the_rows_are(rows: list[Row]) -> None:
    table = list(csv.reader(io.StringIO(written(Report(COLUMNS, rows), "csv", Look()))))
    assert table[0] == ["name", "memory.max.booked", "memory.max.capacity", "pods", "list"]
    assert [len(row) for row in table] == [5] * (len(rows) + 1)


@pytest.mark.parametrize("text", ["=cmd|' /C calc'!A0", "+1", "-1", "@SUM(A1)"])
def test_no_text_in_csv_is_a_formula(text: str) -> None:
    rows: list[Row] = [{"name": text, "pods": -1, "list": (text, "b")}, {"name": f"a{text}", "list": ("b", text)}]
    _, first, second = csv.reader(io.StringIO(written(Report(COLUMNS, rows), "csv", Look())))
    assert first == [f"'{text}", "", "", "-1", f"'{text} b"]
    assert second == [f"a{text}", "", "", "", f"b {text}"]


def test_a_narrow_terminal_takes_the_bars_first_and_then_the_ends_of_long_texts() -> None:
    report = Report(
        COLUMNS, [{"name": "a-long-name-of-a-node-in-a-cluster", "memory.max": Booked(4 * 10**9, 8 * 10**9)}]
    )
    whole, without_bars, cut = (table_lines(report, look=Look(width=width))[1] for width in (100, 50, 30))
    assert whole == "a-long-name-of-a-node-in-a-cluster  █████░░░░░ 4.0/8.0 GB"
    assert without_bars == "a-long-name-of-a-node-in-a-cluster  4.0/8.0 GB"
    assert cut == "a-long-name-of-a-…  4.0/8.0 GB"


def test_colours_say_how_full_a_card_is_and_are_left_out_on_request() -> None:
    report = Report(COLUMNS, [{"name": "n", "memory.max": Booked(booked, 10)} for booked in (1, 9, 11)])
    assert ["\x1b[32m" in line or "\x1b[33m" in line or "\x1b[31m" in line for line in table_lines(report)] == [
        False
    ] * 4
    green, yellow, red = table_lines(report, look=Look(colours=True))[1:]
    assert "\x1b[32m" in green
    assert "\x1b[33m" in yellow
    assert "\x1b[31m" in red


def test_columns_without_any_value_are_left_out() -> None:
    head, _ = table_lines(Report(COLUMNS, [{"name": "n", "pods": None, "list": ()}]), wide=True)
    assert head == "NAME"


def test_the_reason_of_a_waiting_pod_outlasts_its_amounts_on_a_narrow_terminal() -> None:
    lines = table_lines(pod_report(example_cluster()), wide=True, look=Look(width=80))
    assert lines[:2] == [
        "NAMESPACE  NAME      STATE    NODE    CARDS  MEMORY.MAX  NOTE",
        "default    big       Waiting  -       -               -  no card has 14.0 GB of…",
    ]
