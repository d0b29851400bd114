"""YAML from files that somebody else wrote."""

from __future__ import annotations

from typing import Any

from gas.errors import GasError


class NotYaml(GasError):
    """The text is no YAML; the sentence says where it stops being some."""


class NoYamlReader(GasError):
    """The library that reads YAML is not installed."""

    def __init__(self) -> None:
        super().__init__("reading the scheduler's configuration needs ruamel.yaml, which is not installed")


def parse_yaml(text: bytes) -> list[Any]:
    """Every document, as plain maps, lists and texts. Raises NotYaml, NoYamlReader."""
    try:
        from ruamel.yaml import YAML
        from ruamel.yaml.error import YAMLError
    except ImportError as error:
        raise NoYamlReader from error
    try:
        return list(YAML(typ="safe", pure=True).load_all(text.decode("utf-8")))
    except (YAMLError, UnicodeDecodeError, ValueError, RecursionError) as error:
        raise NotYaml(f"it is no YAML: {' '.join(str(error).split())[:300]}") from error
