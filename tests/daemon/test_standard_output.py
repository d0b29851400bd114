"""What every program tells on a standard output that nobody takes, or that has not all letters."""

from __future__ import annotations

import errno
import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gas.daemon.standard_output import StandardOutput

COMMANDS = {
    "gas": ["-m", "gas", "--help"],
    "gas doctor": ["-m", "gas", "doctor", "--help"],
    "gas-configurator": ["-m", "configurator", "--help"],
    "gas-extender": ["-m", "gas.extender", "--help"],
    "gas-plugin": ["-m", "gas.plugin", "--version"],
}


@pytest.mark.parametrize("program", COMMANDS)
def test_full_disk_is_a_sentence_and_no_success(program: str) -> None:
    with Path("/dev/full").open("wb") as full:
        ended = subprocess.run(
            [sys.executable, *COMMANDS[program]], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert ended.returncode == (2 if program == "gas doctor" else 1)
    assert ended.stderr == (
        f"{program}: what it had to say could not be written to the standard output: No space left on device; "
        "nothing else failed\n"
    )


@pytest.mark.parametrize("program", COMMANDS)
def test_reader_that_goes_away_is_no_failure(program: str) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        ended = subprocess.run([sys.executable, *COMMANDS[program]], stdout=writer, stderr=subprocess.PIPE, check=False)
    finally:
        os.close(writer)
    assert (ended.returncode, ended.stderr) == (0, b"")


@pytest.mark.parametrize("program", COMMANDS)
def test_terminal_without_a_letter_gets_an_escape(program: str) -> None:
    environment = {**os.environ, "PYTHONIOENCODING": "ascii:strict"}
    ended = subprocess.run([sys.executable, *COMMANDS[program]], capture_output=True, env=environment, check=False)
    assert (ended.returncode, ended.stderr) == (0, b"")
    assert ended.stdout.isascii()


def test_name_of_a_file_that_is_no_text_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="utf-8"))
    output = StandardOutput("program")
    output.say("made /x\udcff, für alle")
    assert written.getvalue() == "made /x\\udcff, für alle\n".encode()
    assert output.exit_code(0) == 0


class FullDisk(io.StringIO):
    """Behind which no byte has room."""

    def flush(self) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_what_failed_anyway_keeps_its_own_status(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdout", FullDisk())
    output = StandardOutput("program", unwritten=2)
    output.say("one")
    output.say("two")
    sys.stdout.close()
    assert output.exit_code(3) == 3
    assert output.exit_code(1) == 2
    said = "program: what it had to say could not be written to the standard output: No space left on device\n"
    assert capsys.readouterr().err == 2 * said
