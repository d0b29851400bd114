"""A file that is kept saying what it should, also when it cannot be written for a while or somebody changes it."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

from gas.errors import GasError
from gas.plugin.daemon_thread import in_a_daemon_thread
from gas.plugin.files.plain_file import FileIdentity, file_identity, says

logger = logging.getLogger(__name__)

RETRY = 10.0
"""Seconds between two looks at the file."""

SLOW = 10.0
"""Seconds after which a look is told of as stuck. A disk may keep a writer for ever; nothing can stop that."""

LAST_LOOK = 1.0
"""Seconds for taking the file away when the program ends."""


class KeptFile:
    """Writes a file whenever its text is not what it should be, and tries again while that fails.

    All of it is done in threads of their own: a disk in trouble shall not keep kubelet waiting. Of two programs that
    keep the same file the later one has it: its first look writes, whatever is there, and the other one, when it
    ends, leaves what it has not written itself.

    write    puts the text in the place of the file, whole or not at all; raises GasError
    trouble  while the file does not say what it should: the sentence that says why
    """

    def __init__(
        self, path: Path, write: Callable[[Path, str], None], *, retry: float = RETRY, slow: float = SLOW
    ) -> None:
        self.trouble: str | None = None
        self._path = path
        self._write = write
        self._retry = retry
        self._slow = slow
        self._wanted: str | None = None
        self._held = False
        self._look = asyncio.Event()
        self._looked = asyncio.Event()
        # What follows belongs to the threads, which take turns.
        self._turn = threading.Lock()
        self._written: FileIdentity | None = None
        self._ended = False

    def want(self, text: str) -> None:
        """What the file shall say from now on; it is tried at once."""
        self._wanted = text
        self._look.set()

    def hold(self) -> None:
        """Write nothing until `resume`: another program keeps the file."""
        self._held = True

    def resume(self) -> None:
        self._held = False
        self._look.set()

    async def run(self) -> None:
        """For ever, until cancelled."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._retry):
                    await self._look.wait()
            self._look.clear()
            if self._wanted is not None and not self._held:
                await self._keep(self._wanted)
                self._looked.set()

    async def tried(self, within: float) -> None:
        """Until the first look has come to its end, or so many seconds are over."""
        with suppress(TimeoutError):
            async with asyncio.timeout(within):
                await self._looked.wait()

    async def end(self, remove: Callable[[Path], None]) -> None:
        """Write no more, and take the file away if it is the one that was written here last.

        remove  takes the file away; raises GasError, which is logged
        """
        self._ended = True
        try:
            async with asyncio.timeout(LAST_LOOK):
                await in_a_daemon_thread(partial(self._take_away, remove), name="file")
        except TimeoutError:
            logger.error("cannot remove %s: its disk does not answer; remove it by hand", self._path)
        except GasError as error:
            logger.error("%s", error)

    async def _keep(self, text: str) -> None:
        looking = asyncio.ensure_future(in_a_daemon_thread(partial(self._make_it_say, text), name="file"))
        try:
            await asyncio.wait((looking,), timeout=self._slow)
            if not looking.done():
                self._report(f"writing {self._path} has taken over {self._slow:g} s; its disk does not answer")
            if await looking:
                logger.info("wrote %s", self._path)
        except GasError as error:
            self._report(str(error))
        else:
            self.trouble = None
        finally:
            looking.cancel()

    def _report(self, trouble: str) -> None:
        if trouble != self.trouble:
            logger.error("%s", trouble)
        self.trouble = trouble

    def _make_it_say(self, text: str) -> bool:
        """In a thread. Whether it had to be written. Raises what ``write`` raises."""
        with self._turn:
            if self._ended or (self._written is not None and says(self._path, text)):
                return False
            self._write(self._path, text)
            self._written = file_identity(self._path)
            return True

    def _take_away(self, remove: Callable[[Path], None]) -> None:
        """In a thread. Raises what ``remove`` raises."""
        with self._turn:
            if self._written is not None and file_identity(self._path) == self._written:
                remove(self._path)
