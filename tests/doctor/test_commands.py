"""The command ``gas`` and what it can be asked."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from gas import __main__ as gas


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
