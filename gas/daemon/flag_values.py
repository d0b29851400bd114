"""Parsers for the values of flags.

Each raises ValueError with what it expects, in words that fit into "expected …, found …".
"""

import math
import re
from collections.abc import Callable, Iterable
from ipaddress import ip_address
from pathlib import Path
from typing import TypeVar

_Choice = TypeVar("_Choice", bound=str)

_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?", re.ASCII)
_WHOLE = re.compile(r"[0-9]{1,18}", re.ASCII)
_NUMBER = re.compile(r"[0-9]{1,18}(\.[0-9]{1,18})?", re.ASCII)
_DURATION = re.compile(r"(?P<number>[0-9]{1,9}(\.[0-9]{1,9})?)(?P<unit>ms|s|m)?", re.ASCII)
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, None: 1.0}


def boolean(value: str) -> bool:
    """Parse what Go accepts as a boolean: 1, t, T, TRUE, true, True and their opposites."""
    if value in ("1", "t", "T", "TRUE", "true", "True"):
        return True
    if value in ("0", "f", "F", "FALSE", "false", "False"):
        return False
    raise ValueError("true or false")


def text_or_none(value: str) -> str | None:
    """Accept any text; the empty text gives None, as if the flag were not given."""
    return value or None


def whole_number(least: int, most: float, expected: str) -> Callable[[str], int]:
    def parse(value: str) -> int:
        if _WHOLE.fullmatch(value) is None or not least <= int(value) <= most:
            raise ValueError(expected)
        return int(value)

    return parse


whole = whole_number(0, math.inf, "a whole number, 0 or more")
positive = whole_number(1, math.inf, "a whole number, 1 or more")
port = whole_number(0, 65535, "a port, 0 to 65535")


def rate(value: str) -> float:
    if _NUMBER.fullmatch(value) is None or not math.isfinite(float(value)) or float(value) <= 0:
        raise ValueError("a number over 0")
    return float(value)


def address(value: str) -> str:
    """Parse an IP address; the empty text stands for every address of the machine."""
    if not value:
        return ""
    try:
        return str(ip_address(value.removeprefix("[").removesuffix("]")))
    except ValueError:
        raise ValueError("an IP address such as 127.0.0.1 or ::1") from None


def file(value: str) -> Path:
    """Parse the path of a file, which need not exist yet; ``~`` stands for the home directory."""
    if not value:
        raise ValueError("the path of a file")
    return Path(value).expanduser()


def file_or_none(value: str) -> Path | None:
    """Parse the path of a file; the empty text gives None, as if the flag were not given."""
    return file(value) if value else None


def directory(value: str) -> Path:
    """Parse the path of a directory, which need not exist yet; ``~`` stands for the home directory."""
    path = Path(value).expanduser()
    if not value or path.is_file():
        raise ValueError("the path of a directory" + (", not of a file" if value else ""))
    return path


def names(value: str) -> frozenset[str]:
    """Parse a comma-separated list without empty members; the empty text is an empty list."""
    if not value:
        return frozenset()
    members = [member.strip() for member in value.split(",")]
    if not all(members):
        raise ValueError("a comma-separated list without empty entries")
    return frozenset(members)


def object_name(value: str) -> str:
    """Parse the name of a Kubernetes object; the empty text stands for the default."""
    if value and _NAME.fullmatch(value) is None:
        raise ValueError("a Kubernetes name: lower-case letters, digits, - and .")
    return value


def duration(value: str) -> float:
    """Parse a time into seconds: ``20s``, ``1.5m``, ``500ms``, or a plain number of seconds."""
    if (match := _DURATION.fullmatch(value)) is None:
        raise ValueError("a time such as 20s, 1.5m or 500ms")
    return float(match["number"]) * _SECONDS[match["unit"]]


def one_of(choices: Iterable[_Choice]) -> Callable[[str], _Choice]:
    """Return a parser that accepts these texts, which may be the values of an enumeration."""
    known = {str(choice): choice for choice in choices}

    def parse(value: str) -> _Choice:
        if value not in known:
            *most, last = known
            raise ValueError(f"{', '.join(most)} or {last}")
        return known[value]

    return parse
