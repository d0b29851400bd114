"""Edit a YAML file by a round trip through ruamel, which keeps comments, order and quotes.

Scalars are not interpreted: each is written as the text in the file, so ``0644`` and ``on`` keep their spelling. The
result is parsed again. If it does not have exactly the requested content, the edit is refused.
"""

import contextlib
import copy
import io
import json
import re
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq, TaggedScalar
from ruamel.yaml.error import MarkedYAMLError, ReusedAnchorWarning, YAMLError
from ruamel.yaml.nodes import ScalarNode
from ruamel.yaml.resolver import VersionedResolver
from ruamel.yaml.scalarstring import DoubleQuotedScalarString, PlainScalarString, ScalarString
from ruamel.yaml.tag import Tag

from configurator.errors import NotYaml
from gas.values.yaml_text import HALF_A_CHARACTER, LARGEST

Path = tuple[str | int, ...]  # the path to a value: keys of mappings and indices of sequences
_TEXT = Tag(suffix="tag:yaml.org,2002:str")
_PLAIN = re.compile(r"(--)?[A-Za-z/_][A-Za-z0-9/_.=-]*", re.ASCII)
_CONSTANTS = {
    **dict.fromkeys(("true", "yes", "on", "y"), True),
    **dict.fromkeys(("false", "no", "off", "n"), False),
    **dict.fromkeys(("", "~", "null"), None),
}
"""The booleans and nulls of YAML 1.1, which Kubernetes reads."""

_INTEGER = re.compile(r"[-+]?(0|[1-9][0-9]{0,17})", re.ASCII)
_NUMBER = re.compile(r"[-+]?[0-9]{1,17}\.[0-9]{1,17}", re.ASCII)


class YamlDocument:
    """A YAML document that is a mapping. Edits change it in place. Raises NotYaml, with the line if it is known."""

    def __init__(self, name: str, content: bytes) -> None:
        self.name = name
        self._is_changed = False
        self._text = _decoded(name, content)
        parsed = _parsed(name, self._text)
        self._indentation = _indentation(parsed)
        self._root: dict[str, Any] = parsed
        with contextlib.suppress(ValueError):
            self._root = json.loads(self._text)

    @property
    def content(self) -> bytes:
        """The whole file, as parsed if there was no edit. Raises NotYaml if the edits cannot be written."""
        return self._written() if self._is_changed else self._text.encode()

    def get(self, *path: str | int) -> Any:
        """Return a copy of the value at a path as plain Python; None if there is none."""
        value: Any = self._root
        for step in path:
            try:
                value = value[step]
            except (KeyError, IndexError, TypeError):
                return None
        return _plain(value) if self._is_yaml else copy.deepcopy(value)

    @property
    def _is_yaml(self) -> bool:
        return isinstance(self._root, CommentedMap)

    def set(self, path: Path, value: object) -> None:
        """Replace or add the value at a path, making missing mappings around it."""
        if value is not None and self.get(*path) == value:
            return
        *outer, key = path
        if outer and self.get(*outer) is None:
            self.set(tuple(outer), {key: value})
            return
        around = self._around(outer, list if isinstance(key, int) else dict, "mapping")
        if isinstance(value, str) and self.get(*path) is not None and _is_quoted(around[key]):
            around[key] = type(around[key])(value)
        else:
            around[key] = self._new(value)

    def append(self, path: Path, item: object) -> None:
        """Append an item to a sequence, making it if it is missing."""
        if self.get(*path) is None:
            self.set(path, [item])
        else:
            self._around(path, list, "list").append(self._new(item))

    def remove(self, path: Path, index: int) -> None:
        del self._around(path, list, "list")[index]

    def _around(self, path: Sequence[str | int], kind: type, expected: str) -> Any:
        """Return the collection at a path, for editing. Raises NotYaml if it is of another kind."""
        value: Any = self._root
        for step in path:
            value = value[step]
        if not isinstance(value, kind):
            raise NotYaml(self.name, f"has no {expected} at {_shown(path)}, where one is expected")
        self._is_changed = True
        return value

    def _new(self, value: object) -> Any:
        return _commented(value) if self._is_yaml else copy.deepcopy(value)

    def _written(self) -> bytes:
        if self._is_yaml:
            text = self._round_trip()
        else:
            indent = re.search(r'\n( +)"', self._text)
            text = json.dumps(self._root, indent=len(indent[1]) if indent else None, ensure_ascii=False) + "\n"
        return text.replace("\n", "\r\n" if "\r\n" in self._text else "\n").encode()

    def _round_trip(self) -> str:
        text = self._text.replace("\r\n", "\n")
        start = re.match(r"((?:[ \t]*(?:[#%].*)?\n)*)---\s", text)
        yaml = _yaml()
        yaml.explicit_start = start is not None
        yaml.explicit_end = re.search(r"^\.\.\.\s*$", text, re.MULTILINE) is not None
        yaml.indent(**self._indentation)
        stream = io.StringIO()
        yaml.dump(self._root, stream)
        written = ("" if start is None else start[1]) + stream.getvalue()  # ruamel drops what is before the start
        try:
            is_same = _plain(_parsed(self.name, written)) == self.get()
        except NotYaml:
            is_same = False
        if not is_same:
            raise NotYaml(self.name, "is written in a way that cannot be edited safely; write it as kubeadm does")
        return written


class _TextResolver(VersionedResolver):
    """Take every scalar for text, so that it is written as it was read."""

    def resolve(self, kind: Any, value: Any, implicit: Any) -> Any:
        return _TEXT if kind is ScalarNode else super().resolve(kind, value, implicit)


def _yaml() -> YAML:
    yaml = YAML(typ="rt", pure=True)
    yaml.Resolver = _TextResolver
    yaml.preserve_quotes = True
    yaml.width = 2 * LARGEST
    yaml.brace_single_entry_mapping_in_flow_sequence = True
    return yaml


def _decoded(name: str, content: bytes) -> str:
    if len(content) > LARGEST:
        raise NotYaml(name, f"has {len(content)} bytes; expected at most {LARGEST}")
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise NotYaml(name, f"is not text in UTF-8 (byte {error.start})") from None
    if HALF_A_CHARACTER.search(content) is not None:
        raise NotYaml(name, "has an escape of half a character, such as \\ud83d; write the character itself")
    if text.startswith("\ufeff"):
        raise NotYaml(name, "begins with a byte order mark; save it as UTF-8 without one")
    if re.search(r"\r(?!\n)|[\u0085\u2028\u2029]", text):
        raise NotYaml(name, "has line ends other than those of Unix and Windows")
    return text


def _parsed(name: str, text: str) -> CommentedMap:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ReusedAnchorWarning)  # YAML allows it; an alias is refused below
            root = _yaml().load(text.replace("\r\n", "\n"))
        if root is None:
            raise NotYaml(name, "is empty")
        if not isinstance(root, CommentedMap):
            raise NotYaml(name, "is not a mapping of keys to values, as every Kubernetes object is")
        _refuse_what_cannot_be_edited(name, root)
    except MarkedYAMLError as error:
        problem = error.problem or error.context
        line = f", line {error.problem_mark.line + 1}" if error.problem_mark is not None else ""
        if "another document" in str(problem):
            raise NotYaml(name, "holds several YAML documents; expected one") from None
        if (duplicate := re.match(r"found duplicate key \"(.*?)\"", str(problem))) is not None:
            raise NotYaml(name, f"has the key {duplicate[1]!r} twice{line}") from None
        raise NotYaml(name, f"is not valid YAML{line}: {_one_line(problem)}") from None
    except YAMLError as error:
        raise NotYaml(name, f"is not valid YAML: {_one_line(str(error))}") from None
    except RecursionError:
        raise NotYaml(name, "is nested too deeply to be read") from None
    return root


def _refuse_what_cannot_be_edited(name: str, root: CommentedMap) -> None:
    seen: set[int] = set()
    waiting: list[Any] = [root]
    while waiting:
        value = waiting.pop()
        if isinstance(value, (CommentedMap, CommentedSeq, ScalarString, TaggedScalar)):
            if id(value) in seen or getattr(value, "merge", None):
                line = f" (line {value.lc.line + 1})" if isinstance(value, (CommentedMap, CommentedSeq)) else ""
                raise NotYaml(name, f"uses YAML anchors and aliases{line}; write the values out, and run again")
            seen.add(id(value))
        if isinstance(value, CommentedMap):
            for key in value:
                if not isinstance(key, str):
                    raise NotYaml(name, f"has a key that is not text, line {value.lc.key(key)[0] + 1}")
            waiting += value.values()
        elif isinstance(value, CommentedSeq):
            waiting += value


def _indentation(root: CommentedMap) -> dict[str, int]:
    """Return the file's indentation, by its first mapping in a mapping and its first list in a mapping."""
    found = {"mapping": 2, "sequence": 2, "offset": 0}
    waiting: list[Any] = [root]
    seen: set[str] = set()
    while waiting:
        value = waiting.pop(0)
        if not isinstance(value, CommentedMap) or value.fa.flow_style():
            waiting += value if isinstance(value, CommentedSeq) else ()
            continue
        for key, inner in value.items():
            if not isinstance(inner, (CommentedMap, CommentedSeq)) or inner.fa.flow_style() or not inner:
                continue
            waiting.append(inner)
            column = value.lc.key(key)[1]
            if isinstance(inner, CommentedMap) and "mapping" not in seen:
                seen.add("mapping")
                found["mapping"] = inner.lc.col - column
            elif isinstance(inner, CommentedSeq) and "sequence" not in seen:
                seen.add("sequence")
                found["sequence"] = inner.lc.item(0)[1] - column
                found["offset"] = inner.lc.col - column
    return found


def _commented(value: object) -> Any:
    """Return a value for ruamel: text in quotes unless it is unambiguous, everything else as its text."""
    if isinstance(value, Mapping):
        return CommentedMap({_commented(key): _commented(inner) for key, inner in value.items()})
    if isinstance(value, list):
        return CommentedSeq([_commented(item) for item in value])
    if isinstance(value, str):
        is_plain = _PLAIN.fullmatch(value) and value.lower() not in _CONSTANTS
        return value if is_plain else DoubleQuotedScalarString(value)
    return json.dumps(value)


def _plain(value: Any) -> Any:
    if isinstance(value, CommentedMap):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, CommentedSeq):
        return [_plain(item) for item in value]
    if isinstance(value, TaggedScalar):
        return str(value.value)
    if isinstance(value, ScalarString) and not isinstance(value, PlainScalarString):
        return str(value)
    text = "" if value is None else str(value)
    if text.lower() in _CONSTANTS:
        return _CONSTANTS[text.lower()]
    if _INTEGER.fullmatch(text):
        return int(text)
    return float(text) if _NUMBER.fullmatch(text) else text


def _is_quoted(value: object) -> bool:
    return isinstance(value, ScalarString) and not isinstance(value, PlainScalarString)


def _one_line(problem: str | None) -> str:
    return " ".join((problem or "it cannot be parsed").split())


def _shown(path: Sequence[str | int]) -> str:
    return ".".join(str(step) for step in path) or "its top"
