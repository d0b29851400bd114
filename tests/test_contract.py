"""The contracts under docs/contract and their citations in code and tests."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "docs" / "contract" / name for name in ("extender.md", "other-systems.md", "plugin.md")]
FOLDERS = ("gas", "configurator", "benchmarks", "simulation", "scripts", "tests")

CLAUSE = re.compile(r"^- \*\*([ADEHOPSV]\d+\.\d+)\*\* ", re.MULTILINE)
ID = r"[ADEHOPSV]\d+\.\d+"
CITATION = re.compile(rf"[Cc]ontract ({ID}(?:(?: to |, | and ){ID})*)")
"""One clause, a list, or a range within one section: ``contract E5.1, E5.3 to E5.5``."""


def stated() -> list[str]:
    """Return the ids of all clauses in the order of the pages."""
    return [clause for page in PAGES for clause in CLAUSE.findall(page.read_text(encoding="utf-8"))]


def cited(text: str) -> Iterator[str]:
    """Yield the id of every clause that the text cites; a range yields each of its clauses."""
    for citation in CITATION.findall(text):
        for first, last in re.findall(rf"({ID})(?: to ({ID}))?", citation):
            section, _, number = first.partition(".")
            end = int(last.partition(".")[2]) if last else int(number)
            yield from (f"{section}.{each}" for each in range(int(number), end + 1))


def citations() -> Iterator[tuple[Path, str]]:
    """Yield every citation in Python code with the file it is in, this file left out."""
    for folder in FOLDERS:
        for file in sorted((ROOT / folder).rglob("*.py")):
            if file != Path(__file__):
                for clause in cited(file.read_text(encoding="utf-8")):
                    yield file.relative_to(ROOT), clause


def test_a_citation_may_be_a_list_and_a_range() -> None:
    text = "Source: contract E5.1, E5.3 to E5.5 and P1.2."
    assert list(cited(text)) == ["E5.1", "E5.3", "E5.4", "E5.5", "P1.2"]


def test_clauses_are_numbered_without_gaps() -> None:
    numbers: dict[str, list[int]] = {}
    for clause in stated():
        section, _, number = clause.partition(".")
        numbers.setdefault(section, []).append(int(number))
    assert all(each == list(range(1, len(each) + 1)) for each in numbers.values())


def test_every_citation_exists() -> None:
    clauses = set(stated())
    assert [f"{file}: {clause}" for file, clause in citations() if clause not in clauses] == []


def test_every_clause_is_cited_by_a_test() -> None:
    tested = {clause for file, clause in citations() if file.parts[0] == "tests"}
    assert [clause for clause in stated() if clause not in tested] == []


def test_each_line_of_a_guides_comparison_names_clauses() -> None:
    clauses = set(stated())
    lines = 0
    for page in (ROOT / "docs").glob("from-*.md"):
        _, found, comparison = page.read_text(encoding="utf-8").partition("\n## Line by line\n")
        for line in (
            re.findall(r"^\| (?!clauses |---)(.*)", comparison.partition("\n## ")[0], re.MULTILINE) if found else ()
        ):
            named = set(re.findall(ID, line.partition("|")[0]))
            assert named, f"{page.name}: {line}"
            assert named <= clauses
            lines += 1
    assert lines
