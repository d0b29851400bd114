"""Sorting and filtering rows, and label selectors."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from gas.inspection.report import (
    BadExpression,
    Booked,
    Column,
    Report,
    keep_rows,
    parse_selector,
    sort_rows,
)
from tests.lines import at_most

REPORT = Report(
    (Column("node"), Column("memory.max", gauge=True), Column("used"), Column("holders")),
    [
        {"node": "gpu-10", "memory.max": Booked(2, 8), "used": 5, "holders": ("a/x", "b/y")},
        {"node": "gpu-2", "memory.max": Booked(6, 16), "used": None, "holders": ()},
        {"node": "gpu-1", "memory.max": Booked(8, 8), "used": 3, "holders": ("a/z",)},
    ],
)


def nodes(report: Report) -> list[object]:
    return [row["node"] for row in report.rows]


@pytest.mark.parametrize(
    ("by", "sorted_nodes"),
    [
        pytest.param("", ["gpu-10", "gpu-2", "gpu-1"], id="as-they-are"),
        pytest.param("node", ["gpu-1", "gpu-2", "gpu-10"], id="numbers-in-names-by-value"),
        pytest.param("-node", ["gpu-10", "gpu-2", "gpu-1"], id="reversed"),
        pytest.param("memory.max", ["gpu-10", "gpu-2", "gpu-1"], id="by-booked-share"),
        pytest.param("used", ["gpu-1", "gpu-10", "gpu-2"], id="unknown-last"),
        pytest.param("-used", ["gpu-10", "gpu-1", "gpu-2"], id="unknown-last-reversed"),
    ],
)
def test_rows_are_sorted(by: str, sorted_nodes: list[str]) -> None:
    assert nodes(sort_rows(REPORT, by)) == sorted_nodes


@pytest.mark.parametrize(
    ("conditions", "kept"),
    [
        pytest.param(["node=gpu-1"], ["gpu-1"], id="equal"),
        pytest.param(["node!=gpu-1"], ["gpu-10", "gpu-2"], id="not-equal"),
        pytest.param(["node~PU-1"], ["gpu-10", "gpu-1"], id="part-in-any-case"),
        pytest.param(["memory.max>30"], ["gpu-2", "gpu-1"], id="percent-booked"),
        pytest.param(["used<4"], ["gpu-1"], id="unknown-is-not-less"),
        pytest.param(["holders=b/y"], ["gpu-10"], id="one-of-several"),
        pytest.param(["holders~a/", "used>4"], ["gpu-10"], id="all-conditions"),
        pytest.param(["used="], ["gpu-2"], id="unknown-is-empty"),
    ],
)
def test_rows_are_kept(conditions: list[str], kept: list[str]) -> None:
    assert nodes(keep_rows(REPORT, conditions)) == kept


@pytest.mark.parametrize("condition", ["nothing", "size=3", "used>x", "=5"])
def test_a_condition_that_cannot_be_read_is_refused(condition: str) -> None:
    with pytest.raises(BadExpression, match=r"flag --where: expected"):
        keep_rows(REPORT, [condition])


LABELS = {"app": "web", "example.com/zone": "a", "empty": ""}


@pytest.mark.parametrize(
    ("selector", "selects"),
    [
        ("app=web", True),
        ("app==web", True),
        ("app!=web", False),
        ("missing!=x", True),
        ("app", True),
        ("!app", False),
        ("!missing", True),
        ("app in (db, web)", True),
        ("app notin (db,web)", False),
        ("missing notin (x)", True),
        ("example.com/zone=a,app=web", True),
        ("example.com/zone=b,app=web", False),
        ("empty=", True),
    ],
)
def test_a_selector_selects_as_kubectl_does(selector: str, selects: bool) -> None:
    labels: Mapping[str, str] = LABELS
    assert parse_selector(selector)(labels) is selects


@pytest.mark.parametrize("selector", ["a=b=c", "a in b", "a,,b", "a,", "=b", "a in (b", "a b"])
def test_a_malformed_selector_is_refused(selector: str) -> None:
    with pytest.raises(BadExpression, match=r"flag -l: expected a label selector such as"):
        parse_selector(selector)


def test_a_long_selector_is_read_in_time_that_grows_with_its_length() -> None:
    with at_most(3_000_000):
        assert parse_selector(",".join(["a=b"] * 60_000))({"a": "b"})
