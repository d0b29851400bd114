"""The map of docs/architecture.md: its boxes exist, and its arrows are the imports of the code."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
MAP = PAGE.partition("```mermaid\n")[2].partition("```")[0]
BOXES = {name: tuple(text.split(", ")) for name, text in re.findall(r'^ *(\w+)\["([^"<]+)<br/>', MAP, re.MULTILINE)}
"""The files and folders of each box."""
GROUPS = {
    name: tuple(re.findall(r"^ *(\w+)\[", content, re.MULTILINE))
    for name, content in re.findall(r"subgraph (\w+) [^\n]*\n(.*?)\n    end", MAP, re.DOTALL)
}
"""The boxes of each frame."""
LARGE = (*GROUPS["trials"], *GROUPS["programs"])


def arrows() -> Iterator[tuple[str, str]]:
    """Yield the ends of every solid arrow of the map."""
    for line in MAP.splitlines():
        yield from pairwise(line.strip().split(" --> "))


def python_files(name: str) -> Iterator[Path]:
    """Yield the modules of a box, or of all boxes of a frame."""
    for box in GROUPS.get(name, (name,)):
        for path in BOXES[box]:
            yield from [ROOT / path] if path.endswith(".py") else (ROOT / path).rglob("*.py")


@cache
def imported(name: str) -> set[str]:
    """Return the modules that a box imports by the project's absolute names, and what it imports from them."""
    found: set[str] = set()
    for file in python_files(name):
        text = file.read_text(encoding="utf-8")
        for module, names in re.findall(r"^ *from ([\w.]+) import (\([^)]*\)|[^\n]*)", text, re.MULTILINE):
            found |= {module, *(f"{module}.{each}" for each in re.findall(r"\w+", names))}
        found |= set(re.findall(r"^ *import ([\w.]+)", text, re.MULTILINE))
    return found


def imports(one: str, other: str) -> bool:
    """Return whether one box or frame imports another."""
    modules = {path.removesuffix(".py").replace("/", ".") for box in GROUPS.get(other, (other,)) for path in BOXES[box]}
    return any(each == module or each.startswith(f"{module}.") for each in imported(one) for module in modules)


@pytest.mark.parametrize("name", BOXES)
def test_every_box_exists(name: str) -> None:
    assert all((ROOT / path).exists() for path in BOXES[name])


@pytest.mark.parametrize(("one", "other"), list(arrows()))
def test_every_arrow_is_an_import(one: str, other: str) -> None:
    assert imports(one, other)


@pytest.mark.parametrize("one", LARGE)
def test_every_import_between_programs_is_an_arrow(one: str) -> None:
    drawn = set(arrows())
    assert {other for other in LARGE if other != one and imports(one, other)} == {
        other for other in LARGE if (one, other) in drawn
    }
