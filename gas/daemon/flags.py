"""Command-line flags: declared as fields of a dataclass, and parsed as Go's ``flag`` package does.

Each program declares its flags in a class derived from `CommandFlags` or `DaemonFlags`, one field a flag:

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Flags(DaemonFlags):
        program: ClassVar[str] = "gas-extender"
        port: int = flag("port=N", values.port, "9001", "Port for filter and bind requests.", group="Serving")

An optional part of a program declares its flags in a class of its own, derived from `PartFlags`. A `CommandLine` is the
program's class with those of its parts; ``flags.of(LeadershipFlags)`` returns the values of one part.

The declaration is the only place that states a flag's name, type, default and help. `read_flags` makes an instance
from a command line, `help_text` writes what --help prints, and `flags_of` lists the flags for generated documentation
and for tests of manifests.

Go's rules: one dash or two; ``-name=value`` or ``-name value``; a boolean takes a value only after ``=``; if a flag is
given several times, the last one wins; names cannot be abbreviated. argparse supports almost none of these rules. Only
for a flag that is declared with ``joined`` all values count, as if they were one with commas between them.
"""

import dataclasses
import difflib
import textwrap
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar, cast

from gas.daemon import flag_values as values
from gas.daemon.logs import LOG_FORMATS, LogFormat
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
    name: str  # without dashes
    # converts text to the value; raises ValueError with what it expects, in words, or InvalidEntry if one entry of a
    # list is wrong
    parse: Callable[[str], object]
    default: str | None  # the default as text; None if the value is None without the flag
    placeholder: str  # stands for the value in help texts; empty for a boolean
    description: str  # one or more sentences
    group: str = ""  # title of the group that the flag is listed under
    unset: str = ""  # what applies without the flag, in words, where `default` does not state it
    joined: bool = False  # whether all values count if the flag is given several times, not only the last one
    other_name: str = ""  # a name that is accepted as well; empty if there is none
    attribute: str = ""  # the field of the Flags class that holds the value; `flags_of` fills it in

    @property
    def is_boolean(self) -> bool:
        return not self.placeholder

    @property
    def dashed(self) -> str:
        """The name with dashes: ``-v``, ``--port``."""
        return f"-{self.name}" if len(self.name) == 1 else f"--{self.name}"

    @property
    def default_in_words(self) -> str:
        return self.unset or self.default or ""


@dataclass(frozen=True, slots=True, kw_only=True)
class IgnoredFlags:
    """Flags that are accepted without effect, so that existing manifests still start."""

    switches: tuple[str, ...] = ()  # names of booleans
    with_value: tuple[str, ...] = ()  # names of flags that take a value
    reason: str = ""  # the end of the warning, after their names

    @property
    def flags(self) -> Iterator[Flag]:
        yield from (Flag(name, values.boolean, None, "", "") for name in self.switches)
        yield from (Flag(name, str, None, "VALUE", "") for name in self.with_value)

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


def flag(form: str, parse: Callable[[str], T], default: str | None, text: str, **more: Any) -> T:
    """Declare a flag that takes a value, ``port=N``, as a field of a Flags class; see `Flag` for the arguments.

    The field has the type of `parse`'s result, or None without a default. A flag without `group` belongs to the group
    of the flag before it.
    """
    name, _, placeholder = form.partition("=")
    declared = Flag(name, parse, default, placeholder, text, **more)
    return cast(T, _field(None if default is None else parse(default), declared))


def switch(name: str, description: str, *, default: bool = False, group: str = "") -> bool:
    return _field(default, Flag(name, values.boolean, str(default).lower(), "", description, group=group))


def _field(default: T, declared: Flag) -> T:
    return dataclasses.field(default=default, metadata={_METADATA: declared})


@dataclass(frozen=True, slots=True, kw_only=True)
class PartFlags:
    """The flags of one part of a program; each part derives a class."""

    # class attribute: the flag that switches the part on, its own or not. Without it the other flags of the part have
    # no effect, and a warning is logged. Empty if there is no such flag
    switched_by: ClassVar[str] = ""


P = TypeVar("P", bound=PartFlags)


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandFlags:
    """The flags that every program has, and what `read_flags` records besides their values."""

    program: ClassVar[str]
    summary: ClassVar[str]  # what the program does
    variables: ClassVar[Mapping[str, str]] = {}  # environment variables and their descriptions
    # flags that are accepted without effect, by the reason for it
    ignored: ClassVar[tuple[IgnoredFlags, ...]] = ()

    show_version: bool = switch("version", "Print the version and exit.", group="Help")
    show_help: bool = switch("help", "Print this text and exit; -h does the same.")
    # names of the flags on the command line, without those that are ignored
    given: frozenset[str] = dataclasses.field(default=frozenset(), compare=False)
    warnings: tuple[str, ...] = ()  # sentences about flags on the command line that have no effect
    # the flags of each part of the program, see `of`
    parts: Mapping[type[PartFlags], PartFlags] = dataclasses.field(default_factory=dict, hash=False)

    def of(self, part: type[P]) -> P:
        """Return the flags of a part, with their defaults if the command line was read without that part."""
        found = self.parts.get(part)
        return found if isinstance(found, part) else part()


@dataclass(frozen=True, slots=True, kw_only=True)
class DaemonFlags(CommandFlags):
    ignored: ClassVar[tuple[IgnoredFlags, ...]] = (KLOG_FLAGS,)

    kube_config: str | None = flag(
        "kubeConfig=FILE",
        values.text_or_none,
        None,
        "Kubeconfig with which to reach the cluster.",
        group="Kubernetes API",
        unset="the pod's service account, else $KUBECONFIG, else ~/.kube/config",
    )
    verbosity: int = flag(
        "v=N",
        values.whole,
        "0",
        "Log verbosity: 0 logs what matters, 2 also why pods wait and what containers get, 4 every decision.",
        group="Logs",
    )
    log_format: LogFormat = flag(
        "log-format=FORMAT", values.one_of(LOG_FORMATS), "text", "Format of the log lines: text or json."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredDaemonFlags(DaemonFlags):
    metrics_address: str = flag(
        "metrics-address=IP",
        values.address,
        "",
        "Address that --metrics-port listens on.",
        group="Health and metrics (plain HTTP)",
        unset="every address, IPv4 and IPv6",
    )


F = TypeVar("F", bound=CommandFlags)


@dataclass(frozen=True, slots=True)
class CommandLine(Generic[F]):
    """The flags of a program together with those of its parts."""

    core: type[F]  # the class of the program's own flags
    parts: tuple[type[PartFlags], ...] = ()  # the classes of its parts' flags, in the order in which they are listed

    @property
    def program(self) -> str:
        return self.core.program

    @property
    def flags(self) -> tuple[Flag, ...]:
        """The declared flags by group: the program's own, its parts', then those of every program."""
        own, *bases = self.core.__mro__[:-1]
        groups: dict[str, list[Flag]] = {}
        for declaring in (own, *self.parts, *bases):
            for each in flags_in(declaring):
                groups.setdefault(each.group, []).append(each)
        return tuple(each for group in groups.values() for each in group)

    def assemble(self, found: Mapping[str, Any], warnings: Iterable[str]) -> F:
        """Return the flags with the values found, by the names of the flags."""
        parts: dict[type[PartFlags], PartFlags] = {}
        for kind in self.parts:
            of_part = {each.attribute: found[each.name] for each in flags_in(kind) if each.name in found}
            parts[kind] = kind(**of_part)
        core = CommandLine(self.core).flags
        own = {each.attribute: found[each.name] for each in core if each.name in found}
        return self.core(**own, given=frozenset(found), warnings=tuple(warnings), parts=parts)

    def without_effect(self, found: Mapping[str, Any]) -> list[str]:
        """Return a warning for each switch that is off, as without the flag, although flags that need it are given."""
        needing: dict[str, set[str]] = {}
        for kind in self.parts:
            if kind.switched_by and not found.get(kind.switched_by):
                names = {each.name for each in flags_in(kind)} - {kind.switched_by}
                needing.setdefault(kind.switched_by, set()).update(names & found.keys())
        return [
            f"ignored: {', '.join(f'--{each}' for each in sorted(names))}; set --{switch_name} as well"
            for switch_name, names in needing.items()
            if names
        ]


def flags_in(declaring: type) -> Iterator[Flag]:
    """Yield the flags that a class declares itself, not its bases."""
    fields = getattr(declaring, "__dataclass_fields__", {})
    group = ""
    for attribute in declaring.__annotations__:
        if attribute in fields and _METADATA in fields[attribute].metadata:
            declared: Flag = fields[attribute].metadata[_METADATA]
            group = declared.group or group
            yield dataclasses.replace(declared, attribute=attribute, group=group)


Declaration = CommandLine[F] | type[F]  # a program's command line; its class of flags alone if it has no parts


def command_line(declaration: Declaration[F]) -> CommandLine[F]:
    return declaration if isinstance(declaration, CommandLine) else CommandLine(declaration)


def flags_of(declaration: Declaration[F]) -> tuple[Flag, ...]:
    """Return the declared flags of a program in the order of the help text."""
    return command_line(declaration).flags


def read_flags(declaration: Declaration[F], argv: Sequence[str]) -> F:
    """Parse the arguments after the program's name. Raises UsageError."""
    line = command_line(declaration)
    declared = line.flags
    without_effect = {each.name: each for group in line.core.ignored for each in group.flags}
    known = without_effect | {each.name: each for each in declared}
    known |= {each.other_name: each for each in declared if each.other_name}
    known["h"] = known["help"]
    found: dict[str, Any] = {}
    texts: dict[str, str] = {}
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
            following = "true" if read.is_boolean else next(arguments, None)
            if following is None:
                raise UsageError(f"flag {read.dashed} needs a value, such as {read.dashed}={read.placeholder}")
            text = following
        if read.joined:
            text = texts[read.name] = f"{texts[read.name]},{text}" if read.name in texts else text
        try:
            value = read.parse(text)
        except ValueError as expected:
            found_text = expected.entry if isinstance(expected, InvalidEntry) else text
            raise UsageError(f"flag {read.dashed}: expected {expected}, found {found_text[:80]!r}") from None
        if read.attribute:
            found[read.name] = value
        else:
            ignored.add(read.name)
        previous = read if read.is_boolean and not equals else None
    warnings = filter(None, (group.warning(ignored) for group in line.core.ignored))
    return line.assemble(found, (*line.without_effect(found), *warnings))


def help_text(declaration: Declaration[Any], width: int = 100) -> str:
    flags_class = command_line(declaration).core
    lines = [
        f"Usage: {flags_class.program} [flags]",
        "",
        textwrap.fill(flags_class.summary, width),
        "",
        "A flag takes one dash or two, and its value after = or a space. A boolean takes a value only after =.",
    ]
    group = ""
    for each in flags_of(declaration):
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
