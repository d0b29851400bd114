"""Values of flags, from text. Each function raises ValueError with what it expected, in words."""

from __future__ import annotations

import math
import re
from ipaddress import ip_address
from pathlib import Path
from typing import Literal

_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?", re.ASCII)
_WHOLE = re.compile(r"[0-9]{1,18}", re.ASCII)
_NUMBER = re.compile(r"[0-9]{1,18}(\.[0-9]{1,18})?", re.ASCII)
_DURATION = re.compile(r"(?P<number>[0-9]{1,9}(\.[0-9]{1,9})?)(?P<unit>ms|s|m)?", re.ASCII)
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, None: 1.0}


def text(value: str) -> str:
    """Any text, the empty one too."""
    return value


def whole(value: str) -> int:
    """A whole number from 0."""
    if _WHOLE.fullmatch(value) is None:
        raise ValueError("a whole number from 0")
    return int(value)


def positive(value: str) -> int:
    """A whole number from 1."""
    if _WHOLE.fullmatch(value) is None or int(value) == 0:
        raise ValueError("a whole number from 1")
    return int(value)


def rate(value: str) -> float:
    """A number over 0, fractions too."""
    if _NUMBER.fullmatch(value) is None or not math.isfinite(float(value)) or float(value) <= 0:
        raise ValueError("a number over 0")
    return float(value)


def port(value: str) -> int:
    """A TCP port; 0 is any free one."""
    if _WHOLE.fullmatch(value) is None or int(value) > 65535:
        raise ValueError("a port, 0 to 65535")
    return int(value)


def address(value: str) -> str:
    """An IP address, or the empty text for every address of the machine."""
    if not value:
        return ""
    try:
        return str(ip_address(value.removeprefix("[").removesuffix("]")))
    except ValueError:
        raise ValueError("an IP address such as 127.0.0.1 or ::1") from None


def file(value: str) -> Path:
    """The path of a file, which need not exist yet; ``~`` is the home directory."""
    if not value:
        raise ValueError("the path of a file")
    return Path(value).expanduser()


def names(value: str) -> frozenset[str]:
    """A comma-separated list without empty members; the empty text is no name at all."""
    if not value:
        return frozenset()
    members = [member.strip() for member in value.split(",")]
    if not all(members):
        raise ValueError("names with commas between them, none of them empty")
    return frozenset(members)


def object_name(value: str) -> str:
    """The name of a Kubernetes object; the empty text stands for the default."""
    if value and _NAME.fullmatch(value) is None:
        raise ValueError("a Kubernetes name: lower-case letters, digits, - and .")
    return value


def duration(value: str) -> float:
    """Seconds: ``20s``, ``1.5m``, ``500ms``, or a plain number of seconds."""
    if (match := _DURATION.fullmatch(value)) is None:
        raise ValueError("a time such as 20s, 1.5m or 500ms")
    return float(match["number"]) * _SECONDS[match["unit"]]


def log_format(value: str) -> Literal["text", "json"]:
    """How log lines look."""
    if value == "text":
        return "text"
    if value == "json":
        return "json"
    raise ValueError("text or json")
