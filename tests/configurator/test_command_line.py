"""The program as a process: what it writes where, and how it ends."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.configurator.control_plane_files import ControlPlaneFiles

FULL = Path("/dev/full")


def command(files: ControlPlaneFiles, *more: str) -> list[str]:
    places = [f"-m={files.manifest}", f"-b={files.etc}", f"--pki-dir={files.own}", f"-d={files.etc}"]
    return [sys.executable, "-m", "configurator", *places, f"-cert-dir={files.certificates}", *more]


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}


@pytest.mark.parametrize("flag", ["--help", "--version", "-dry-run"])
def test_full_disk_behind_the_standard_output_is_a_sentence_and_status_1(files: ControlPlaneFiles, flag: str) -> None:
    with FULL.open("w") as full:
        ran = subprocess.run(
            command(files, flag),
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            env=environment(),
            timeout=60,
            check=False,
        )
    assert (ran.returncode, ran.stderr) == (
        1,
        "gas-configurator: cannot write to standard output: No space left on device; nothing else failed\n",
    )


@pytest.mark.parametrize("flag", ["--help", "-dry-run"])
def test_reader_that_stops_reading_is_not_a_failure(files: ControlPlaneFiles, flag: str) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        ran = subprocess.run(
            command(files, flag), stdout=writing, stderr=subprocess.PIPE, env=environment(), timeout=60, check=False
        )
    finally:
        os.close(writing)
    assert (ran.returncode, ran.stderr) == (0, b"")


def test_closed_standard_output_is_not_a_failure(files: ControlPlaneFiles) -> None:
    ran = subprocess.run(
        ["sh", "-c", 'exec "$@" >&-', "sh", *command(files, "-dry-run")],
        stderr=subprocess.PIPE,
        env=environment(),
        timeout=60,
        check=False,
    )
    assert (ran.returncode, ran.stderr) == (0, b"")


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGHUP"])
def test_signal_when_all_is_done_shows_no_traceback(files: ControlPlaneFiles, name: str) -> None:
    """Python runs such functions after the program's last line."""
    program = (
        "import atexit, os, signal, sys\n"
        "from configurator.__main__ import main\n"
        f"atexit.register(lambda: os.kill(os.getpid(), signal.{name}))\n"
        "sys.exit(main())\n"
    )
    words = command(files, "-dry-run")
    ran = subprocess.run(
        [words[0], "-c", program, *words[3:]], capture_output=True, env=environment(), timeout=60, check=False
    )
    assert (ran.returncode, ran.stderr) == (0, b"")
    assert b"would be changed" in ran.stdout
