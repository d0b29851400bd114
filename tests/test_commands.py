"""The command ``gas`` and what it can be asked."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from gas import __main__ as gas
from gas.commands import ENTRIES, all_commands, run


@pytest.fixture(autouse=True)
def _interrupts_as_before() -> Iterator[None]:
    before = signal.getsignal(signal.SIGINT)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        pytest.param([], 2, "Usage: gas [OPTIONS] COMMAND", id="nothing"),
        pytest.param(["nonsense"], 2, "No such command 'nonsense'", id="unknown"),
        pytest.param(["docter"], 2, "No such command 'docter'. Did you mean 'doctor'?; see gas --help", id="a-typo"),
        pytest.param(["--help"], 0, "doctor      Report what GPU", id="help"),
        pytest.param(["--version"], 0, "gas ", id="own-version"),
        pytest.param(["doctor", "--help"], 0, "--control-plane DIR", id="help-of-the-doctor"),
        pytest.param(["doctor", "--version"], 0, "gas doctor ", id="version"),
        pytest.param(["top", "--help"], 0, "Usage: gas top [OPTIONS]", id="help-of-top"),
        pytest.param(["waste", "extra"], 2, "unexpected extra argument", id="an-argument-too-many-of-another"),
        pytest.param(["doctor", "extra"], 2, "unexpected extra argument", id="an-argument-too-many"),
    ],
)
def test_the_command_gas_and_its_subcommands(
    arguments: list[str], code: int, words: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["gas", *arguments])
    assert gas.main() == code
    printed = capsys.readouterr()
    assert words in printed.out + printed.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        pytest.param(["-node", "a b"], "expected", id="one-dash"),
        pytest.param(
            ["-timeout=soon"],
            "expected a time such as 20s, 1.5m or 500ms, found 'soon'",
            id="a-value-after-an-equals-sign",
        ),
        pytest.param(["--all=maybe"], "flag --all: expected", id="a-boolean-that-is-none"),
        pytest.param(["-all=false", "-o=yaml"], "'yaml' is not one of 'text', 'json'", id="a-boolean-and-a-short-name"),
        pytest.param(["--manifest=a", "-scheduler-config=b"], "expected one of them", id="two-that-exclude-each-other"),
    ],
)
def test_the_doctor_also_takes_flags_in_gos_spelling(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["doctor", *arguments], "gas") == 2
    error = capsys.readouterr().err
    assert words in error
    assert error.startswith("gas: ")


def test_every_command_says_first_what_the_list_of_commands_says() -> None:
    for command in all_commands.loaded():
        assert command.name is not None
        assert (command.help or "").startswith(ENTRIES[command.name].summary)
        assert command.params
