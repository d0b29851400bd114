"""A YAML file whose text is edited in place, so that every byte that is not concerned stays as it is.

The text is parsed only to learn where things are. An edit puts text between two bytes, or in the place of one value,
and gives a new document; comments, order, quotes, line ends and indentation of all the rest cannot change. What comes
out is parsed again and must say exactly what was asked for, else the edit is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Self, TypeGuard

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from configurator.errors import NotYaml
from configurator.yaml_form import block_form, flow_form, json_form

Path = tuple[str | int, ...]
"""The way to a value: keys of mappings and indices of sequences."""

LARGEST = 256 * 1024
"""Bytes; a manifest has 2,000."""

_NULL = "tag:yaml.org,2002:null"


@dataclass(frozen=True, slots=True)
class YamlDocument:
    """One document that is a mapping.

    name   of the file, for people
    text   all of it
    """

    name: str
    text: str
    _root: MappingNode

    @classmethod
    def parse(cls, name: str, content: bytes) -> Self:
        """Raises NotYaml, with the line where it can be told."""
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
        """The value as plain Python; None where there is nothing.

        Mappings, lists and text; numbers and booleans as YAML 1.1, which Kubernetes reads, has them.
        """
        node = self._find(path)
        return None if node is None else _plain(node)

    def with_value(self, path: Path, value: object) -> YamlDocument:
        """The value at the path replaced or added; the mapping around it is made when it is not there."""
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
        """The item at the end of the sequence, which is made when it is not there."""
        around = self._find(path)
        if around is None or _is_null(around):
            return self.with_value(path, [item])
        if not isinstance(around, SequenceNode):
            raise NotYaml(self.name, f"has no list at {_words(path)}, where one is expected")
        wanted = self.get()
        _inner(wanted, path).append(item)
        return self._appended(around, block_form([item], around.start_mark.column), json_form(item), wanted)

    def without_item(self, path: Path, index: int) -> YamlDocument:
        """A sequence without one of its items."""
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
        # An empty value has no place of its own: it goes after the colon of its key.
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
        """Where the text of a value ends. The parser's own mark of a block is where the next thing begins."""
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
        """After the end of the line; a place at the beginning of a line is after the end of the one before."""
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
    """Every node; one that several aliases name, several times, but what is in it once."""
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
    """Whether nothing at all is written."""
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
