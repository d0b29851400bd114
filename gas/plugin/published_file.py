"""Keep a file of this node up to date for other programs, whoever else changes it, and remove it at the end.

Only plain files are read, replaced or removed, since the directories are shared with other programs. A pipe at the same
path would block a reader, and a device such as ``/dev/null`` must not be replaced.
"""

import asyncio
import errno
import logging
import os
import stat
import threading
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from gas.plugin.daemon_thread import in_a_daemon_thread, wait_while_stuck
from gas.plugin.discovery.sysfs_files import read_start
from gas.plugin.kubelet.plugin_socket import FileIdentity, file_identity
from gas.plugin.writer import Writer
from gas.values.errors import GasError

logger = logging.getLogger(__name__)

RETRY = 10.0  # seconds between two checks of the file
SLOW = 10.0  # Seconds after which a check is reported as stuck. A failing disk may block a writer without end.
LAST_CHECK = 1.0  # seconds for removing the file when the program ends


class FileFault(GasError):
    """The file could not be written or removed. Its earlier text, if any, is still there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileKind:
    name: str
    unwritten: str  # consequence while it cannot be written
    unremoved: str = "remove it by hand"  # consequence while it cannot be removed, with what to do
    makes_directory: bool = False  # its directory is made if it does not exist

    def write(self, path: Path, text: str) -> None:
        try:
            if self.makes_directory:
                path.parent.mkdir(parents=True, exist_ok=True)
            replace_file(path, text)
        except OSError as error:
            raise FileFault(
                f"cannot write the {self.name} {path}: {error.strerror}; {self.unwritten}."
                f" {path.parent} must be a directory of the node that this program may write to"
            ) from error

    def remove(self, path: Path) -> None:
        try:
            require_plain_file(path)
            path.unlink(missing_ok=True)
        except OSError as error:
            raise FileFault(f"cannot remove the {self.name} {path}: {error.strerror}; {self.unremoved}") from error


class PublishedFile(Writer[str]):
    """Write a file whenever its text is not as wanted, and retry while that fails.

    All of it happens in separate threads, so that a failing disk does not make kubelet wait. If two plugins publish the
    same file, the one that started later owns it: its first check writes, whatever is there. When a plugin ends, it
    removes the file only if it was the last to write it. ``trouble`` is a sentence about why the file does not have its
    text, else None.
    """

    def __init__(self, path: Path, kind: FileKind, *, retry: float = RETRY, slow: float = SLOW) -> None:
        super().__init__()
        self.trouble: str | None = None
        self._path = path
        self._kind = kind
        self._retry = retry
        self._slow = slow
        self._checked = asyncio.Event()
        # The following fields belong to the threads, which run one at a time.
        self._turn = threading.Lock()
        self._written: FileIdentity | None = None
        self._ended = False

    async def run(self) -> None:
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._retry):
                    await self._look.wait()
            self._look.clear()
            if self._wanted is not None and not self._held:
                await self._check(self._wanted)
                self._checked.set()

    async def first_check(self, within: float) -> None:
        """Wait until the first check has ended, at most ``within`` seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(within):
                await self._checked.wait()

    async def end(self) -> None:
        """Stop writing, and remove the file if it is the one that was last written here. A failure is logged."""
        self._ended = True
        try:
            async with asyncio.timeout(LAST_CHECK):
                await in_a_daemon_thread(self._remove, name="file")
        except TimeoutError:
            logger.error("cannot remove %s: its disk does not respond; remove it by hand", self._path)
        except GasError as error:
            logger.error(error)

    async def _check(self, text: str) -> None:
        checking = asyncio.ensure_future(in_a_daemon_thread(lambda: self._ensure(text), name="file"))
        slow = f"writing {self._path} has taken over {self._slow:g} s; its disk does not respond"
        try:
            if await wait_while_stuck(checking, self._slow, lambda: self._report(slow)):
                logger.info("wrote %s", self._path)
        except GasError as error:
            self._report(str(error))
        else:
            self.trouble = None

    def _report(self, trouble: str) -> None:
        if trouble != self.trouble:
            logger.error(trouble)
        self.trouble = trouble

    def _ensure(self, text: str) -> bool:
        """Write the text in a thread if the file does not have it. Return whether it was written."""
        with self._turn:
            if self._ended or (self._written is not None and has_text(self._path, text)):
                return False
            self._kind.write(self._path, text)
            self._written = file_identity(self._path)
            return True

    def _remove(self) -> None:
        """Remove the file in a thread if it was written here. Raises FileFault."""
        with self._turn:
            if self._written is not None and file_identity(self._path) == self._written:
                self._kind.remove(self._path)


def has_text(path: Path, text: str) -> bool:
    content = text.encode()
    try:
        require_plain_file(path)
        return read_start(path, len(content) + 1) == content
    except OSError:
        return False


def replace_file(path: Path, text: str) -> None:
    """Replace the file with one of this text, as a whole or not at all. Raises OSError.

    The text is written first in a directory next to it: container runtimes and NFD read files, but no directories.
    """
    require_plain_file(path)
    aside = path.parent / f".{path.name}.unfinished"
    aside.mkdir(exist_ok=True)
    unfinished = aside / path.name
    try:
        with unfinished.open("w", encoding="ascii") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)
        aside.rmdir()


def require_plain_file(path: Path) -> None:
    """Raise OSError if the path exists and is neither a plain file nor a link to one."""
    try:
        mode = path.stat().st_mode
    except OSError:
        return
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, "not a plain file", str(path))
