"""``python -m benchmarks``: every benchmark, as a table of ratios."""

from __future__ import annotations

import asyncio

from rich.console import Console
from rich.table import Table

from benchmarks.filter import SIZE, Result, measure


def table(results: list[Result]) -> Table:
    """One row for each figure; medians in milliseconds."""
    title = f"{SIZE.nodes:,} nodes of 8 cards, {SIZE.pods:,} placed pods; medians of runs in turn"
    rows = Table(title=title, title_justify="left")
    for heading in ("what", "gas", "bare extender", "ratio", "goal"):
        rows.add_column(heading, justify="left" if heading == "what" else "right")
    for result in results:
        goal = "" if result.goal is None else f"≤ {result.goal:g}"
        rows.add_row(
            result.what, f"{1e3 * result.ours:.2f} ms", f"{1e3 * result.bare:.2f} ms", f"{result.ratio:.2f}", goal
        )
    return rows


if __name__ == "__main__":
    Console(width=110).print(table(asyncio.run(measure())))
