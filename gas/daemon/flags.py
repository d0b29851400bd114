"""Command-line flags: declared as fields of a dataclass, and parsed as Go's ``flag`` package does.

Each program declares its flags in a class derived from `CommandFlags` or `DaemonFlags`, one field a flag:

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Flags(DaemonFlags):
        program: ClassVar[str] = "gas-extender"
        port: int = flag("port", values.port, "9001", "N", "Port for filter and bind requests.", group="Serving")

The declaration is the only place that states a flag's name, type, default and help. `read_flags` makes an instance
from a command line, `help_text` writes what --help prints, and `flags_of` lists the flags for generated documentation
and for tests of manifests.

Go's rules: one dash or two; ``-name=value`` or ``-name value``; a boolean takes a value only after ``=``; if a flag is
given several times, the last one wins; names cannot be abbreviated. argparse supports almost none of these rules. Only
for a flag that is declared with ``joined`` all values count, as if they were one with commas between them.
"""

from __future__ import annotations

import dataclasses
import difflib
import textwrap
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeVar, overload

from gas.daemon import flag_values as values
from gas.values.errors import GasError, InvalidEntry

T = TypeVar("T")
_METADATA = "flag"


class UsageError(GasError):
    """The command line is invalid; the program has not started anything."""

    exit_code = 2

    def __init__(self, problem: str) -> None:
        super().__init__(f"{problem}; see --help")


@dataclass(frozen=True, slots=True)
class Flag:
    """One declared flag.

    name         without dashes
    parse        converts text to the value; raises ValueError with what it expects, in words, or InvalidEntry if one
                 entry of a list is wrong
    default      the default as text; None if the value is None without the flag
    placeholder  stands for the value in help texts; empty for a boolean
    description  one or more sentences
    group        title of the group that the flag is listed under
    unset        what applies without the flag, in words, where `default` does not say it
    joined       whether all values count if the flag is given several times, not only the last one
    attribute    the field of the Flags class that holds the value; `flags_of` fills it in
    """

    name: str
    parse: Callable[[str], object]
    default: str | None
    placeholder: str
    description: str
    group: str = ""
    unset: str = ""
    joined: bool = False
    attribute: str = ""

    @property
    def is_boolean(self) -> bool:
        return not self.placeholder

    @property
    def dashed(self) -> str:
        """``-v``, ``--port``."""
        return f"-{self.name}" if len(self.name) == 1 else f"--{self.name}"

    @property
    def default_in_words(self) -> str:
        """The default for people; empty if there is none."""
        return self.unset or self.default or ""


@dataclass(frozen=True, slots=True, kw_only=True)
class IgnoredFlags:
    """Flags that are accepted without effect, so that existing manifests still start.

    switches    names of booleans
    with_value  names of flags that take a value
    reason      what the warning says after their names
    """

    switches: tuple[str, ...] = ()
    with_value: tuple[str, ...] = ()
    reason: str = ""

    @property
    def flags(self) -> Iterator[Flag]:
        """The flags, with an empty attribute."""
        yield from (Flag(name, values.boolean, None, "", "") for name in self.switches)
        yield from (Flag(name, values.text, None, "VALUE", "") for name in self.with_value)

    def warning(self, given: Collection[str]) -> str:
        """Return the warning about those of these names that are among the flags; empty if none is."""
        names = [each.dashed for each in self.flags if each.name in given]
        return f"ignored: {', '.join(names)}; {self.reason}" if names else ""


KLOG_FLAGS = IgnoredFlags(
    switches=("logtostderr", "alsologtostderr", "one_output", "add_dir_header", "skip_headers", "skip_log_headers"),
    with_value=("stderrthreshold", "vmodule", "log_dir", "log_file", "log_file_max_size", "log_backtrace_at"),
    reason="logs go to stderr, see -v and --log-format",
)
"""The flags of klog, the logging library of Go programs, that have no meaning here."""


@overload
def flag(
    name: str,
    parse: Callable[[str], T],
    default: str,
    placeholder: str,
    description: str,
    *,
    group: str = "",
    unset: str = "",
    joined: bool = False,
) -> T: ...
@overload
def flag(
    name: str,
    parse: Callable[[str], T],
    default: None,
    placeholder: str,
    description: str,
    *,
    group: str = "",
    unset: str = "",
    joined: bool = False,
) -> T | None: ...
def flag(
    name: str,
    parse: Callable[[str], T],
    default: str | None,
    placeholder: str,
    description: str,
    *,
    group: str = "",
    unset: str = "",
    joined: bool = False,
) -> T | None:
    """Declare a flag that takes a value, as a field of a Flags class; see `Flag` for the arguments.

    The field has the type of `parse`'s result. A flag without `group` belongs to the group of the flag before it.
    """
    declared = Flag(name, parse, default, placeholder, description, group=group, unset=unset, joined=joined)
    return _field(None if default is None else parse(default), declared)


def switch(name: str, description: str, *, default: bool = False, group: str = "") -> bool:
    """Declare a boolean flag, as a field of a Flags class."""
    return _field(default, Flag(name, values.boolean, str(default).lower(), "", description, group=group))


def _field(default: T, declared: Flag) -> T:
    return dataclasses.field(default=default, metadata={_METADATA: declared})


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandFlags:
    """The flags that every program has, and what `read_flags` records besides their values.

    program, summary  class attributes: the name of the program, and what it does
    variables         class attribute: environment variables and their descriptions
    ignored           class attribute: flags that are accepted without effect, by the reason for it
    given             names of the flags on the command line, without those that are ignored
    warnings          sentences about flags on the command line that have no effect
    """

    program: ClassVar[str]
    summary: ClassVar[str]
    variables: ClassVar[Mapping[str, str]] = {}
    ignored: ClassVar[tuple[IgnoredFlags, ...]] = ()

    show_version: bool = switch("version", "Print the version and exit.", group="Help")
    show_help: bool = switch("help", "Print this text and exit; -h does the same.")
    given: frozenset[str] = dataclasses.field(default=frozenset(), compare=False)
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DaemonFlags(CommandFlags):
    """The flags that every long-running program has."""

    ignored: ClassVar[tuple[IgnoredFlags, ...]] = (KLOG_FLAGS,)

    kube_config: str | None = flag(
        "kubeConfig",
        values.text_or_none,
        None,
        "FILE",
        "Kubeconfig with which to reach the cluster.",
        group="Kubernetes API",
        unset="the pod's service account, else $KUBECONFIG, else ~/.kube/config",
    )
    metrics_address: str = flag(
        "metrics-address",
        values.address,
        "",
        "IP",
        "Address that --metrics-port listens on.",
        group="Health and metrics (plain HTTP)",
        unset="every address, IPv4 and IPv6",
    )
    verbosity: int = flag(
        "v",
        values.whole,
        "0",
        "N",
        "Log verbosity: 0 logs what matters, 2 also why pods wait and what containers get, 4 every decision.",
        group="Logs",
    )
    log_format: Literal["text", "json"] = flag(
        "log-format", values.text_or_json, "text", "FORMAT", "Format of the log lines: text or json."
    )


F = TypeVar("F", bound=CommandFlags)


def flags_of(flags_class: type[CommandFlags]) -> tuple[Flag, ...]:
    """Return the declared flags in the order of the help text: a class's own before those of its bases, by group."""
    fields = {field.name: field for field in dataclasses.fields(flags_class)}
    groups: dict[str, list[Flag]] = {}
    for base in flags_class.__mro__[:-1]:
        group = ""
        for attribute in base.__annotations__:
            field = fields.pop(attribute, None)
            if field is None or _METADATA not in field.metadata:
                continue
            declared: Flag = field.metadata[_METADATA]
            group = declared.group or group
            groups.setdefault(group, []).append(dataclasses.replace(declared, attribute=attribute, group=group))
    return tuple(each for group in groups.values() for each in group)


def read_flags(flags_class: type[F], argv: Sequence[str]) -> F:
    """Parse the arguments after the program's name.

    Raises UsageError for an unknown flag, a missing or invalid value, and an argument that is not a flag.
    """
    declared = flags_of(flags_class)
    without_effect = {each.name: each for group in flags_class.ignored for each in group.flags}
    known = without_effect | {each.name: each for each in declared}
    known["h"] = known["help"]
    found: dict[str, Any] = {}
    texts: dict[str, str] = {}
    given: list[str] = []
    ignored: set[str] = set()
    previous: Flag | None = None
    arguments = iter(argv)
    for argument in arguments:
        name, equals, text = argument.removeprefix("-").removeprefix("-").partition("=")
        if not argument.startswith("-") or not name or name.startswith("-"):
            raise UsageError(_not_a_flag(argument, previous, declared))
        if (read := known.get(name)) is None:
            raise UsageError(_unknown_flag(argument, name, known))
        if not equals:
            text = "true" if read.is_boolean else _next_argument(arguments, read)
        if read.joined:
            text = texts[name] = f"{texts[name]},{text}" if name in texts else text
        try:
            value = read.parse(text)
        except ValueError as expected:
            found_text = expected.entry if isinstance(expected, InvalidEntry) else text
            raise UsageError(f"flag {read.dashed}: expected {expected}, found {found_text[:80]!r}") from None
        if read.attribute:
            found[read.attribute] = value
            given.append(read.name)
        else:
            ignored.add(read.name)
        previous = read if read.is_boolean and not equals else None
    warnings = (group.warning(ignored) for group in flags_class.ignored)
    return flags_class(**found, given=frozenset(given), warnings=tuple(filter(None, warnings)))


def help_text(flags_class: type[CommandFlags], width: int = 100) -> str:
    """Return what --help prints."""
    lines = [
        f"Usage: {flags_class.program} [flags]",
        "",
        textwrap.fill(flags_class.summary, width),
        "",
        "A flag takes one dash or two, and its value after = or a space. A boolean takes a value only after =.",
    ]
    group = ""
    for each in flags_of(flags_class):
        if each.group != group:
            group = each.group
            lines += ["", f"{group}:"]
        default = "" if each.default_in_words in ("", "false") else f" Default: {each.default_in_words}"
        lines += _help_lines(f"{each.dashed} {each.placeholder}".rstrip(), each.description + default, width)
    if flags_class.variables:
        lines += ["", "Environment variables:"]
        for name, description in flags_class.variables.items():
            lines += _help_lines(name, description, width)
    return "\n".join(lines)


def _help_lines(name: str, description: str, width: int) -> list[str]:
    column = 28
    text = textwrap.wrap(description, width - column, break_on_hyphens=False, break_long_words=False)
    left = f"  {name}"
    first = [left] if len(left) > column - 2 else [left.ljust(column) + text.pop(0)]
    return [*first, *(" " * column + line for line in text)]


def _next_argument(arguments: Iterator[str], read: Flag) -> str:
    text = next(arguments, None)
    if text is None:
        raise UsageError(f"flag {read.dashed} needs a value, such as {read.dashed}={read.placeholder}")
    return text


def _not_a_flag(argument: str, previous: Flag | None, declared: Sequence[Flag]) -> str:
    """Describe an argument that is not a flag; `previous` is the boolean before it, whose value it may be."""
    if previous is not None:
        expected = f"the value of {previous.dashed} goes behind =, such as {previous.dashed}=false"
    else:
        example = next((each for each in declared if not each.is_boolean), None)
        expected = "expected only flags" + (f", such as {example.dashed}={example.placeholder}" if example else "")
    return f"unexpected argument {argument[:80]!r}: {expected}"


def _unknown_flag(argument: str, name: str, known: Collection[str]) -> str:
    same_but_case = [each for each in known if each.lower() == name.lower()]
    near = same_but_case or difflib.get_close_matches(name, known, n=1)
    hint = f", did you mean --{near[0]}?" if near else ""
    return f"unknown flag {argument.partition('=')[0]!r}{hint}"
