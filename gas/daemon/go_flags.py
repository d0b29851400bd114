"""A command line as Go's ``flag`` package reads it, from a table of flags.

Go: one dash or two; ``-name=value`` or ``-name value``; a boolean takes a value only after ``=``; the last of several
wins; nothing is abbreviated. argparse reads almost none of that, so it is not used.
"""

from __future__ import annotations

import difflib
import textwrap
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gas.errors import GasError


class UsageError(GasError):
    """The command line cannot be understood; nothing was started."""

    exit_code = 2

    def __init__(self, problem: str) -> None:
        super().__init__(f"{problem}; see --help")


@dataclass(frozen=True, slots=True)
class GoFlag:
    """One flag.

    parse    text -> value; raises ValueError with what was expected, in words
    value    what stands for the value in the help text, empty for a boolean
    meaning  one sentence for the help text, the default in brackets at its end; empty hides the flag
    """

    name: str
    parse: Callable[[str], Any]
    default: Any
    value: str
    meaning: str

    @property
    def is_boolean(self) -> bool:
        return not self.value


def read_go_flags(argv: Sequence[str], table: Collection[GoFlag]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Name -> value for every flag of the table, and the names of those that were given, in order.

    Raises UsageError for an unknown flag, a value that is missing or wrong, and an argument that is no flag.
    """
    known = {flag.name: flag for flag in table}
    values = {flag.name: flag.default for flag in table}
    given: dict[str, None] = {}
    before: GoFlag | None = None
    rest = iter(argv)
    for argument in rest:
        name, equals, text = argument.removeprefix("-").removeprefix("-").partition("=")
        if not argument.startswith("-") or not name or name.startswith("-"):
            raise UsageError(_no_flag(argument, before, table))
        if (flag := known.get(name)) is None:
            raise UsageError(_unknown(argument, name, known))
        if not equals:
            text = "true" if flag.is_boolean else _following(rest, flag)
        try:
            values[name] = flag.parse(text)
        except ValueError as wrong:
            raise UsageError(f"flag --{name}: expected {wrong}, found {text[:80]!r}") from None
        given[name] = None
        before = flag if flag.is_boolean and not equals else None
    return values, tuple(given)


def describe_flags(groups: Mapping[str, Sequence[GoFlag]], width: int = 100) -> str:
    """The part of a help text that lists the flags under their groups' titles."""
    lines = []
    for title, flags in groups.items():
        lines += ["", f"{title}:"]
        for flag in flags:
            dashes = "-" if len(flag.name) == 1 else "--"
            left = f"  {dashes}{flag.name} {flag.value}".rstrip().ljust(26)
            indent = " " * 28
            first = left + "  " if len(left) <= 26 else f"{left}\n{indent}"
            text = textwrap.fill(
                flag.meaning, width, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False
            )
            lines.append(first + text.lstrip())
    return "\n".join(lines)


def boolean(text: str) -> bool:
    """What Go accepts: 1, t, T, TRUE, true, True and their opposites."""
    if text in ("1", "t", "T", "TRUE", "true", "True"):
        return True
    if text in ("0", "f", "F", "FALSE", "false", "False"):
        return False
    raise ValueError("true or false")


def _following(rest: Any, flag: GoFlag) -> str:
    text: str | None = next(rest, None)
    if text is None:
        raise UsageError(f"flag --{flag.name} needs a value, such as --{flag.name}={flag.value}")
    return text


def _no_flag(argument: str, before: GoFlag | None, table: Collection[GoFlag]) -> str:
    """``before``: the flag right before it, when that is one whose value could be meant."""
    if before is not None:
        expected = f"the value of --{before.name} goes behind =, such as --{before.name}=false"
    else:
        example = next((flag for flag in table if not flag.is_boolean and flag.meaning), None)
        expected = "expected only flags" + (f", such as --{example.name}={example.value}" if example else "")
    return f"unexpected argument {argument[:80]!r}: {expected}"


def _unknown(argument: str, name: str, known: Collection[str]) -> str:
    same_but_case = [each for each in known if each.lower() == name.lower()]
    near = same_but_case or difflib.get_close_matches(name, known, n=1)
    hint = f", did you mean --{near[0]}?" if near else ""
    return f"unknown flag {argument.partition('=')[0]!r}{hint}"
