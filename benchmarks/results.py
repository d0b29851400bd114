"""Figures that compare two things, and tables of them for a terminal and for docs/performance.md.

On the page they stand between comments: ``<!-- NAME -->`` and ``<!-- /NAME -->`` enclose a benchmark's table,
``<!-- NAME: WHAT -->`` and ``<!-- / -->`` one of its figures elsewhere.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median, quantiles

from rich.table import Table as RichTable


@dataclass(frozen=True, slots=True)
class Goal:
    """The limit that a ratio is compared with.

    at_least  whether the ratio should be at least the limit rather than at most
    unit      if the limit is for our value itself, also where there is a ratio: its unit
    """

    limit: float
    at_least: bool = False
    unit: str = ""

    def is_met(self, compared: float) -> bool:
        return compared >= self.limit if self.at_least else compared <= self.limit

    def __str__(self) -> str:
        return f"{'≥' if self.at_least else '≤'} {self.limit:g}{self.unit and f' {self.unit}'}"


@dataclass(frozen=True, slots=True)
class Figure:
    """One row: two values in one unit. ``other`` is None if there is nothing to compare with.

    spread  the lowest and the highest of the values that ``ours`` is the mean of, None if they are not shown
    noise   of the values that ``other`` is the median of, None if it is of none
    """

    what: str
    ours: float
    other: float | None = None
    unit: str = "ms"
    goal: Goal | None = None
    spread: tuple[float, float] | None = None
    noise: float | None = None

    @classmethod
    def medians(cls, what: str, ours: Sequence[float], other: Sequence[float], goal: Goal | None = None) -> "Figure":
        """Return the medians, in milliseconds, of seconds that were measured in turn."""
        return cls(what, 1e3 * median(ours), 1e3 * median(other), goal=goal, noise=noise(other))

    @property
    def ratio(self) -> float | None:
        return self.ours / self.other if self.other else None

    @property
    def added(self) -> float:
        return self.ours - (self.other or 0)

    @property
    def compared(self) -> float:
        """The value that the goal applies to: the ratio, or our value if there is no ratio or the goal has a unit."""
        return self.ours if self.ratio is None or (self.goal is not None and self.goal.unit) else self.ratio

    def verdict(self) -> str:
        """Return the figure and whether it meets its goal, as one cell."""
        value = _value(self.ours, self.unit) if self.ratio is None else f"{self.ratio:.2f}"
        return value if self.goal is None else f"{value}, {self._met}"

    @property
    def _met(self) -> str:
        return "" if self.goal is None else "met" if self.goal.is_met(self.compared) else "MISSED"

    def cells(self) -> list[str]:
        digits = None if self.spread is None else 2
        return [
            self.what,
            _value(self.ours, self.unit, digits) + ("" if self.spread is None else _spread(*self.spread)),
            "" if self.other is None else _value(self.other, self.unit, digits),
            "" if self.ratio is None else f"{self.ratio:.2f}",
            "" if self.goal is None else f"{self.goal} {self._met}",
        ]


@dataclass(frozen=True, slots=True)
class Results:
    """The results of one benchmark.

    name     as it is called on the command line
    title    what was measured and how, in one line
    ours     heading of the first value
    other    heading of the second
    notes    sentences that the figures need
    plots    name of the file -> SVG
    """

    name: str
    title: str
    figures: Sequence[Figure]
    ours: str = "gas"
    other: str = "bare extender"
    notes: Sequence[str] = ()
    plots: dict[str, str] = field(default_factory=dict)

    @property
    def headings(self) -> tuple[str, ...]:
        return ("what", self.ours, self.other, "ratio", "goal")

    @property
    def noise(self) -> float | None:
        """The median noise of the figures, None if no figure has any."""
        known = [figure.noise for figure in self.figures if figure.noise is not None]
        return median(known) if known else None

    def measured_beside(self, load: float) -> "Results":
        """Return the results, with a note if the machine was not calm.

        load  how many processors other programs kept busy meanwhile
        """
        if load <= MOST_LOAD and (self.noise or 0) <= MOST_NOISE:
            return self
        varied = "" if self.noise is None else f"; “{self.other}” varied by {self.noise:.0%}"
        return replace(self, notes=(*self.notes, f"**Not calm**: others used {max(load, 0):.2f} processors{varied}."))

    def table(self) -> RichTable:
        rows = RichTable(title=self.title, title_justify="left", caption="\n".join(self.notes), caption_justify="left")
        for at, heading in enumerate(self.headings):
            rows.add_column(heading, justify="right" if at else "left")
        for figure in self.figures:
            rows.add_row(*figure.cells())
        return rows

    def markdown(self, plots: str) -> str:
        """Return the same for a page, without goals if there are none.

        plots  folder of the plots, relative to the page
        """
        columns = 5 if any(figure.goal for figure in self.figures) else 4
        rows = [self.headings, *(figure.cells() for figure in self.figures)]
        first, *others = ("| " + " | ".join(row[:columns]) + " |" for row in rows)
        lines = [self.title + ".", "", first, "|---|" + "--:|" * (columns - 1), *others]
        lines += ["", *(f"{note}  " for note in self.notes)]
        lines += [f"![{name}]({plots}/{name}.svg)" for name in self.plots]
        return "\n".join(lines).strip()


MOST_LOAD = 0.15
MOST_NOISE = 0.25
"""Processors that other programs use, and noise, above which the machine is not calm."""


def noise(values: Sequence[float]) -> float:
    """Return how wide the middle half of values is, as a part of their median."""
    low, middle, high = quantiles(values, n=4, method="inclusive")
    return (high - low) / middle


def _value(value: float, unit: str, digits: int | None = None) -> str:
    if digits is None:
        digits = 0 if value >= 100 else 1 if value >= 10 else 2
    return f"{value:,.{digits}f} {unit}"


def _spread(lowest: float, highest: float) -> str:
    return f" ({lowest:,.2f} to {highest:,.2f})"


PAGE = Path(__file__).parent.parent / "docs" / "performance.md"
PLOTS = PAGE.with_suffix("")


class NoPlaceOnThePage(Exception):
    """The page does not have the two comments of a benchmark."""


def write(results: Results) -> None:
    """Replace the table, notes and plots of a benchmark on the page. Raises NoPlaceOnThePage."""
    page = PAGE.read_text(encoding="utf-8")
    begin, end = f"<!-- {results.name} -->", f"<!-- /{results.name} -->"
    between = re.compile(f"(?<={re.escape(begin)}\n).*?(?={re.escape(end)})", re.DOTALL)
    if not between.search(page):
        raise NoPlaceOnThePage(f"{PAGE.name} has no place for {results.name}: expected {begin} and {end}, a line each")
    table = results.markdown(PLOTS.name)
    page = between.sub(lambda _: f"\n{table}\n\n", page)
    for figure in results.figures:
        place = re.compile(f"(?<={re.escape(f'<!-- {results.name}: {figure.what} -->')})[^<]*(?=<!-- / -->)")
        page = place.sub(lambda _, figure=figure: figure.verdict(), page)  # type: ignore[misc]  # bound to this one
    PAGE.write_text(page, encoding="utf-8")
    for name, svg in results.plots.items():
        PLOTS.mkdir(exist_ok=True)
        (PLOTS / f"{name}.svg").write_text(svg, encoding="utf-8")
