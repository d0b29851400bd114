"""The part of JSON Schema (draft 7) that the chart's schema uses, so that the tests need no library for it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

Schema = dict[str, Any]

_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
}
KEYWORDS = {
    "$schema", "title", "definitions", "$ref", "type", "enum", "pattern", "minLength", "minimum", "maximum",
    "exclusiveMinimum", "items", "minItems", "properties", "propertyNames", "additionalProperties", "required", "not",
    "anyOf",
}  # fmt: skip


def problems(value: object, schema: Schema, root: Schema, where: str = "") -> Iterator[str]:
    """Return a sentence for each part of a value that the schema forbids. Raises KeyError for unknown keywords."""
    if unknown := schema.keys() - KEYWORDS:
        raise KeyError(unknown)
    if "$ref" in schema:
        yield from problems(value, resolved(schema, root), root, where)
        return
    types = schema.get("type", [])
    if types and not any(_is(value, each) for each in ([types] if isinstance(types, str) else types)):
        yield f"{where}: {value!r} is not of type {types}"
        return
    if "enum" in schema and value not in schema["enum"]:
        yield f"{where}: {value!r} is none of {schema['enum']}"
    if isinstance(value, str):
        if "pattern" in schema and not re.search(schema["pattern"], value):
            yield f"{where}: {value!r} does not match {schema['pattern']}"
        if len(value) < schema.get("minLength", 0):
            yield f"{where}: {value!r} is too short"
    elif isinstance(value, int | float) and not isinstance(value, bool):
        if not schema.get("minimum", value) <= value <= schema.get("maximum", value):
            yield f"{where}: {value!r} is out of range"
        if "exclusiveMinimum" in schema and value <= schema["exclusiveMinimum"]:
            yield f"{where}: {value!r} is too small"
    elif isinstance(value, list) and "items" in schema:
        if len(value) < schema.get("minItems", 0):
            yield f"{where}: {value!r} is too short"
        for index, each in enumerate(value):
            yield from problems(each, schema["items"], root, f"{where}[{index}]")
    elif isinstance(value, dict):
        yield from _problems_of_object(value, schema, root, where)
    if "not" in schema and not list(problems(value, schema["not"], root, where)):
        yield f"{where}: {value!r} is what it must not be"
    if "anyOf" in schema and all(list(problems(value, each, root, where)) for each in schema["anyOf"]):
        yield f"{where}: {value!r} is none of several"


def _problems_of_object(value: dict[str, Any], schema: Schema, root: Schema, where: str) -> Iterator[str]:
    for name in schema.get("required", ()):
        if name not in value:
            yield f"{where}: {name} is missing"
    for name, each in value.items():
        if "propertyNames" in schema:
            yield from problems(name, schema["propertyNames"], root, f"{where}.{name}")
        below = schema.get("properties", {}).get(name, schema.get("additionalProperties", True))
        if below is False:
            yield f"{where}: {name} is not allowed"
        elif below is not True:
            yield from problems(each, below, root, f"{where}.{name}")


def resolved(schema: Schema, root: Schema) -> Schema:
    """Return the schema, or the one that it refers to. Raises KeyError if that does not exist."""
    if "$ref" not in schema:
        return schema
    found: Schema = root["definitions"][schema["$ref"].removeprefix("#/definitions/")]
    return found


def parts(schema: Schema, where: str = "") -> Iterator[tuple[str, Schema]]:
    """Yield the schema and every schema inside it, each with its path."""
    yield where, schema
    for name in ("properties", "definitions"):
        for key, each in schema.get(name, {}).items():
            yield from parts(each, f"{where}/{name}/{key}")
    for name in ("items", "additionalProperties", "propertyNames", "not"):
        if isinstance(schema.get(name), dict):
            yield from parts(schema[name], f"{where}/{name}")
    for index, each in enumerate(schema.get("anyOf", ())):
        yield from parts(each, f"{where}/anyOf/{index}")


def _is(value: object, name: str) -> bool:
    return isinstance(value, _TYPES[name]) and (name == "boolean" or not isinstance(value, bool))
