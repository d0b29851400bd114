"""Plain English: prose in pages, docstrings, comments, messages and test names avoids the phrases listed here."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

PHRASES = {
    r"answers (?:an?|the|None|True|False|whether|what|which|how|with|for|no)": "returns",
    r"told|tells": "reported, says, shows, knows",
    r"held against|hold against": "compared with, checked against",
    r"strangers?": "name the actor: another client, an unwatched pod",
    r"somebody|nobody|anybody": "name the actor: another program, no pod, any user",
    r"in hand": "in progress",
    r"for ever": "forever, without end",
    r"of ours": "our, or name the thing",
    r"(?<!there )(?<!it )is no(?! longer| more| need)(?= [a-z])": "is not",
    r"as yet": "so far, yet",
    r"thereof|whereof|therein|wherein|whereby": "of it, in it, by which",
    r"lest|ere|hence": "so that … not, before, therefore",
}
"""Patterns, matched as whole words in any case, and what to write instead."""

OPENINGS = {
    r"Whose .*[^?]$": "an imperative verb, or a noun phrase",
    r"What .*[^?]$": "an imperative verb, or a noun phrase",
    r"Who .*[^?]$": "an imperative verb, or a noun phrase",
    r"Whether .*": "True if …, or Return whether …",
    r"For whom .*": "an imperative verb, or a noun phrase",
    r"Answers? .*": "Return …",
    r"Says? .*": "Return …, or Log …",
    r"Told .*": "an imperative verb, or a noun phrase",
}
"""Patterns that the first line of a docstring avoids, and what to begin with instead."""

PLURALS = {
    "Amounts",
    "Binds",
    "Cards",
    "Connections",
    "Contents",
    "Counters",
    "Facts",
    "Fields",
    "Files",
    "Flags",
    "Intervals",
    "Laws",
    "Metrics",
    "Names",
    "Namespaces",
    "Nodes",
    "Numbers",
    "Objects",
    "Pauses",
    "Pods",
    "Ports",
    "Processes",
    "Replies",
    "Requests",
    "Resources",
    "Responses",
    "Rules",
    "Seconds",
    "Secrets",
    "Sums",
    "Wheels",
}
"""Nouns with which the docstring of a class may begin. Any other first word in -s is taken for a verb."""

_THIRD_PERSON = re.compile(r"[A-Z][a-z]+s\b")

_PHRASE = re.compile(r"\b(?:" + "|".join(f"(?:{each})" for each in PHRASES) + r")\b", re.IGNORECASE)
_JSON_TEXT = re.compile(r'"(?:title|description|label|legendFormat)": *("(?:[^"\\]|\\.)*")')
_STRING_OR_COMMENT = re.compile(
    r'"""(?:[^\\]|\\.)*?"""|' + r"'''(?:[^\\]|\\.)*?'''|" + r'"(?:[^"\\\n]|\\.)*"|' + r"'(?:[^'\\\n]|\\.)*'|(#[^\n]*)",
    re.DOTALL,
)
_CODE = re.compile(r"^ *```.*?^ *```$|``.+?``|`[^`\n]+`", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Prose:
    """A piece of prose and the line of its file where it begins."""

    text: str
    line: int
    is_docstring: bool = False
    is_of_class: bool = False


def files() -> Iterator[Path]:
    """Yield every file with prose, this one left out."""
    listed = (ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "Containerfile", "Makefile"))
    yield from (file for file in listed if file.exists())
    for folder in ("gas", "configurator", "benchmarks", "simulation", "scripts", "deploy", "docs", "examples", "tests"):
        for file in sorted((ROOT / folder).rglob("*")):
            generated = "_pb2" in file.name or "components" in file.parts
            if (
                file.suffix in {".py", ".md", ".yaml", ".txt", ".tpl", ".sh", ".json"}
                and not generated
                and file != Path(__file__)
            ):
                yield file


def prose(file: Path) -> Iterator[Prose]:
    """Yield the prose of a file: a page as a whole; docstrings, comments, strings and test names of a module.

    Of JSON, such as a dashboard, these are the texts for people.
    """
    text = file.read_text(encoding="utf-8")
    if file.suffix == ".json":
        for match in _JSON_TEXT.finditer(text):
            yield Prose(json.loads(match[1]), 1 + text.count("\n", 0, match.start()))
        return
    if file.suffix != ".py":
        yield Prose(_CODE.sub(_blank, text), 1)
        return
    yield from prose_of(text)


def prose_of(text: str) -> Iterator[Prose]:
    """Yield the prose of a module."""
    tree = ast.parse(text)
    docstrings, of_classes = set(), set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            if ast.get_docstring(node) and isinstance(node.body[0], ast.Expr):
                docstrings.add(id(node.body[0].value))
                if isinstance(node, ast.ClassDef):
                    of_classes.add(id(node.body[0].value))
            if not isinstance(node, ast.Module) and node.name.startswith(("test_", "Test")):
                yield Prose(node.name.replace("_", " "), node.lineno)
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            words = node.value if " " in node.value else node.value.replace("-", " ")
            yield Prose(_CODE.sub(_blank, words), node.lineno, id(node) in docstrings, id(node) in of_classes)
    for match in _STRING_OR_COMMENT.finditer(text):  # a tokenizer takes as long as all the rest
        if match[1]:
            yield Prose(_CODE.sub(_blank, match[1]), 1 + text.count("\n", 0, match.start()))


def _blank(code: re.Match[str]) -> str:
    """Return as many line ends as the code had, so that line numbers stay right."""
    return "code" + "\n" * code[0].count("\n")


def faults(piece: Prose) -> Iterator[tuple[int, str, str]]:
    """Yield the line, the words to avoid and the replacement of each fault."""
    for match in _PHRASE.finditer(piece.text):
        replacement = next(
            better
            for phrase, better in PHRASES.items()
            if re.search(rf"\b(?:{phrase})\b", match[0] + " x", re.IGNORECASE)
        )
        yield piece.line + piece.text.count("\n", 0, match.start()), match[0], replacement
    if piece.is_docstring:
        first = piece.text.strip().partition("\n")[0]
        for opening, better in OPENINGS.items():
            if re.match(opening, first):
                yield piece.line, first, better
        verb = _THIRD_PERSON.match(first) if piece.is_of_class else None
        if verb is not None and verb[0] not in PLURALS:
            yield piece.line, first, "an imperative verb, or a noun phrase (PLURALS lists nouns in the plural)"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Answers the body.", ["Answers the"]),
        ("Raises Unreadable for what is no JSON.", ["is no"]),
        ("There is no card left, and Intel no longer maintains it.", []),
        ("The request in hand is finished.", ["in hand"]),
        ("Nobody waits; `nobody` is a user.", ["Nobody"]),
    ],
)
def test_the_phrases_are_found(text: str, found: list[str]) -> None:
    assert [words for _, words, _ in faults(Prose(_CODE.sub(_blank, text), 1))] == found


@pytest.mark.parametrize("first", ["Whose devices kubelet is asking for.", "Answer the trouble, if any."])
def test_a_docstring_that_begins_with_a_riddle_is_found(first: str) -> None:
    assert list(faults(Prose(first, 1, is_docstring=True)))


@pytest.mark.parametrize(
    ("first", "is_fault"),
    [("Turns a pod into its need.", True), ("Turn a pod into its need.", False), ("Nodes with the same cards.", False)],
)
def test_the_docstring_of_a_class_that_begins_with_a_third_person_verb_is_found(first: str, *, is_fault: bool) -> None:
    assert bool(list(faults(Prose(first, 1, is_docstring=True, is_of_class=True)))) is is_fault
    (piece,) = (each for each in prose_of(f'class A:\n    """{first}"""\n') if each.is_docstring)
    assert bool(list(faults(piece))) is is_fault


def test_comments_are_read_and_strings_with_a_hash_are_not_comments() -> None:
    module = """a = "one # string"  # it's two
b = '''
# "three" '''  # four
c = '\\'# five'
# six
"""
    comments = [(piece.text, piece.line) for piece in prose_of(module) if piece.text.startswith("# ")]
    assert comments == [("# it's two", 1), ("# four", 3), ("# six", 5)]


def test_the_texts_of_json_are_read(tmp_path: Path) -> None:
    file = tmp_path / "dashboard.json"
    file.write_text('{"panels": [\n {"title": "Nobody \\"waits\\"", "expr": "nobody"}\n]}', encoding="utf-8")
    assert [(piece.text, piece.line) for piece in prose(file)] == [('Nobody "waits"', 2)]


def test_prose_is_plain_english() -> None:
    found = [
        f"{file.relative_to(ROOT)}:{line}: {words!r}; write: {better}"
        for file in files()
        for piece in prose(file)
        for line, words, better in faults(piece)
    ]
    assert found == [], "\n" + "\n".join(found)
