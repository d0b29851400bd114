"""Results of the benchmarks: figures compared with goals, tables, plots, and their places on the page."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest

from benchmarks import results as results_module
from benchmarks.plot import Line, plot
from benchmarks.results import Figure, Goal, Results


@pytest.mark.parametrize(
    ("figure", "verdict"),
    [
        pytest.param(Figure("a", 3, 2, goal=Goal(2)), "1.50, met", id="small-enough"),
        pytest.param(Figure("a", 5, 2, goal=Goal(2)), "2.50, MISSED", id="too-large"),
        pytest.param(Figure("a", 95, 100, "/s", Goal(0.9, at_least=True)), "0.95, met", id="large-enough"),
        pytest.param(Figure("a", 80, 100, "/s", Goal(0.9, at_least=True)), "0.80, MISSED", id="too-small"),
        pytest.param(Figure("a", 251, None, "MB", Goal(250)), "251 MB, MISSED", id="compared-with-nothing"),
        pytest.param(Figure("a", 3, 2), "1.50", id="no-goal"),
        pytest.param(Figure("a", 96, 95, "%", Goal(97, at_least=True, unit="%")), "1.01, MISSED", id="not-the-ratio"),
    ],
)
def test_a_figure_says_whether_it_is_what_it_should_be(figure: Figure, verdict: str) -> None:
    assert figure.verdict() == verdict


def test_a_mean_is_shown_with_its_lowest_and_highest_value_and_the_goal_with_its_unit() -> None:
    figure = Figure("a", 96.216, 95.23, "%", Goal(95.9, at_least=True, unit="%"), spread=(96.19, 96.26))
    assert figure.cells() == ["a", "96.22 % (96.19 to 96.26)", "95.23 %", "1.01", "≥ 95.9 % met"]


@pytest.mark.parametrize(
    ("load", "bare", "note"),
    [
        pytest.param(0.04, [9, 10, 11], "", id="calm"),
        pytest.param(0, None, "", id="calm-compared-with-nothing"),
        pytest.param(
            0.6,
            [10, 10, 10],
            "**Not calm**: others used 0.60 processors; “bare extender” varied by 0%.",
            id="others-run",
        ),
        pytest.param(
            -0.01, [5, 10, 15, 20], "others used 0.00 processors; “bare extender” varied by 60%.", id="unsteady"
        ),
        pytest.param(0.6, None, "**Not calm**: others used 0.60 processors.", id="others-run-compared-with-nothing"),
    ],
)
def test_results_say_if_the_machine_was_not_calm(load: float, bare: list[float] | None, note: str) -> None:
    figure = Figure("a", 3) if bare is None else Figure.medians("a", [0.003, 0.004, 0.002], bare)
    measured = Results("speed", "How fast", [figure, Figure("b", 1)]).measured_beside(load)
    page = measured.markdown("performance")
    assert note in page
    assert bool(note) == ("calm" in page)


def test_figures_of_seconds_are_medians_in_milliseconds() -> None:
    figure = Figure.medians("a", [0.001, 0.004, 0.002], [0.001, 0.003, 0.001], Goal(2))
    assert figure.cells() == ["a", "2.00 ms", "1.00 ms", "2.00", "≤ 2 met"]


def results(ours: float) -> Results:
    return Results("speed", "How fast", [Figure("one", ours, 2, goal=Goal(2))], plots={"by-nodes": "<svg/>"})


def test_new_values_take_the_places_of_those_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    there = tmp_path / "performance.md"
    there.write_text("| <!-- speed: one -->old<!-- / --> |\n\n<!-- speed -->\nold\n<!-- /speed -->\nafter\n")
    monkeypatch.setattr(results_module, "PAGE", there)
    monkeypatch.setattr(results_module, "PLOTS", tmp_path / "performance")
    results_module.write(results(3))
    results_module.write(results(5))
    text = there.read_text()
    assert text.startswith("| <!-- speed: one -->2.50, MISSED<!-- / --> |\n")
    assert text.count("How fast.") == 1
    assert "| one | 5.00 ms | 2.00 ms | 2.50 | ≤ 2 MISSED |" in text
    assert "![by-nodes](performance/by-nodes.svg)" in text
    assert "old" not in text
    assert text.endswith("<!-- /speed -->\nafter\n")
    assert (tmp_path / "performance" / "by-nodes.svg").read_text() == "<svg/>"


def test_a_benchmark_without_a_place_on_the_page_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results_module, "PAGE", tmp_path / "performance.md")
    (tmp_path / "performance.md").write_text("nothing\n")
    with pytest.raises(results_module.NoPlaceOnThePage, match=r"performance\.md has no place for speed"):
        results_module.write(results(3))


def test_a_plot_has_its_axes_its_legend_and_every_point_inside() -> None:
    lines = [Line("warm", [(500, 0.25), (10_000, 3.7)]), Line("never <seen>", [(500, 2), (10_000, 9)])]
    root = ElementTree.fromstring(plot("A title", x="nodes", y="ms", lines=lines))
    svg = "{http://www.w3.org/2000/svg}"
    texts = {text.text for text in root.iter(svg + "text")}
    assert {"A title", "nodes", "ms", "warm", "never <seen>", "500", "10,000", "0.2", "10"} <= texts
    width, height = float(root.get("width", 0)), float(root.get("height", 0))
    points = [
        [float(number) for number in point.split(",")]
        for line in root.iter(svg + "polyline")
        for point in line.get("points", "").split()
    ]
    assert len(points) == 4
    assert all(0 < x < width and 0 < y < height for x, y in points)
    assert points[0][1] > points[1][1]
    assert points[0][0] < points[1][0]


def test_on_a_linear_axis_equal_differences_are_equally_far_apart() -> None:
    lines = [Line("one", [(80, 80), (90, 85), (100, 95)])]
    root = ElementTree.fromstring(plot("A title", x="asked", y="%", lines=lines, linear=(75, 100)))
    svg = "{http://www.w3.org/2000/svg}"
    texts = {text.text for text in root.iter(svg + "text")}
    assert {"75", "80", "85", "90", "95", "100"} <= texts
    (line,) = root.iter(svg + "polyline")
    low, middle, high = (float(point.split(",")[1]) for point in line.get("points", "").split())
    assert low - middle == pytest.approx((middle - high) / 2, abs=0.2)
    assert low > middle > high
