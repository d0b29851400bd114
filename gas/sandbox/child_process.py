"""Programs of ours that a sandbox runs as processes of their own, and ends when it ends."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from gas.errors import GasError

STOP_SECONDS = 5.0
"""How long a program may take to end before it is killed."""

_LAST_LINES = 5


class ProcessEnded(GasError):
    """A program never got ready, or it ended by itself; the sentence ends with what it wrote last."""

    def __init__(self, sentence: str, exit_code: int = 1) -> None:
        super().__init__(sentence)
        self.exit_code = exit_code


@dataclass(frozen=True, slots=True)
class ChildProcess:
    """A running program. ``name`` is how sentences call it: ``the extender``."""

    name: str
    process: asyncio.subprocess.Process
    log: Path

    async def until_it_ends(self) -> NoReturn:
        """Wait for what should not come. Raises ProcessEnded."""
        code = await self.process.wait()
        raise self.ended(f"{self.name} ended with exit code {code}")

    def ended(self, what: str, exit_code: int = 1) -> ProcessEnded:
        """The error to raise: what happened, and the last lines that the program wrote."""
        return ProcessEnded("\n".join([f"{what}. It wrote:", *self.written().splitlines()[-_LAST_LINES:]]), exit_code)

    def written(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace").strip()


@asynccontextmanager
async def running_child(
    name: str, module: str, arguments: Sequence[str], log: Path, *, environment: Mapping[str, str] | None = None
) -> AsyncIterator[ChildProcess]:
    """Run ``python -m module`` while the block does; it writes into ``log``.

    environment  variables beside those of this process
    """
    with log.open("wb") as output:
        # A session of its own: Ctrl-C is for us to pass on, in our order.
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", module, *arguments),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            env={**os.environ, **(environment or {})},
        )
    try:
        yield ChildProcess(name, process, log)
    finally:
        await _stop(process)


async def _stop(process: asyncio.subprocess.Process) -> None:
    if process.returncode is not None:
        return
    os.killpg(process.pid, signal.SIGTERM)
    try:
        async with asyncio.timeout(STOP_SECONDS):
            await process.wait()
    except TimeoutError:
        os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
