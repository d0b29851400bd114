"""YAML is edited by a round trip: what is asked for changes, everything else keeps its text."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from configurator.errors import NotYaml
from configurator.scheduler_configuration import NotAConfiguration, parse_scheduler_configuration
from configurator.yaml_document import YamlDocument
from gas.values.yaml_text import LARGEST
from tests.configurator.control_plane_files import added

TEXT = """\
# the top
spec:   # odd spaces
  list:
  - one     # first
  - "two"
  indented:
  - a: 0644
    b:
      c: "x"
    # still of the list
  empty:
  flow: [a, {b: on}] # end
last: |
  text
  more
"""


def parse(text: str) -> YamlDocument:
    return YamlDocument("file.yaml", text.encode())


def text_of(document: YamlDocument) -> str:
    return document.content.decode()


@pytest.mark.parametrize(
    ("path", "item", "lines"),
    [
        pytest.param(("spec", "list"), "--three=3", ["  - --three=3\n"], id="a list of words"),
        pytest.param(
            ("spec", "indented"),
            {"a": "2", "b": {"c": "y z"}},
            ['  - a: "2"\n', "    b:\n", '      c: "y z"\n'],
            id="a list of mappings",
        ),
        pytest.param(("new", "list"), "x", ["new:\n", "  list:\n", "  - x\n"], id="a list that is not there"),
    ],
)
def test_item_is_added_on_lines_of_its_own(path: tuple[str, ...], item: object, lines: list[str]) -> None:
    document = parse(TEXT)
    document.append(path, item)
    assert added(TEXT, text_of(document)) == lines
    assert document.get(*path)[-1] == item


@pytest.mark.parametrize(
    ("text", "path", "value", "expected"),
    [
        pytest.param("a: 1 # one\nb: 2\n", ("a",), 7, "a: 7 # one\nb: 2\n", id="a number, its comment stays"),
        pytest.param('a: "x"\n', ("a",), "y", 'a: "y"\n', id="quotes stay"),
        pytest.param("a: 'x'\n", ("a",), "y", "a: 'y'\n", id="single quotes stay"),
        pytest.param("a:\n  b: x\nc: 1\n", ("a", "d"), True, "a:\n  b: x\n  d: true\nc: 1\n", id="a new key"),
        pytest.param("a:\nc: 1\n", ("a", "d"), "x", "a:\n  d: x\nc: 1\n", id="a mapping that was left empty"),
        pytest.param("a: {b: 1}\n", ("a", "d"), "x", "a: {b: 1, d: x}\n", id="a mapping on one line"),
        pytest.param("a: x", ("b",), "z", "a: x\nb: z\n", id="no end of the last line"),
        pytest.param("a: x\r\nb:\r\n  c: 1\r\n", ("b", "d"), "z", "a: x\r\nb:\r\n  c: 1\r\n  d: z\r\n", id="Windows"),
        pytest.param("a: |\n  text\nb: 1\n", ("c",), "z", "a: |\n  text\nb: 1\nc: z\n", id="after a text of lines"),
        pytest.param("a:\n    b: x\n", ("a", "d"), "z", "a:\n    b: x\n    d: z\n", id="indented by 4"),
        pytest.param("a:\n  - x\n", ("b",), ["z"], "a:\n  - x\nb:\n  - z\n", id="indented dashes"),
        pytest.param("a: x # é ü\n", ("a",), "z", "a: z # é ü\n", id="letters of several bytes"),
        pytest.param("# c\n---\na: 1\n...\n", ("b",), "yes", '# c\n---\na: 1\nb: "yes"\n...\n', id="markers"),
        pytest.param(
            "a: 0644\nb: yes\nc: 1e3\n", ("d",), 1, "a: 0644\nb: yes\nc: 1e3\nd: 1\n", id="values of YAML 1.1"
        ),
        pytest.param("a: &x 1\n", ("b",), 2, "a: &x 1\nb: 2\n", id="an anchor without an alias"),
    ],
)
def test_value_is_set(text: str, path: tuple[str, ...], value: object, expected: str) -> None:
    document = parse(text)
    document.set(path, value)
    assert text_of(document) == expected


def test_equal_value_changes_no_byte() -> None:
    text = TEXT.replace("first", "first   ").replace('"two"', '   "two"').replace("\n", "\r\n")
    document = parse(text)
    document.set(("spec", "indented", 0, "b", "c"), "x")
    assert text_of(document) == text


@pytest.mark.parametrize("indent", [None, 2])
def test_json_stays_json(indent: int | None) -> None:
    document = parse(json.dumps({"a": {"b": ["x"]}, "c": 1e20}, indent=indent))
    document.append(("a", "b"), {"k": True})
    document.set(("d",), {"e": 1})
    expected = {"a": {"b": ["x", {"k": True}]}, "c": 1e20, "d": {"e": 1}}
    assert text_of(document) == json.dumps(expected, indent=indent) + "\n"


def test_item_is_removed() -> None:
    document = parse("a:\n- x # gone\n- y # stays\nb: [x, y]\n")
    document.remove(("a",), 0)
    document.remove(("b",), 1)
    assert text_of(document) == "a:\n- y # stays\nb: [x]\n"


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
        pytest.param(b'a: "\\ud83d"\n', "an escape of half a character", id="surrogate"),
        pytest.param(b"a: 1\rb: 2\r", "line ends other than", id="line ends of old Macs"),
        pytest.param(b"a: 1\na: 2\n", "has the key 'a' twice, line 2", id="a key twice"),
        pytest.param(b"a: &x [1]\nb: *x\n", "anchors and aliases (line 1)", id="alias"),
        pytest.param(b"a: &x y\nb: *x\n", "anchors and aliases", id="alias of a word"),
        pytest.param(b"a: &x {b: 1}\nc:\n  <<: *x\n", "anchors and aliases", id="merged mapping"),
        pytest.param(b"? [a]\n: 1\n", "a key that is not text, line 1", id="a list as key"),
        pytest.param(b"a: " + b"[" * 900, "nested too deeply", id="nested without end"),
        pytest.param(b"a: " + b"x" * LARGEST, "expected at most", id="huge"),
    ],
)
def test_what_cannot_be_edited_is_refused_with_a_sentence(content: bytes, sentence: str) -> None:
    with pytest.raises(NotYaml) as refused:
        YamlDocument("file.yaml", content)
    assert sentence in str(refused.value)
    assert str(refused.value).startswith("file.yaml ")
    assert "\n" not in str(refused.value)


def test_aliases_within_aliases_take_no_time() -> None:
    text = "a0: &a0 [x]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 30))
    with pytest.raises(NotYaml, match="aliases"):
        parse(text)


def test_value_in_a_list_is_refused() -> None:
    with pytest.raises(NotYaml, match=r"has no mapping at spec\.list, where one is expected"):
        parse(TEXT).set(("spec", "list", "x"), "y")
    with pytest.raises(NotYaml, match="has no list at last, where one is expected"):
        parse(TEXT).append(("last",), "y")


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
    document.set(("spec", f"new {key}"), value)
    document.append(("spec", "list"), value)
    again = YamlDocument("again", document.content)
    assert again.get("spec", f"new {key}") == value
    assert again.get("spec", "list") == ["one", "two", value]
    added(TEXT, text_of(document))


def test_a_longer_configuration_is_not_parsed() -> None:
    with pytest.raises(NotAConfiguration, match=f"it has more than {LARGEST} bytes"):
        parse_scheduler_configuration(b"x" * (LARGEST + 1))
