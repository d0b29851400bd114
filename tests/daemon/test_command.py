"""The frame of every program: signals and standard output."""

from __future__ import annotations

import errno
import io
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gas.daemon.command import StandardOutput, interrupt_on_signals, quiet_end_on_signals

PROGRAMS = ("gas.plugin", "gas.extender", "gas", "configurator")


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
def test_a_program_that_is_still_importing_ends_at_once_without_a_traceback(
    tmp_path: Path, program: str, number: signal.Signals
) -> None:
    """The import of a module that every program needs never ends here."""
    began = tmp_path / "began"
    for module in ("asyncio", "msgspec"):
        (tmp_path / f"{module}.py").write_text(
            f"import pathlib, time\npathlib.Path({str(began)!r}).touch()\ntime.sleep(60)\n"
        )
    environ = {**os.environ, "PYTHONPATH": str(tmp_path)}
    command = [sys.executable, "-m", program, *(("doctor",) if program == "gas" else ())]
    with subprocess.Popen(command, stderr=subprocess.PIPE, env=environ) as running:
        try:
            while not began.exists() and running.poll() is None:
                time.sleep(0.01)
            running.send_signal(number)
            _, errors = running.communicate(timeout=20)
        finally:
            running.kill()
    assert (running.returncode, errors) == (128 + number, b"")


def test_afterwards_the_previous_handlers_are_back() -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    with quiet_end_on_signals():
        assert signal.getsignal(signal.SIGINT) is not before[0]
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


def test_sigint_interrupts_a_program_that_was_started_with_sigint_ignored() -> None:
    """Shells start background jobs this way, and Python then installs no handler of its own."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with pytest.raises(KeyboardInterrupt), interrupt_on_signals(signal.SIGINT):
            signal.raise_signal(signal.SIGINT)
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


COMMANDS = {
    "gas": ["-m", "gas", "--help"],
    "gas doctor": ["-m", "gas", "doctor", "--help"],
    "gas-configurator": ["-m", "configurator", "--help"],
    "gas-extender": ["-m", "gas.extender", "--help"],
    "gas-plugin": ["-m", "gas.plugin", "--version"],
}


@pytest.mark.parametrize("program", COMMANDS)
def test_a_full_disk_is_reported_and_never_exit_code_0(program: str) -> None:
    with Path("/dev/full").open("wb") as full:
        ended = subprocess.run(
            [sys.executable, *COMMANDS[program]], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert ended.returncode == (2 if program == "gas doctor" else 1)
    assert ended.stderr == (
        f"{program}: cannot write to standard output: No space left on device; nothing else failed\n"
    )


@pytest.mark.parametrize("program", COMMANDS)
def test_a_reader_that_goes_away_is_not_an_error(program: str) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        ended = subprocess.run([sys.executable, *COMMANDS[program]], stdout=writer, stderr=subprocess.PIPE, check=False)
    finally:
        os.close(writer)
    assert (ended.returncode, ended.stderr) == (0, b"")


@pytest.mark.parametrize("program", COMMANDS)
def test_characters_that_the_terminal_lacks_are_escaped(program: str) -> None:
    environment = {**os.environ, "PYTHONIOENCODING": "ascii:strict"}
    ended = subprocess.run([sys.executable, *COMMANDS[program]], capture_output=True, env=environment, check=False)
    assert (ended.returncode, ended.stderr) == (0, b"")
    assert ended.stdout.isascii()


def test_a_file_name_that_is_not_text_is_escaped(monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="utf-8"))
    output = StandardOutput("program")
    output.write("made /x\udcff, für alle")
    assert written.getvalue() == "made /x\\udcff, für alle\n".encode()
    assert output.exit_code(0) == 0


class FullDisk(io.StringIO):
    """A standard output whose disk is full."""

    def flush(self) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_command_that_failed_keeps_its_exit_code(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdout", FullDisk())
    output = StandardOutput("program", unwritten=2)
    output.write("one")
    output.write("two")
    sys.stdout.close()
    assert output.exit_code(3) == 3
    assert output.exit_code(1) == 2
    said = "program: cannot write to standard output: No space left on device\n"
    assert capsys.readouterr().err == 2 * said
