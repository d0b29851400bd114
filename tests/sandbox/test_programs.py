"""Programs as processes of the sandbox: errors when they do not start or end by themselves."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from gas.daemon.flags import UsageError
from sandbox import programs
from sandbox.api.server import ApiServer
from sandbox.programs import ProcessEnded, running_child, running_extender


@pytest.mark.parametrize(
    ("flag", "exit_code", "sentence"),
    [
        ("--nonsense", 2, "gas-extender: unknown flag '--nonsense'; see --help"),
        ("--version", 0, "gas-extender 0."),
    ],
)
async def test_the_extender_reports_its_own_flag_errors(
    server: ApiServer, tmp_path: Path, flag: str, exit_code: int, sentence: str
) -> None:
    with pytest.raises(ProcessEnded) as ended:
        async with running_extender(tmp_path, server.url, [flag]):
            pytest.fail("it is not running")
    assert str(ended.value).startswith(sentence)
    assert ended.value.exit_code == exit_code


@pytest.mark.parametrize("flag", ["--port=1", "-port", "--kubeConfig=x"])
async def test_flags_that_the_sandbox_sets_are_refused(server: ApiServer, tmp_path: Path, flag: str) -> None:
    with pytest.raises(UsageError, match="the sandbox sets this flag itself"):
        async with running_extender(tmp_path, server.url, [flag]):
            pytest.fail("it is not running")


def _program(directory: Path, *lines: str) -> dict[str, str]:
    """Return the environment in which ``python -m program`` runs these lines."""
    (directory / "program.py").write_text("\n".join(lines))
    return {"PYTHONPATH": str(directory), "WORD": "heard"}


async def test_a_program_that_ends_by_itself_is_reported_with_its_last_output(tmp_path: Path) -> None:
    lines = ["import os, sys", "for n in range(9): print(n, os.environ['WORD'], sys.argv[1])", "sys.exit(3)"]
    environment = _program(tmp_path, *lines)
    async with running_child("the program", "program", ["--x"], tmp_path / "log", environment=environment) as child:
        with pytest.raises(ProcessEnded) as ended:
            await child.until_it_ends()
    sentence, *told = str(ended.value).splitlines()
    assert sentence == "the program ended with exit code 3. Its last output:"
    assert told == [f"{n} heard --x" for n in range(4, 9)]


async def test_a_program_that_ignores_sigterm_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs, "STOP_SECONDS", 0.2)
    deaf = ["import signal, time", "signal.signal(signal.SIGTERM, signal.SIG_IGN)", "print('deaf', flush=True)"]
    environment = _program(tmp_path, *deaf, "while True: time.sleep(1)")
    async with running_child("the program", "program", [], tmp_path / "log", environment=environment) as child:
        while "deaf" not in child.written():
            assert child.process.returncode is None
            await asyncio.sleep(0.02)
    assert child.process.returncode == -9


@pytest.mark.parametrize(
    ("flags", "weight"), [((), 0), (("--node-score=none",), 0), (("--node-score=balance", "-v=4"), 1)]
)
async def test_an_extender_with_scores_is_asked_for_them(
    server: ApiServer, tmp_path: Path, flags: tuple[str, ...], weight: int
) -> None:
    async with running_extender(tmp_path, server.url, flags) as extender:
        assert extender.address.weight == weight
