"""The package as a library: its page's example runs as printed, and its surface is named."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import gas
from gas import placement

PAGE = (Path(__file__).parents[2] / "docs" / "placement.md").read_text()
BLOCKS = dict(re.findall(r"```(python|text)\n(.*?)```", PAGE, re.DOTALL))


def test_the_pages_example_prints_what_the_page_says() -> None:
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(BLOCKS["python"], "docs/placement.md", "exec"), {})
    assert printed.getvalue() == BLOCKS["text"]


def test_the_example_is_short() -> None:
    assert len([line for line in BLOCKS["python"].splitlines() if line]) <= 20


def test_the_surface_has_every_type_that_the_page_names() -> None:
    tables = "\n".join(line for line in PAGE.splitlines() if line.startswith("|"))
    named = set(re.findall(r"`([A-Z][A-Za-z]+)`", tables)) | {"place", "footprint", "InvalidValue", "SearchLimitHit"}
    assert named <= set(placement.__all__)
    assert all(hasattr(placement, name) for name in placement.__all__)


def test_the_package_carries_its_types() -> None:
    assert (Path(gas.__path__[0]) / "py.typed").exists()
