"""Label and field selectors as lists and watches take them, and the selection they make together."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gas.sandbox.failure import bad_request
from gas.sandbox.kinds import Kind
from gas.sandbox.storage import Value

Requirement = Callable[[Value], bool]

_OUTSIDE_PARENTHESES = re.compile(r",(?![^(]*\))")
_SET = re.compile(r"(?P<key>[^\s!=(),]+)\s+(?P<op>in|notin)\s*\((?P<values>[^()]*)\)")
_EQUALITY = re.compile(r"(?P<key>[^\s!=(),]+)\s*(?P<op>==?|!=)\s*(?P<value>[^\s!=(),]*)")
_EXISTENCE = re.compile(r"(?P<absent>!?)\s*(?P<key>[^\s!=(),]+)")


@dataclass(frozen=True, slots=True)
class Selection:
    """Which objects a list or watch is about. Without a namespace: those of all."""

    namespace: str | None = None
    requirements: tuple[Requirement, ...] = ()

    def __contains__(self, value: object) -> bool:
        if not isinstance(value, dict):
            return False
        if self.namespace is not None and value["metadata"].get("namespace") != self.namespace:
            return False
        return all(requirement(value) for requirement in self.requirements)


def parse_selection(kind: Kind, namespace: str | None, labels: str, fields: str) -> Selection:
    """The selection of the query's ``labelSelector`` and ``fieldSelector``. Raises ApiFailure (400)."""
    requirements = [_label_requirement(part.strip()) for part in _parts(_OUTSIDE_PARENTHESES, labels)]
    requirements += [_field_requirement(kind, part.strip()) for part in _parts(re.compile(","), fields)]
    return Selection(namespace, tuple(requirements))


def _parts(separator: re.Pattern[str], text: str) -> list[str]:
    return separator.split(text) if text else []


def _labels(value: Value) -> dict[str, str]:
    return value["metadata"].get("labels") or {}


def _label_requirement(text: str) -> Requirement:
    if match := _SET.fullmatch(text):
        key, wanted = match["key"], {word.strip() for word in match["values"].split(",")}
        if match["op"] == "in":
            return lambda value: _labels(value).get(key) in wanted
        return lambda value: _labels(value).get(key) not in wanted
    if match := _EQUALITY.fullmatch(text):
        key, word = match["key"], match["value"]
        if match["op"] == "!=":
            return lambda value: _labels(value).get(key) != word
        return lambda value: _labels(value).get(key) == word
    if match := _EXISTENCE.fullmatch(text):
        key = match["key"]
        if match["absent"]:
            return lambda value: key not in _labels(value)
        return lambda value: key in _labels(value)
    raise bad_request(f"unable to parse requirement: {text}")


def _field_requirement(kind: Kind, text: str) -> Requirement:
    match = re.fullmatch(r"(?P<field>[^=!]+)(?P<op>==?|!=)(?P<value>.*)", text)
    if match is None:
        raise bad_request(f"invalid selector: '{text}'; can't understand '{text}'")
    field, word, negated = match["field"], match["value"], match["op"] == "!="
    if field not in kind.fields:
        raise bad_request(f"field label not supported: {field}")
    path = field.split(".")
    return lambda value: (_field(value, path) == word) is not negated


def _field(value: Value, path: list[str]) -> str:
    found: Any = value
    for name in path:
        found = found.get(name) if isinstance(found, dict) else None
    if isinstance(found, bool):
        return str(found).lower()
    return str(found) if found is not None else ""
