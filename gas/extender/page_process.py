"""The process that serves the page of --page-port.

It is a process of its own: describing 40,000 cards or looking for suggestions takes seconds, and no filter must wait
for that. It reads the cluster itself, with the same code as `kubectl gas`, and shares only the listening socket.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Sequence
from typing import NoReturn

from gas.cluster.backoff import Backoff

logger = logging.getLogger(__name__)

MODULE = "gas.inspection.page"
STOP_SECONDS = 2.0
_WORTH_WHILE = 30.0
"""Seconds after which a process that ends is started again without a longer pause."""


class PageProcess:
    """The running process of the page, started again if it ends.

    opened     the listening socket
    extender   URL of the extender's plain port
    arguments  the extender's command line, which says how to reach the cluster and how pods are placed
    """

    def __init__(self, opened: socket.socket, extender: str, arguments: Sequence[str]) -> None:
        self._opened = opened
        self._command = [sys.executable, "-m", MODULE, str(opened.fileno()), extender, *arguments]

    async def run(self) -> NoReturn:
        """Run the process until cancelled."""
        backoff = Backoff(first=1.0, longest=60.0)
        loop = asyncio.get_running_loop()
        while True:
            begun = loop.time()
            # Its standard input is a pipe that ends with this process, even if that is killed.
            process = await asyncio.create_subprocess_exec(*self._command, stdin=PIPE, pass_fds=[self._opened.fileno()])
            try:
                code = await process.wait()
            finally:
                await _stop(process)
            if loop.time() - begun > _WORTH_WHILE:
                backoff.reset()
            logger.warning("the process of the page ended with exit code %d; it is started again", code)
            await asyncio.sleep(backoff.wait())


async def _stop(process: Process) -> None:
    if process.returncode is not None:
        return
    process.terminate()
    try:
        async with asyncio.timeout(STOP_SECONDS):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()
