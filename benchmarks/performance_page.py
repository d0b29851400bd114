"""The results in docs/performance.md: they stand between comments, and the command puts new values there.

``<!-- NAME -->`` and ``<!-- /NAME -->`` enclose a benchmark's table, ``<!-- NAME: WHAT -->`` and ``<!-- / -->`` one of
its figures elsewhere on the page.
"""

import re
from pathlib import Path

from benchmarks.results import Results

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
