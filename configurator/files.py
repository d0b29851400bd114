"""Files on the machine, the changes that a run makes to them, and whether kube-scheduler can read them."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from configurator.errors import FileTrouble

LARGEST = 4 * 1024 * 1024
"""Bytes. Everything that the configurator reads is far smaller."""


@dataclass(frozen=True, slots=True)
class FileState:
    """A regular file: its content, permission bits and owner."""

    content: bytes
    mode: int
    user: int
    group: int

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.content).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedFile:
    """The content that a file should have. ``mode`` and ``owner`` apply to a file that is new or secret.

    owner   user and group as numbers; None for the user who runs the configurator
    secret  True if it holds a private key: it is never shown, and even an existing file becomes private
    """

    path: Path
    content: bytes
    mode: int = 0o644
    owner: tuple[int, int] | None = None
    secret: bool = False


@dataclass(frozen=True, slots=True)
class Change:
    """One file before and after a run; None if it does not exist."""

    path: Path
    before: FileState | None
    after: FileState | None
    secret: bool


def read_state(path: Path) -> FileState | None:
    """Return the state of a file, None if it does not exist. Raises FileTrouble if it is not a regular file.

    A link is not followed: replacing it would leave the file that it points to unchanged. A file with a second name is
    refused for the same reason.
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
        raise FileTrouble(path, "is not a regular file")
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
    """Return the content of a file that is only read. Links are followed. Raises FileTrouble."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise FileTrouble(path, "is not a regular file")
        with open(descriptor, "rb") as file:  # noqa: PTH123 -- a descriptor has no path
            content = file.read(LARGEST + 1)
    except OSError as error:
        raise FileTrouble(path, f"cannot be read: {error.strerror}") from None
    if len(content) > LARGEST:
        raise FileTrouble(path, f"has over {LARGEST} bytes")
    return content


def changes(wanted: Iterable[WantedFile], found: Mapping[Path, FileState | None]) -> list[Change]:
    """Return the changes for the wanted files that differ from what was found, in the same order."""
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


def unreadable(
    files: Sequence[WantedFile], found: Mapping[Path, FileState | None], *, directory: Path, owner: tuple[int, int]
) -> Iterator[str]:
    """Yield a sentence for each existing file that kube-scheduler cannot read, with the command that mends it.

    files      that kube-scheduler reads; secret files get its owner in any case
    directory  that its container mounts as a whole, so the modes of the directories above do not matter
    owner      user and group of kube-scheduler, as numbers
    """
    with contextlib.suppress(FileNotFoundError):  # it will be made with a mode that lets every user in
        way = directory.stat()
        if not _allows(way.st_mode, (way.st_uid, way.st_gid), owner, stat.S_IXOTH):
            yield _sentence(directory, way.st_mode, owner, "chmod o+x")
    for file in files:
        before = found.get(file.path)
        if before is None or file.secret:
            continue
        if not _allows(before.mode, (before.user, before.group), owner, stat.S_IROTH):
            yield _sentence(file.path, before.mode, owner, "chmod o+r")


def _sentence(path: Path, mode: int, owner: tuple[int, int], command: str) -> str:
    return (
        f"kube-scheduler runs as user {owner[0]} and cannot read {path}, whose mode is {stat.S_IMODE(mode):04o}: "
        f"{command} {path}"
    )


def _allows(mode: int, owned_by: tuple[int, int], who: tuple[int, int], bit: int) -> bool:
    """Return whether the kernel gives a user and group the permission. ``bit`` is that of other users."""
    if who[0] == owned_by[0]:
        bit <<= 6
    elif who[1] == owned_by[1]:
        bit <<= 3
    return bool(mode & bit)
