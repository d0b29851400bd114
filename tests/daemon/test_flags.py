"""Flags: declared once, read as Go reads them, and described in --help."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, get_type_hints

import pytest

from configurator.flags import Flags as ConfiguratorFlags
from gas.daemon import flag_values as values
from gas.daemon.flags import (
    CommandFlags,
    CommandLine,
    DaemonFlags,
    IgnoredFlags,
    PartFlags,
    UsageError,
    flag,
    flags_of,
    help_text,
    read_flags,
    switch,
)
from gas.extender.command_line import COMMAND_LINE as EXTENDER
from gas.plugin.flags import COMMAND_LINE as PLUGIN

PROGRAMS: tuple[CommandLine[Any], ...] = (
    CommandLine(ConfiguratorFlags),
    EXTENDER,
    PLUGIN,
)
EVERY_FLAG = [(program, each.name) for program in PROGRAMS for each in flags_of(program)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Flags(CommandFlags):
    """Flags of a program that does not exist."""

    program: ClassVar[str] = "gas-example"
    summary: ClassVar[str] = "Does nothing."
    ignored: ClassVar[tuple[IgnoredFlags, ...]] = (
        IgnoredFlags(switches=("old",), with_value=("older",), reason="nothing needs them"),
        IgnoredFlags(switches=("odd",), reason="it never worked"),
    )

    loud: bool = switch("loud", "Whether it is loud.", default=True, group="Sounds")
    file: Path = flag("file=FILE", values.file, "/tmp/sound", "Where the sound is.")
    volume: int | None = flag("n=N", values.whole, None, "The volume.", unset="as loud as before")


def test_defaults() -> None:
    flags = read_flags(Flags, [])
    assert (flags.loud, flags.file, flags.volume) == (True, Path("/tmp/sound"), None)
    assert (flags.given, flags.warnings, flags.show_help) == (frozenset(), (), False)
    assert flags == Flags()


@pytest.mark.parametrize("dashes", ["-", "--"])
def test_values_after_an_equals_sign_or_a_space(dashes: str) -> None:
    flags = read_flags(Flags, [f"{dashes}file=a", f"{dashes}n", "1", f"{dashes}loud=false"])
    assert (flags.file, flags.volume, flags.loud) == (Path("a"), 1, False)
    assert flags.given == {"file", "n", "loud"}


@pytest.mark.parametrize("text", ["1", "t", "T", "TRUE", "true", "True"])
def test_texts_that_go_takes_for_true(text: str) -> None:
    assert read_flags(Flags, [f"--loud={text}"]).loud


@pytest.mark.parametrize("text", ["0", "f", "F", "FALSE", "false", "False"])
def test_texts_that_go_takes_for_false(text: str) -> None:
    assert not read_flags(Flags, ["--loud", f"--loud={text}"]).loud


@pytest.mark.parametrize("value", ["-x", "a=b", "--", "a b"])
def test_a_value_may_be_any_text(value: str) -> None:
    assert read_flags(Flags, ["--file", value]) == read_flags(Flags, [f"--file={value}"]) == Flags(file=Path(value))


def test_the_last_of_several_wins() -> None:
    assert read_flags(Flags, ["-n=1", "-n=2"]).volume == 2


def test_another_name_stands_for_the_flag() -> None:
    @dataclass(frozen=True, slots=True, kw_only=True)
    class Named(CommandFlags):
        words: str = flag("words=WORD,…", str, "a", "Words.", joined=True, other_name="terms")

    assert read_flags(Named, ["--terms=b", "-words=c"]) == Named(words="b,c")
    assert read_flags(Named, ["--terms", "b"]).given == {"words"}
    with pytest.raises(UsageError, match="did you mean --terms"):
        read_flags(Named, ["--term=b"])


def test_all_of_several_count_if_they_are_joined() -> None:
    @dataclass(frozen=True, slots=True, kw_only=True)
    class Joining(CommandFlags):
        words: str = flag("words=WORD,…", str, "a", "Words.", joined=True)

    assert read_flags(Joining, []).words == "a"
    assert read_flags(Joining, ["--words=b,c", "-words", "d"]).words == "b,c,d"


@pytest.mark.parametrize("argument", ["-h", "--h", "-help", "--help"])
def test_help(argument: str) -> None:
    assert read_flags(Flags, [argument]).show_help


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        pytest.param(["now"], "unexpected argument 'now': expected only flags, such as --file=FILE", id="not-a-flag"),
        pytest.param(
            ["--loud", "false"],
            "unexpected argument 'false': the value of --loud goes behind =, such as --loud=false",
            id="a-value-after-a-boolean",
        ),
        pytest.param(
            ["--loud=true", "false"],
            "unexpected argument 'false': expected only flags, such as --file=FILE",
            id="a-boolean-that-has-its-value",
        ),
        pytest.param(
            ["--file", "a", "b"],
            "unexpected argument 'b': expected only flags, such as --file=FILE",
            id="a-flag-that-has-its-value",
        ),
        pytest.param(["--"], "unexpected argument '--': expected only flags, such as --file=FILE", id="two-dashes"),
        pytest.param(["-"], "unexpected argument '-': expected only flags, such as --file=FILE", id="one-dash"),
        pytest.param(
            ["---n=1"], "unexpected argument '---n=1': expected only flags, such as --file=FILE", id="three-dashes"
        ),
        pytest.param(["--fil=a"], "unknown flag '--fil', did you mean --file?", id="an-abbreviation"),
        pytest.param(["--file"], "flag --file needs a value, such as --file=FILE", id="no-value"),
        pytest.param(["-n"], "flag -n needs a value, such as -n=N", id="no-value-for-a-letter"),
        pytest.param(
            ["--older"], "flag --older needs a value, such as --older=VALUE", id="no-value-for-an-ignored-flag"
        ),
        pytest.param(["--n=x"], "flag -n: expected a whole number, 0 or more, found 'x'", id="an-invalid-value"),
        pytest.param(["--old=x"], "flag --old: expected true or false, found 'x'", id="an-invalid-ignored-value"),
        pytest.param(["--fiel=a"], "unknown flag '--fiel', did you mean --file?", id="a-typo"),
        pytest.param(["--FILE=a"], "unknown flag '--FILE', did you mean --file?", id="upper-case"),
        pytest.param(["--xyzzy"], "unknown flag '--xyzzy'", id="unknown"),
    ],
)
def test_invalid_command_lines(argv: list[str], sentence: str) -> None:
    with pytest.raises(UsageError) as refused:
        read_flags(Flags, argv)
    assert (str(refused.value), refused.value.exit_code) == (f"{sentence}; see --help", 2)


def test_ignored_flags_give_one_warning_for_each_reason() -> None:
    flags = read_flags(Flags, ["-old", "--odd", "--older=x", "-old=false", "-n=1"])
    assert flags.warnings == ("ignored: --old, --older; nothing needs them", "ignored: --odd; it never worked")
    assert flags.volume == 1
    assert flags.given == {"n"}


def test_the_order_of_flags_is_that_of_the_declarations_with_the_common_ones_last() -> None:
    assert [each.name for each in flags_of(Flags)] == ["loud", "file", "n", "version", "help"]
    assert [each.group for each in flags_of(Flags)] == ["Sounds", "Sounds", "Sounds", "Help", "Help"]


def test_flags_of_one_group_stand_together_wherever_they_are_declared() -> None:
    names = [each.name for each in flags_of(EXTENDER)]
    assert names[names.index("metrics-port") + 1] == "metrics-address"


def test_help_text() -> None:
    text = help_text(Flags)
    assert text.startswith("Usage: gas-example [flags]\n\nDoes nothing.\n")
    assert "\nSounds:\n  --loud                    Whether it is loud. Default: true\n" in text
    assert "\n  --file FILE               Where the sound is. Default: /tmp/sound\n" in text
    assert "\n  -n N                      The volume. Default: as loud as before\n" in text
    assert "--old" not in text


def test_a_path_is_never_broken_at_its_hyphens() -> None:
    path = "deploy/extender-configuration/config.yaml"

    @dataclass(frozen=True, slots=True, kw_only=True)
    class WithPath(Flags):
        template: Path = flag("f=FILE", values.file, path, "The configuration that is written if there is none.")

    for width in range(80, 120):
        assert path in help_text(WithPath, width=width)


@pytest.mark.parametrize(("program", "name"), EVERY_FLAG)
def test_every_flag_is_declared_completely(program: CommandLine[Any], name: str) -> None:
    (declared,) = [each for each in flags_of(program) if each.name == name]
    (field, declaring) = next(
        (each, kind)
        for kind in (program.core, *program.parts)
        for each in dataclasses.fields(kind)
        if each.name == declared.attribute
        and each.metadata.get("flag") is not None
        and each.metadata["flag"].name == name
    )
    assert declared.group
    assert declared.description.endswith(".")
    assert declared.description[0].isupper()
    assert field.name in get_type_hints(declaring)
    if declared.default is not None:
        assert field.default == declared.parse(declared.default)


@pytest.mark.parametrize("program", PROGRAMS)
def test_the_help_of_every_program_has_every_flag_and_fits_a_terminal(program: CommandLine[Any]) -> None:
    lines = help_text(program).splitlines()
    for each in flags_of(program):
        assert any(line.startswith(f"  {each.dashed} ") or line == f"  {each.dashed}" for line in lines)
    assert max(len(line) for line in lines if " /" not in line) <= 110
    assert "logtostderr" not in help_text(program)


def test_daemons_accept_the_flags_of_klog() -> None:
    for program in (EXTENDER.core, PLUGIN.core):
        assert issubclass(program, DaemonFlags)
        assert {each.name for group in program.ignored for each in group.flags} >= {"logtostderr", "vmodule"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Echo(PartFlags):
    """A part with a switch of its own."""

    switched_by: ClassVar[str] = "echo"

    echo: bool = switch("echo", "Repeat every sound.", group="Sounds")
    delay: int = flag("echo-delay=N", values.whole, "1", "Seconds before the echo.")


WITH_ECHO = CommandLine(Flags, (Echo,))


def test_flags_of_a_part_are_read_and_described_with_those_of_the_program() -> None:
    flags = read_flags(WITH_ECHO, ["--loud=false", "--echo", "--echo-delay=3"])
    assert (flags.loud, flags.of(Echo)) == (False, Echo(echo=True, delay=3))
    assert flags.given == {"loud", "echo", "echo-delay"}
    assert [each.name for each in flags_of(WITH_ECHO)] == ["loud", "file", "n", "echo", "echo-delay", "version", "help"]
    assert "  --echo-delay N " in help_text(WITH_ECHO)
    assert flags.warnings == ()


def test_flags_of_a_part_that_is_off_have_no_effect() -> None:
    flags = read_flags(WITH_ECHO, ["--echo-delay=3"])
    assert flags.warnings == ("ignored: --echo-delay; set --echo as well",)


def test_flags_of_a_part_that_the_program_does_not_have_are_unknown() -> None:
    assert read_flags(Flags, []).of(Echo) == Echo()
    with pytest.raises(UsageError, match="unknown flag '--echo'"):
        read_flags(Flags, ["--echo"])
