"""The extender as a process of the sandbox: what is said when it does not start, or ends by itself."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from gas.sandbox.api_server import ApiServer
from gas.sandbox.child_process import ProcessEnded
from gas.sandbox.extender_process import FlagOfTheSandbox, running_extender


@pytest.mark.parametrize(
    ("flag", "exit_code", "sentence"),
    [
        ("--nonsense", 2, "gas-extender: unknown flag '--nonsense'; see --help"),
        ("--version", 0, "gas-extender 0."),
    ],
)
async def test_it_answers_for_its_flags_itself(
    server: ApiServer, tmp_path: Path, flag: str, exit_code: int, sentence: str
) -> None:
    with pytest.raises(ProcessEnded) as ended:
        async with running_extender(tmp_path, server.url, [flag]):
            pytest.fail("it is not running")
    assert str(ended.value).startswith(sentence)
    assert ended.value.exit_code == exit_code


@pytest.mark.parametrize("flag", ["--port=1", "-port", "--kubeConfig=x"])
async def test_flags_that_the_sandbox_sets_are_refused(server: ApiServer, tmp_path: Path, flag: str) -> None:
    with pytest.raises(FlagOfTheSandbox, match="is set by the sandbox itself"):
        async with running_extender(tmp_path, server.url, [flag]):
            pytest.fail("it is not running")


async def test_its_end_is_told_with_what_it_wrote(server: ApiServer, tmp_path: Path) -> None:
    async with running_extender(tmp_path, server.url, []) as extender:
        os.kill(extender.child.process.pid, signal.SIGKILL)
        with pytest.raises(ProcessEnded, match=r"the extender ended with exit code -9\. It wrote:\n."):
            await extender.child.until_it_ends()


async def test_it_is_stopped_when_the_block_ends(server: ApiServer, tmp_path: Path) -> None:
    async with running_extender(tmp_path, server.url, []) as extender:
        assert extender.child.process.returncode is None
    assert extender.child.process.returncode == 0
