"""Define the doctor's findings, the commands that fix them, and reasons why something could not be seen."""

from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Generic, Literal, TypeVar

from gas.cluster.errors import Forbidden
from gas.values.errors import GasError

T = TypeVar("T")


class Level(StrEnum):
    OK = "ok"
    WARNING = "warning"  # works, but not as it should
    PROBLEM = "problem"  # harms GPU pods, or will
    UNKNOWN = "unknown"  # could not be checked


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One result of a check. Texts from outside are not escaped: escape them when you show them."""

    level: Level
    message: str  # the whole sentence
    where: str = ""  # object: a file, ``node gpu-1``, ``pod default/a``; `about` fills it in
    check: str = ""  # name of the check, ``scheduler-configuration``; `findings_of` fills it in
    expected: str = ""  # empty if the sentence says it; so is ``found``
    found: str = ""
    fix: tuple[str, ...] = ()  # commands, or steps in a comment after ``#``; empty only if the level is OK
    # what it reports as OK: its ``object``, or all that the ``check`` looks at. It is left out if the check has another
    # finding about that. Empty for every other finding
    summary_of: Literal["", "object", "check"] = ""


@dataclass(frozen=True, slots=True)
class Unseen:
    """The reason why something could not be seen, as a sentence, and the command with which it can be."""

    why: str
    fix: str


def ok(message: str, where: str = "", *, summary_of: Literal["", "object", "check"] = "") -> Finding:
    return Finding(level=Level.OK, where=where, message=message, summary_of=summary_of)


def warning(message: str, *fix: str, where: str = "", expected: str = "", found: str = "") -> Finding:
    return Finding(level=Level.WARNING, where=where, message=message, expected=expected, found=found, fix=fix)


def problem(message: str, *fix: str, where: str = "", expected: str = "", found: str = "") -> Finding:
    return Finding(level=Level.PROBLEM, where=where, message=message, expected=expected, found=found, fix=fix)


def unknown(message: str, *fix: str, where: str = "") -> Finding:
    return Finding(level=Level.UNKNOWN, where=where, message=message, fix=fix)


def not_seen(where: str, what: Unseen) -> Finding:
    return unknown(what.why, what.fix, where=where)


def about(where: str, findings: Iterable[Finding]) -> Iterator[Finding]:
    """Name the object of the findings that name none."""
    return (each if each.where else replace(each, where=where) for each in findings)


@dataclass(frozen=True, slots=True)
class Rule(Generic[T]):
    """A plain check: the field of an object, its expected value, and the sentence that is true if it has another."""

    level: Level
    message: str
    expected: str
    found: Callable[[T], str | None]  # returns the field if it is wrong, else None
    change: str = ""  # what the command has to change; empty for `expected`


def broken(rules: Iterable[Rule[T]], checked: T, command_for: Callable[[str], str]) -> Iterator[Finding]:
    """Yield a finding for each rule that an object breaks. ``command_for`` makes a command of a change."""
    for rule in rules:
        if (found := rule.found(checked)) is not None:
            fix = (command_for(rule.change or rule.expected),)
            yield Finding(level=rule.level, message=rule.message, expected=rule.expected, found=found, fix=fix)


async def probe(request: Awaitable[T]) -> T | Unseen:
    """Return the result of a request to the API server, or why it failed."""
    try:
        return await request
    except Forbidden as error:
        return Unseen(str(error), "gas doctor --kubeconfig=FILE   # of a user with this permission")
    except GasError as error:
        return Unseen(str(error), "gas doctor   # again, once the API server responds")
