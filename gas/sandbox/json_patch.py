"""JSON patch (RFC 6902) with the two liberties that the real server takes.

``replace`` of a member that is not there adds it, and an operation that does not apply says nothing about which one.
"""

from __future__ import annotations

import copy
from typing import Any

CONTENT_TYPE = "application/json-patch+json"


class DoesNotApply(Exception):
    """An operation names a place that is not there, or a ``test`` that does not hold."""


def json_patched(target: Any, operations: list[Any]) -> Any:
    """``target`` after all operations; it is not changed itself. Raises DoesNotApply: all or nothing."""
    document = copy.deepcopy(target)
    for operation in operations:
        try:
            _apply(document, operation)
        except (KeyError, IndexError, ValueError, TypeError) as broken:
            raise DoesNotApply(str(operation)) from broken
    return document


def _apply(document: Any, operation: dict[str, Any]) -> None:
    path = _tokens(operation["path"])
    match operation["op"]:
        case "test":
            if _value_at(document, path) != operation["value"]:
                raise DoesNotApply(str(operation))
        case "remove":
            _remove(document, path)
        case "replace" | "add" as word:
            _put(document, path, operation["value"], insert=word == "add")
        case "move":
            _put(document, path, _remove(document, _tokens(operation["from"])), insert=True)
        case "copy":
            found = copy.deepcopy(_value_at(document, _tokens(operation["from"])))
            _put(document, path, found, insert=True)
        case _:
            raise DoesNotApply(str(operation))


def _tokens(path: str) -> list[str]:
    if not path.startswith("/"):
        raise DoesNotApply(path)
    return [token.replace("~1", "/").replace("~0", "~") for token in path[1:].split("/")]


def _value_at(document: Any, path: list[str]) -> Any:
    found = document
    for token in path:
        found = found[int(token)] if isinstance(found, list) else found[token]
    return found


def _remove(document: Any, path: list[str]) -> Any:
    parent = _value_at(document, path[:-1])
    return parent.pop(int(path[-1])) if isinstance(parent, list) else parent.pop(path[-1])


def _put(document: Any, path: list[str], value: Any, *, insert: bool) -> None:
    parent, place = _value_at(document, path[:-1]), path[-1]
    if isinstance(parent, dict):
        parent[place] = value
    elif place == "-" and insert:
        parent.append(value)
    elif insert and int(place) <= len(parent):
        parent.insert(int(place), value)
    else:
        parent[int(place)] = value
