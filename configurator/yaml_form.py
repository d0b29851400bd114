"""Values as YAML text, in the forms that kubeadm writes them in."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

_PLAIN = re.compile(r"(--)?[A-Za-z/_][A-Za-z0-9/_.=-]*", re.ASCII)
_RESERVED = frozenset({"true", "false", "yes", "no", "on", "off", "y", "n", "null"})


def flow_form(value: object) -> str:
    """On one line: plain where that cannot be misread, else as JSON, which is YAML as well."""
    if isinstance(value, str):
        return value if _PLAIN.fullmatch(value) and value.lower() not in _RESERVED else json_form(value)
    return json_form(value)


def block_form(value: object, column: int) -> list[str]:
    """Lines of a mapping or list whose keys or dashes stand at the column."""
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
    """On one line, as JSON, which is YAML as well."""
    return json.dumps(value, ensure_ascii=False)
