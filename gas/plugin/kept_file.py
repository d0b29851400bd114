"""A file that is kept saying what it should, also when it cannot be written for a while or somebody changes it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

from gas.errors import GasError

logger = logging.getLogger(__name__)

RETRY = 10.0
"""Seconds between two looks at the file."""


class KeptFile:
    """Writes a file whenever its text is not what it should be, and tries again while that fails.

    write    puts the text in the place of the file, whole or not at all; raises GasError
    trouble  while the file does not say what it should: the sentence that says why
    """

    def __init__(self, path: Path, write: Callable[[Path, str], None], *, retry: float = RETRY) -> None:
        self.trouble: str | None = None
        self._path = path
        self._write = write
        self._retry = retry
        self._wanted: str | None = None

    def want(self, text: str) -> None:
        """What the file shall say from now on; it is tried at once."""
        self._wanted = text
        self._look()

    async def run(self) -> None:
        """For ever, until cancelled."""
        while True:
            await asyncio.sleep(self._retry)
            self._look()

    def _look(self) -> None:
        if self._wanted is None:
            return
        try:
            if self._text() != self._wanted.encode():
                self._write(self._path, self._wanted)
                logger.info("wrote %s", self._path)
        except GasError as error:
            if str(error) != self.trouble:
                logger.error("%s", error)
            self.trouble = str(error)
        else:
            self.trouble = None

    def _text(self) -> bytes | None:
        try:
            return self._path.read_bytes()
        except OSError:
            return None
