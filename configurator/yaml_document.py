"""Edit a YAML file as text, so that every other byte stays as it is.

The text is parsed only to find where values are. An edit inserts text, or replaces the text of one value, and returns a
new document, so comments, order, quotes, line ends and indentation of the rest cannot change. The result is parsed
again. If it does not have exactly the requested content, the edit is refused.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self, TypeGuard

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from configurator.errors import NotYaml

Path = tuple[str | int, ...]
"""The path to a value: keys of mappings and indices of sequences."""

LARGEST = 256 * 1024
"""Bytes. A usual manifest has 2,000."""

_NULL = "tag:yaml.org,2002:null"
_PLAIN = re.compile(r"(--)?[A-Za-z/_][A-Za-z0-9/_.=-]*", re.ASCII)
_RESERVED = frozenset({"true", "false", "yes", "no", "on", "off", "y", "n", "null"})


@dataclass(frozen=True, slots=True)
class YamlDocument:
    """A YAML document that is a mapping.

    name   of the file, for messages
    text   of the whole file
    """

    name: str
    text: str
    _root: MappingNode

    @classmethod
    def parse(cls, name: str, content: bytes) -> Self:
        """Parse the content of a file. Raises NotYaml, with the line if it is known."""
        if len(content) > LARGEST:
            raise NotYaml(name, f"has {len(content)} bytes; expected at most {LARGEST}")
        try:
            text = content.decode("utf-8")
        except UnicodeDecodeError as error:
            raise NotYaml(name, f"is not text in UTF-8 (byte {error.start})") from None
        if text.startswith("\ufeff"):
            raise NotYaml(name, "begins with a byte order mark; save it as UTF-8 without one")
        if re.search(r"\r(?!\n)|[\u0085\u2028\u2029]", text):
            raise NotYaml(name, "has line ends other than those of Unix and Windows")
        return cls._of(name, text)

    @classmethod
    def _of(cls, name: str, text: str) -> Self:
        return cls(name, text, _composed(name, text))

    @property
    def content(self) -> bytes:
        return self.text.encode()

    def get(self, *path: str | int) -> Any:
        """Return the value at a path as plain Python, None if there is none.

        Numbers and booleans are those of YAML 1.1, which Kubernetes reads.
        """
        node = self._find(path)
        return None if node is None else _plain(node)

    def with_value(self, path: Path, value: object) -> YamlDocument:
        """Replace or add the value at a path. Mappings around it are made if they do not exist."""
        if value is not None and self.get(*path) == value:
            return self
        *outer, key = path
        around = self._find(outer)
        if around is None or _is_null(around):
            return self.with_value(tuple(outer), {key: value})
        found = self._find(path)
        wanted = self.get()
        if found is not None:
            _inner(wanted, outer)[key] = value
            return self._replaced(outer, key, found, value, wanted)
        if not isinstance(around, MappingNode):
            raise NotYaml(self.name, f"has no mapping at {_words(outer)}, where one is expected")
        _inner(wanted, outer)[key] = value
        block = block_form({key: value}, around.start_mark.column)
        return self._appended(around, block, f"{json_form(key)}: {json_form(value)}", wanted)

    def with_item(self, path: Path, item: object) -> YamlDocument:
        """Append an item to a sequence, which is made if it does not exist."""
        around = self._find(path)
        if around is None or _is_null(around):
            return self.with_value(path, [item])
        if not isinstance(around, SequenceNode):
            raise NotYaml(self.name, f"has no list at {_words(path)}, where one is expected")
        wanted = self.get()
        _inner(wanted, path).append(item)
        return self._appended(around, block_form([item], around.start_mark.column), json_form(item), wanted)

    def without_item(self, path: Path, index: int) -> YamlDocument:
        """Remove an item from a sequence."""
        around = self._find(path)
        if not isinstance(around, SequenceNode) or not index < len(around.value):
            raise KeyError((*path, index))
        wanted = self.get()
        rest = _inner(wanted, path)
        del rest[index]
        if around.flow_style or not rest:
            return self._spliced(around.start_mark.index, self._end(around), json_form(rest), wanted)
        item = around.value[index]
        start = self.text.rfind("\n", 0, item.start_mark.index) + 1
        return self._spliced(start, self._line_end(self._end(item)), "", wanted)

    def _find(self, path: Sequence[str | int]) -> Node | None:
        node: Node = self._root
        for step in path:
            if isinstance(step, int):
                if not isinstance(node, SequenceNode) or step >= len(node.value):
                    return None
                node = node.value[step]
            else:
                if not isinstance(node, MappingNode):
                    return None
                found = next((value for key, value in node.value if key.value == step), None)
                if found is None:
                    return None
                node = found
        return node

    def _replaced(
        self, outer: Sequence[str | int], key: str | int, found: Node, value: object, wanted: object
    ) -> YamlDocument:
        if not _is_empty(found):
            start = found.start_mark.index
            new = json_form(value) if self.text[start] == '"' else flow_form(value)
            return self._spliced(start, self._end(found), new, wanted)
        # An empty value has no text of its own, so the new one goes after the colon of its key.
        around = self._find(outer)
        name = next((each for each, _ in around.value if each.value == key), None) if _is_mapping(around) else None
        if name is None:
            raise NotYaml(self.name, f"has an empty item at {_words((*outer, key))}")
        colon = self.text.index(":", name.end_mark.index) + 1
        return self._spliced(colon, colon, " " + flow_form(value), wanted)

    def _appended(
        self, around: MappingNode | SequenceNode, block: list[str], flow: str, wanted: object
    ) -> YamlDocument:
        if around.flow_style:
            place = self._end(_last(around)) if around.value else around.start_mark.index + 1
            return self._spliced(place, place, f", {flow}" if around.value else flow, wanted)
        newline = "\r\n" if "\r\n" in self.text else "\n"
        place = self._line_end(self._end(around))
        before = "" if self.text[:place].endswith("\n") else newline
        return self._spliced(place, place, before + "".join(line + newline for line in block), wanted)

    def _end(self, node: Node) -> int:
        """Return where the text of a value ends. The parser's own mark for a block is where the next token begins."""
        if not isinstance(node, (MappingNode, SequenceNode)) or node.flow_style:
            return int(node.end_mark.index)
        last = node.value[-1]
        if isinstance(last, tuple):
            key, value = last
            return self.text.index(":", key.end_mark.index) + 1 if _is_empty(value) else self._end(value)
        if _is_empty(last):
            raise NotYaml(self.name, f"has an empty item in the list at line {node.start_mark.line + 1}")
        return self._end(last)

    def _line_end(self, place: int) -> int:
        """Return the index after the end of the line. The beginning of a line is the end of the one before."""
        if self.text[:place].endswith("\n"):
            return place
        found = self.text.find("\n", place)
        return len(self.text) if found < 0 else found + 1

    def _spliced(self, start: int, end: int, new: str, wanted: object) -> YamlDocument:
        edited = self.text[:start] + new + self.text[end:]
        line = self.text.count("\n", 0, start) + 1
        try:
            document = YamlDocument._of(self.name, edited)
        except NotYaml:
            document = None
        if document is None or document.get() != wanted:
            raise NotYaml(self.name, f"is written in a way that cannot be edited safely at line {line}")
        return document


def _composed(name: str, text: str) -> MappingNode:
    parser = YAML(typ="safe", pure=True)
    parser.version = (1, 1)
    try:
        root = parser.compose(text)
    except MarkedYAMLError as error:
        if "another document" in str(error.problem):
            raise NotYaml(name, "holds several YAML documents; expected one") from None
        line = f", line {error.problem_mark.line + 1}" if error.problem_mark is not None else ""
        raise NotYaml(name, f"is not valid YAML{line}: {_one_line(error.problem or error.context)}") from None
    except YAMLError as error:
        raise NotYaml(name, f"is not valid YAML: {_one_line(str(error))}") from None
    except RecursionError:
        raise NotYaml(name, "is nested too deeply to be read") from None
    if root is None:
        raise NotYaml(name, "is empty")
    if not isinstance(root, MappingNode):
        raise NotYaml(name, "is not a mapping of keys to values, as every Kubernetes object is")
    _refuse_what_cannot_be_edited(name, root)
    return root


def _refuse_what_cannot_be_edited(name: str, root: Node) -> None:
    seen: set[int] = set()
    for node in _nodes(root):
        line = node.start_mark.line + 1
        if id(node) in seen:
            raise NotYaml(name, f"uses YAML anchors and aliases (line {line}); write the values out, and run again")
        seen.add(id(node))
        if not isinstance(node, MappingNode):
            continue
        keys: set[str] = set()
        for key, _ in node.value:
            if not isinstance(key, ScalarNode):
                raise NotYaml(name, f"has a key that is not text, line {key.start_mark.line + 1}")
            if key.value in keys:
                raise NotYaml(name, f"has the key {key.value!r} twice, line {key.start_mark.line + 1}")
            keys.add(key.value)


def _nodes(root: Node) -> Iterator[Node]:
    """Yield every node. One with several aliases comes several times, but its content once."""
    waiting = [root]
    entered: set[int] = set()
    while waiting:
        node = waiting.pop()
        yield node
        if id(node) in entered:
            continue
        entered.add(id(node))
        if isinstance(node, MappingNode):
            waiting += [each for pair in node.value for each in pair]
        elif isinstance(node, SequenceNode):
            waiting += node.value


def _plain(node: Node) -> Any:
    if isinstance(node, MappingNode):
        return {key.value: _plain(value) for key, value in node.value}
    if isinstance(node, SequenceNode):
        return [_plain(item) for item in node.value]
    kind = str(node.tag).rpartition(":")[2]
    if kind == "null":
        return None
    if kind == "bool":
        return node.value.lower() in ("true", "yes", "on", "y")
    if kind == "int" and re.fullmatch(r"[-+]?(0|[1-9][0-9]{0,17})", node.value):
        return int(node.value)
    if kind == "float" and re.fullmatch(r"[-+]?[0-9]{1,17}\.[0-9]{1,17}", node.value):
        return float(node.value)
    return node.value


def _is_null(node: Node) -> bool:
    return isinstance(node, ScalarNode) and str(node.tag) == _NULL


def _is_empty(node: Node) -> bool:
    """Return whether the value has no text."""
    return isinstance(node, ScalarNode) and node.value == "" and node.style is None and _is_null(node)


def _is_mapping(node: Node | None) -> TypeGuard[MappingNode]:
    return isinstance(node, MappingNode)


def _inner(data: Any, path: Sequence[str | int]) -> Any:
    for step in path:
        data = data[step]
    return data


def _last(around: MappingNode | SequenceNode) -> Node:
    last = around.value[-1]
    found: Node = last[1] if isinstance(last, tuple) else last
    return found


def _one_line(problem: str | None) -> str:
    return " ".join((problem or "it cannot be parsed").split())


def _words(path: Sequence[str | int]) -> str:
    return ".".join(str(step) for step in path) or "its top"


def flow_form(value: object) -> str:
    """Return a value on one line as kubeadm writes it: plain if that is unambiguous, else as JSON."""
    if isinstance(value, str):
        return value if _PLAIN.fullmatch(value) and value.lower() not in _RESERVED else json_form(value)
    return json_form(value)


def block_form(value: object, column: int) -> list[str]:
    """Return the lines of a mapping or list with its keys or dashes at the column, as kubeadm writes them."""
    margin = " " * column
    lines: list[str] = []
    if isinstance(value, Mapping):
        for key, inner in value.items():
            head = f"{margin}{flow_form(key)}:"
            if isinstance(inner, Mapping) and inner:
                lines += [head, *block_form(inner, column + 2)]
            elif isinstance(inner, list) and inner:
                lines += [head, *block_form(inner, column)]
            else:
                lines.append(f"{head} {flow_form(inner)}")
    elif isinstance(value, list):
        for item in value:
            if isinstance(item, Mapping) and item:
                first, *rest = block_form(item, column + 2)
                lines += [f"{margin}- {first.lstrip()}", *rest]
            else:
                lines.append(f"{margin}- {flow_form(item)}")
    return lines


def json_form(value: object) -> str:
    """Return a value on one line as JSON, which is YAML too."""
    return json.dumps(value, ensure_ascii=False)
