"""Read YAML that anyone may have written, and bound what its aliases multiply: a short text can be endless."""

import math
import re
import warnings
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from collections import Counter
from functools import cache
from typing import Any

from gas.values.errors import GasError

LARGEST = 64 * 1024  # Bytes, which take a second or two to parse. A usual manifest has 2,000.
MOST_GROWTH = 100  # times the length of a text, in which many objects may share a part
TOO_MUCH = f"expected YAML aliases that stand for at most {MOST_GROWTH} times its length; write the values out"
HALF_A_CHARACTER = re.compile(rb"(?<!\\)(?:\\\\)*\\u[dD][89a-fA-F]")
"""The escape of a character's half, as JSON has them in pairs. In YAML it is a character that no file can hold.
After another backslash it is text."""

_PAIR = re.compile(rb"(?<!\\)((?:\\\\)*)\\u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})")

_OCTAL = re.compile(r"[-+]?0[0-7]+")
_TRUE_OR_FALSE = re.compile("y|Y|yes|Yes|YES|n|N|no|No|NO|on|On|ON|off|Off|OFF")

_ANCHOR_OR_ALIAS = re.compile(r"(&|(?<=[\s,\[{:])\*)([^ \t\r\n,\[\]{}][^\s&*,\[\]{}:?%@`]*)")
"""Parsers allow almost any character as the first of a name, and more than ASCII between lines."""


class InvalidYaml(GasError):
    """A text is not YAML. The sentence says where."""


def parse_yaml(text: bytes, largest: int = LARGEST) -> list[Any]:
    """Return every document as plain mappings, lists and texts. Raises InvalidYaml.

    Unlike `configurator.yaml_document` this accepts all that kube-scheduler accepts, such as anchors. As for kubectl,
    ``010`` is eight, ``yes`` is true, and a date is a text.
    """
    from ruamel.yaml import YAML
    from ruamel.yaml.error import ReusedAnchorWarning, YAMLError

    if len(text) > largest:
        raise InvalidYaml(f"it has more than {largest} bytes; leave out what is not needed")
    if may_grow_too_much(text):
        raise InvalidYaml(TOO_MUCH)
    text = _PAIR.sub(_joined, text)
    if HALF_A_CHARACTER.search(text) is not None:
        raise InvalidYaml("it has an escape of half a character, such as \\ud83d; write the character itself")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ReusedAnchorWarning)  # YAML allows it
            yaml = YAML(typ="safe", pure=True)
            yaml.Constructor = _constructor()
            return list(yaml.load_all(text.decode("utf-8")))
    except (YAMLError, LookupError, ValueError, RecursionError) as error:
        raise InvalidYaml(f"it is not valid YAML: {' '.join(str(error).split())[:300]}") from error


@cache
def _constructor() -> Any:
    from ruamel.yaml.constructor import SafeConstructor

    class Constructor(SafeConstructor):
        """Make values of plain words as kubectl does."""

        def whole_number(self, node: Any) -> int:
            is_octal = _OCTAL.fullmatch(node.value) is not None
            return int(node.value, 8) if is_octal else int(self.construct_yaml_int(node))

        def word(self, node: Any) -> str | bool:
            is_plain = node.style is None and _TRUE_OR_FALSE.fullmatch(node.value) is not None
            return bool(self.construct_yaml_bool(node)) if is_plain else str(self.construct_yaml_str(node))

    Constructor.add_constructor("tag:yaml.org,2002:int", Constructor.whole_number)
    Constructor.add_constructor("tag:yaml.org,2002:str", Constructor.word)
    Constructor.add_constructor("tag:yaml.org,2002:timestamp", Constructor.construct_yaml_str)
    return Constructor


def _joined(pair: re.Match[bytes]) -> bytes:
    """Return the character of two halves, which JSON writes as two escapes."""
    high, low = int(pair[2], 16) - 0xD800, int(pair[3], 16) - 0xDC00
    return pair[1] + chr(0x10000 + high * 0x400 + low).encode()


def may_grow_too_much(text: bytes) -> bool:
    """Return whether aliases may make more than `MOST_GROWTH` times its length of a text."""
    encoding = "utf-16" if text.startswith((BOM_UTF16_LE, BOM_UTF16_BE)) else "utf-8"
    anchors: Counter[str] = Counter()
    uses: Counter[tuple[str, int]] = Counter()
    for sign, name in _ANCHOR_OR_ALIAS.findall(text.decode(encoding, errors="replace")):
        if sign == "&":
            anchors[name] += 1  # a later anchor of this name stands for something else
        elif name in anchors:
            uses[name, anchors[name]] += 1
    # Written out anchor by anchor, from the innermost on, each use adds at most the whole text as it is then.
    return math.prod(each + 1 for each in uses.values()) > MOST_GROWTH
