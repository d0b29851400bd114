from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gas.daemon.early_signals import quiet_end_on_signals

PROGRAMS = ("gas.plugin", "gas.extender", "gas", "configurator")


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
def test_a_program_that_is_still_importing_ends_at_once_without_a_traceback(
    tmp_path: Path, program: str, number: signal.Signals
) -> None:
    """Here the import of a module that each of them needs never ends."""
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


def test_afterwards_everything_is_as_before() -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    with quiet_end_on_signals():
        assert signal.getsignal(signal.SIGINT) is not before[0]
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before
