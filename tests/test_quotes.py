"""Messages that the pages quote are messages that the programs write."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ELLIPSIS = "…"

TABLES = (
    ("troubleshooting.md", "Pending with other words"),
    ("troubleshooting.md", "The ledger and annotations differ"),
    ("troubleshooting.md", "The node has no cards"),
    ("troubleshooting.md", "Other cards than decided"),
    ("troubleshooting.md", "Not ready"),
    ("troubleshooting.md", "TLS"),
    ("troubleshooting.md", "It does not start"),
    ("nodes.md", "Invalid labels and resources"),
    ("plugin.md", "Logs"),
)
"""Pages and headings of the tables whose first column quotes messages."""

OF_OTHER_PROGRAMS = ("Insufficient ", "Post ", "no such host", "context deadline exceeded", "x509: ")
"""Beginnings of messages that kube-scheduler writes."""


@cache
def messages() -> tuple[str, ...]:
    """Return all texts in the code, with an ellipsis in place of every value."""
    texts: set[str] = set()
    for folder in ("gas", "configurator"):
        for file in sorted((ROOT / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
                if isinstance(node, ast.JoinedStr):
                    parts = (part.value if isinstance(part, ast.Constant) else ELLIPSIS for part in node.values)
                    texts.add("".join(map(str, parts)))
                elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                    texts.add(re.sub(r"%[sdrg]", ELLIPSIS, node.value))
    return tuple(" ".join(text.split()) for text in texts)


def pattern(text: str) -> str:
    """Return a regular expression in which an ellipsis stands for any text."""
    return ".+".join(re.escape(part) for part in re.split(rf"{ELLIPSIS}+", text))


def is_written(quote: str) -> bool:
    """Return whether a message of the code reads like the quote.

    The quote may leave out parts of the message and its end (``its receipt is ignored: …``), or show an example of
    its values (``cannot listen on port 9001``).
    """
    left_out = re.compile(pattern(quote.strip(f"{ELLIPSIS} ")))
    if any(left_out.search(message) for message in messages()):
        return True
    letters = [(message, re.sub(rf"[^a-z{ELLIPSIS}]", "", message)) for message in messages()]
    return any(
        re.fullmatch(pattern(message), quote) is not None
        for message, letters_only in letters
        if ELLIPSIS in message and len(letters_only) >= 12
    )


def quotes(page: str, heading: str) -> Iterator[str]:
    """Yield the quoted messages of more than one word in the first column of a section's tables."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    section = text.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    for row in re.findall(r"^\|([^|]*)\|", section, re.MULTILINE):
        for quote in re.findall(r"`([^`]+)`", row):
            if " " in quote.strip(f"{ELLIPSIS} ") and not quote.startswith(OF_OTHER_PROGRAMS):
                yield quote


@pytest.mark.parametrize(
    ("page", "quote"), [(page, quote) for page, heading in TABLES for quote in quotes(page, heading)]
)
def test_a_program_writes_the_message(page: str, quote: str) -> None:
    assert is_written(quote), f"docs/{page}: {quote}"


@pytest.mark.parametrize(("page", "heading"), TABLES)
def test_the_table_is_there(page: str, heading: str) -> None:
    assert list(quotes(page, heading))
