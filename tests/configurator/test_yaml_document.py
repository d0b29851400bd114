"""Edits of YAML text: what is asked for is there, and not one other byte differs."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from configurator.errors import NotYaml
from configurator.yaml_document import LARGEST, YamlDocument

TEXT = """\
# the top
spec:   # odd spaces
  list:
  - one     # first
  -   "two"

  # between
  indented:
    - a: 1
      b:
        c: "x"
    # still of the list
  empty:
  flow: [a, {b: c}]   # end
last: |
  text
  more
"""


def parse(text: str) -> YamlDocument:
    return YamlDocument.parse("file.yaml", text.encode())


def added(before: str, after: str) -> list[str]:
    """Lines that are new; fails when any old line went or moved."""
    old = before.splitlines(keepends=True)
    new = []
    rest = iter(old)
    expected = next(rest, None)
    for line in after.splitlines(keepends=True):
        if line == expected:
            expected = next(rest, None)
        else:
            new.append(line)
    assert expected is None, f"{expected!r} is gone"
    return new


@pytest.mark.parametrize(
    ("path", "item", "lines"),
    [
        pytest.param(("spec", "list"), "--three=3", ["  - --three=3\n"], id="a list whose dashes stand under its key"),
        pytest.param(
            ("spec", "indented"),
            {"a": "2", "b": {"c": "y z"}},
            ['    - a: "2"\n', "      b:\n", '        c: "y z"\n'],
            id="an indented list of mappings",
        ),
        pytest.param(("new", "list"), "x", ["new:\n", "  list:\n", "  - x\n"], id="a list that is not there"),
    ],
)
def test_item_is_added_on_lines_of_its_own(path: tuple[str, ...], item: object, lines: list[str]) -> None:
    document = parse(TEXT).with_item(path, item)
    assert added(TEXT, document.text) == lines
    assert document.get(*path)[-1] == item


@pytest.mark.parametrize(
    ("text", "path", "value", "expected"),
    [
        pytest.param("a: 1 # one\nb: 2\n", ("a",), 7, "a: 7 # one\nb: 2\n", id="a number, its comment stays"),
        pytest.param('a: "x"\n', ("a",), "y", 'a: "y"\n', id="quotes stay"),
        pytest.param("a:\n  b: x\nc: 1\n", ("a", "d"), True, "a:\n  b: x\n  d: true\nc: 1\n", id="a new key"),
        pytest.param("a:\nc: 1\n", ("a", "d"), "x", 'a: {"d": "x"}\nc: 1\n', id="a mapping that was left empty"),
        pytest.param("a: ~\n", ("a", "d"), "x", 'a: {"d": "x"}\n', id="a mapping that is null"),
        pytest.param("a: {}\n", ("a", "d"), "x", 'a: {"d": "x"}\n', id="an empty mapping on one line"),
        pytest.param("a: {b: 1}\n", ("a", "d"), "x", 'a: {b: 1, "d": "x"}\n', id="a mapping on one line"),
        pytest.param("a: x", ("b",), "z", "a: x\nb: z\n", id="no end of the last line"),
        pytest.param("a: x\r\nb:\r\n  c: 1\r\n", ("b", "d"), "z", "a: x\r\nb:\r\n  c: 1\r\n  d: z\r\n", id="Windows"),
        pytest.param("a: |\n  text\nb: 1\n", ("c",), "z", "a: |\n  text\nb: 1\nc: z\n", id="after a text of lines"),
        pytest.param("a: |\n  text\n", ("c",), "z", "a: |\n  text\nc: z\n", id="right behind a text of lines"),
        pytest.param("a: 1\nb:\n", ("c",), "z", "a: 1\nb:\nc: z\n", id="behind a key without value"),
        pytest.param("a: x # é ü\n", ("a",), "z", "a: z # é ü\n", id="letters of several bytes"),
        pytest.param("---\na: 1\n...\n", ("b",), "yes", '---\na: 1\nb: "yes"\n...\n', id="markers of a document"),
    ],
)
def test_value_is_set(text: str, path: tuple[str, ...], value: object, expected: str) -> None:
    assert parse(text).with_value(path, value).text == expected


def test_equal_value_changes_nothing() -> None:
    document = parse(TEXT)
    assert document.with_value(("spec", "indented", 0, "b", "c"), "x") is document


def test_json_stays_json() -> None:
    text = json.dumps({"a": {"b": ["x"]}, "c": "y"}, indent=2)
    document = parse(text).with_item(("a", "b"), {"k": True}).with_value(("c",), "z").with_value(("d",), {"e": 1})
    assert json.loads(document.text) == {"a": {"b": ["x", {"k": True}]}, "c": "z", "d": {"e": 1}}


@pytest.mark.parametrize(
    ("text", "index", "expected"),
    [
        pytest.param("a:\n- x # gone\n- y # stays\n# z\n", 0, "a:\n- y # stays\n# z\n", id="of a block"),
        pytest.param("a: [x, y, z] # stays\n", 1, 'a: ["x", "z"] # stays\n', id="on one line"),
    ],
)
def test_item_is_removed(text: str, index: int, expected: str) -> None:
    assert parse(text).without_item(("a",), index).text == expected


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        pytest.param(b"", "file.yaml is empty", id="empty"),
        pytest.param(b"# only a comment\n", "file.yaml is empty", id="only a comment"),
        pytest.param(b"a:\n\t- x\n", "line 2: found character '\\t' that cannot start any token", id="tab"),
        pytest.param(b"a: 1\n---\nb: 1\n", "several YAML documents", id="several documents"),
        pytest.param(b"a: [1,\n", "is not valid YAML, line 2", id="half-written"),
        pytest.param(b"a: 'x\n", "is not valid YAML", id="cut in a text"),
        pytest.param(b"- a\n", "is not a mapping", id="a list"),
        pytest.param(b"just text\n", "is not a mapping", id="text"),
        pytest.param(b"\xff\xfea", "not text in UTF-8 (byte 0)", id="another encoding"),
        pytest.param(b"\xef\xbb\xbfa: 1\n", "byte order mark", id="byte order mark"),
        pytest.param(b"a: \0\n", "is not valid YAML", id="NUL"),
        pytest.param(b"a: 1\rb: 2\r", "line ends other than", id="line ends of old Macs"),
        pytest.param(b"a: 1\na: 2\n", "has the key 'a' twice, line 2", id="a key twice"),
        pytest.param(b"a: &x [1]\nb: *x\n", "anchors and aliases (line 1)", id="alias"),
        pytest.param(b"? [a]\n: 1\n", "a key that is not text, line 1", id="a list as key"),
        pytest.param(b"a: " + b"[" * 900, "nested too deeply", id="nested without end"),
        pytest.param(b"a: " + b"x" * LARGEST, "expected at most", id="huge"),
    ],
)
def test_what_cannot_be_edited_is_refused_with_a_sentence(content: bytes, sentence: str) -> None:
    with pytest.raises(NotYaml) as refused:
        YamlDocument.parse("file.yaml", content)
    assert sentence in str(refused.value)
    assert str(refused.value).startswith("file.yaml ")
    assert "\n" not in str(refused.value)


def test_aliases_within_aliases_take_no_time() -> None:
    text = "a0: &a0 [x]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 30))
    with pytest.raises(NotYaml, match="aliases"):
        parse(text)


def test_edit_with_another_result_is_refused() -> None:
    with pytest.raises(NotYaml, match="cannot be edited safely at line 2"):
        parse("a:\n- x\n- z\n").with_value(("a",), "one value in the place of the list")


_words = st.text(st.characters(codec="utf-8", exclude_categories=("C", "Z")) | st.just(" "), max_size=12)
_values = st.recursive(
    _words | st.booleans() | st.integers(-(10**6), 10**6),
    lambda inner: st.lists(inner, min_size=1, max_size=3) | st.dictionaries(_words, inner, min_size=1, max_size=3),
    max_leaves=8,
)


@settings(max_examples=40, deadline=None)
@given(value=_values, key=_words)
def test_every_value_is_read_back_as_it_was_written(value: Any, key: str) -> None:
    document = parse(TEXT)
    edited = document.with_value(("spec", f"new {key}"), value).with_item(("spec", "list"), value)
    assert edited.get("spec", f"new {key}") == value
    assert edited.get("spec", "list") == ["one", "two", value]
    added(TEXT, edited.text)
