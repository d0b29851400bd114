"""The command ``gas`` and what it can be asked."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from gas import __main__ as gas
from gas.inspection.command_line import kubectl_gas


@pytest.fixture(autouse=True)
def _interrupts_as_before() -> Iterator[None]:
    before = signal.getsignal(signal.SIGINT)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        pytest.param([], 2, "expected a command, found none", id="nothing"),
        pytest.param(["nonsense"], 2, "found 'nonsense'", id="unknown"),
        pytest.param(["docter"], 2, "found 'docter', did you mean doctor?; see gas --help", id="a-typo"),
        pytest.param(["--help"], 0, "doctor    checks a cluster", id="help"),
        pytest.param(["--version"], 0, "gas ", id="own-version"),
        pytest.param(["doctor", "--help"], 0, "--control-plane DIR", id="help-of-the-doctor"),
        pytest.param(["doctor", "--version"], 0, "gas doctor ", id="version"),
        pytest.param(["top", "--help"], 0, "Usage: gas top [OPTIONS]", id="help-of-top"),
        pytest.param(["waste", "extra"], 2, "unexpected extra argument", id="an-argument-too-many-of-another"),
        pytest.param(["doctor", "extra"], 2, "unexpected argument", id="an-argument-too-many"),
    ],
)
def test_the_command_gas_and_its_subcommands(
    arguments: list[str], code: int, words: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["gas", *arguments])
    assert gas.main() == code
    printed = capsys.readouterr()
    assert words in printed.out + printed.err


def test_gas_has_the_commands_of_kubectl_gas_and_its_help_lists_them() -> None:
    assert set(gas.COMMANDS) == set(kubectl_gas.commands) - {"completion"}
    assert [line.split()[0] for line in gas.HELP.partition("Commands:\n")[2].partition("\n\n")[0].splitlines()] == list(
        gas.COMMANDS
    )
