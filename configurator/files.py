"""Files as they are on the machine, and the changes that a run makes to them."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from configurator.errors import FileTrouble

LARGEST = 4 * 1024 * 1024
"""Bytes; nothing that the configurator reads comes near."""


@dataclass(frozen=True, slots=True)
class FileState:
    """A regular file: what is in it, its permission bits, its owner."""

    content: bytes
    mode: int
    user: int
    group: int

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.content).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedFile:
    """What a file shall hold. ``mode`` and ``owner`` are for one that is new, or secret.

    owner   numbers of user and group; None: whoever runs the configurator
    secret  holds a private key: never shown, and nobody else may read it, also when it is there already
    """

    path: Path
    content: bytes
    mode: int = 0o644
    owner: tuple[int, int] | None = None
    secret: bool = False


@dataclass(frozen=True, slots=True)
class Change:
    """One file before and after; None: it is not there."""

    path: Path
    before: FileState | None
    after: FileState | None
    secret: bool


def read_state(path: Path) -> FileState | None:
    """None when nothing is there. Raises FileTrouble for what is no ordinary file with a single name.

    A link is not followed: to put a new file in its place would leave what it points to as it was.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise FileTrouble(path, f"is a link to {_target(path)}; name the file itself") from None
        raise FileTrouble(path, f"cannot be read: {error.strerror}") from None
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode):
        os.close(descriptor)
        raise FileTrouble(path, "is not an ordinary file")
    with open(descriptor, "rb") as file:  # noqa: PTH123 -- a descriptor has no path
        if found.st_nlink > 1:
            raise FileTrouble(
                path, "has a second name (a hard link), which would keep the old content; remove that one"
            )
        if found.st_size > LARGEST:
            raise FileTrouble(path, f"has {found.st_size} bytes; expected at most {LARGEST}")
        try:
            content = file.read(LARGEST + 1)
        except OSError as error:
            raise FileTrouble(path, f"cannot be read: {error.strerror}") from None
    return FileState(content, stat.S_IMODE(found.st_mode), found.st_uid, found.st_gid)


def read_input(path: Path) -> bytes:
    """The content of a file that is only read; links are followed. Raises FileTrouble."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise FileTrouble(path, "is not an ordinary file")
        with open(descriptor, "rb") as file:  # noqa: PTH123 -- a descriptor has no path
            content = file.read(LARGEST + 1)
    except OSError as error:
        raise FileTrouble(path, f"cannot be read: {error.strerror}") from None
    if len(content) > LARGEST:
        raise FileTrouble(path, f"has over {LARGEST} bytes")
    return content


def changes(wanted: Iterable[WantedFile], found: Mapping[Path, FileState | None]) -> list[Change]:
    """Of the wanted files those that differ from what was found, in the same order."""
    made = []
    for file in wanted:
        before = found[file.path]
        owner = file.owner or (os.geteuid(), os.getegid())
        if before is None or file.secret:
            after = FileState(file.content, file.mode, *owner)
        else:
            after = FileState(file.content, before.mode, before.user, before.group)
        if before != after:
            made.append(Change(file.path, before, after, file.secret))
    return made


def _target(path: Path) -> str:
    try:
        return str(path.readlink())
    except OSError:
        return "somewhere else"
