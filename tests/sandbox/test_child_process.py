"""Programs that run beside the sandbox, and how they end."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from gas.sandbox import child_process
from gas.sandbox.child_process import ProcessEnded, running_child


def _program(directory: Path, *lines: str) -> dict[str, str]:
    """The environment in which ``python -m program`` runs these lines."""
    (directory / "program.py").write_text("\n".join(lines))
    return {"PYTHONPATH": str(directory), "WORD": "heard"}


async def test_one_that_ends_by_itself_is_told_with_the_last_lines_that_it_wrote(tmp_path: Path) -> None:
    lines = ["import os, sys", "for n in range(9): print(n, os.environ['WORD'], sys.argv[1])", "sys.exit(3)"]
    environment = _program(tmp_path, *lines)
    async with running_child("the program", "program", ["--x"], tmp_path / "log", environment=environment) as child:
        with pytest.raises(ProcessEnded) as ended:
            await child.until_it_ends()
    sentence, *told = str(ended.value).splitlines()
    assert sentence == "the program ended with exit code 3. It wrote:"
    assert told == [f"{n} heard --x" for n in range(4, 9)]


async def test_one_that_does_not_listen_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child_process, "STOP_SECONDS", 0.2)
    deaf = ["import signal, time", "signal.signal(signal.SIGTERM, signal.SIG_IGN)", "print('deaf', flush=True)"]
    environment = _program(tmp_path, *deaf, "while True: time.sleep(1)")
    async with running_child("the program", "program", [], tmp_path / "log", environment=environment) as child:
        while "deaf" not in child.written():
            assert child.process.returncode is None
            await asyncio.sleep(0.02)
    assert child.process.returncode == -9
