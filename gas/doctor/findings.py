"""What the doctor finds: one thing that is well or not, and the command that mends it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    """OK: as it should be. WARNING: works, but not as it should. PROBLEM: GPU pods are or will be harmed.
    UNKNOWN: could not be looked at.
    """

    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing. All texts may hold foreign words as they are: whoever shows them escapes them.

    check     name of the check, for programs: ``scheduler-configuration``
    where     what was looked at: a file, ``node gpu-1``, ``pod default/a``
    message   the whole sentence
    expected  empty when the sentence says it all
    found     likewise
    mend      commands or, in a comment behind ``#``, steps; never empty unless all is well
    """

    check: str
    level: Level
    where: str
    message: str
    expected: str = ""
    found: str = ""
    mend: tuple[str, ...] = ()


def ok(check: str, where: str, message: str) -> Finding:
    return Finding(check=check, level=Level.OK, where=where, message=message)


def warning(check: str, where: str, message: str, *mend: str, expected: str = "", found: str = "") -> Finding:
    return Finding(
        check=check, level=Level.WARNING, where=where, message=message, expected=expected, found=found, mend=mend
    )


def problem(check: str, where: str, message: str, *mend: str, expected: str = "", found: str = "") -> Finding:
    return Finding(
        check=check, level=Level.PROBLEM, where=where, message=message, expected=expected, found=found, mend=mend
    )


def unknown(check: str, where: str, message: str, *mend: str) -> Finding:
    return Finding(check=check, level=Level.UNKNOWN, where=where, message=message, mend=mend)
