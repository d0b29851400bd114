"""Single files and directories of sysfs, which may be missing, unreadable, empty, binary or absurd."""

from __future__ import annotations

import os
from pathlib import Path

from gas.errors import GasError
from gas.quoted import quoted

_LONGEST = 4096
"""Bytes: a page, the most that a file of sysfs can hold."""


class UnreadableFile(GasError):
    """The file is there, but does not say what it should: one sentence about it, without the name of the card."""


def read_text(path: Path, place: str) -> str | None:
    """The text of a file without the blanks around it; None when there is no such file.

    place  what the file is called in the error, ``"device/vendor"``

    Never waits: a pipe in the place of a file reads as an empty one. Raises UnreadableFile.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError as error:
        if path.is_symlink():
            raise UnreadableFile(f"{place} is a dangling link") from error
        return None
    except OSError as error:
        raise UnreadableFile(f"cannot read {place}: {error.strerror}") from error
    try:
        content = os.read(descriptor, _LONGEST)
    except OSError as error:
        raise UnreadableFile(f"cannot read {place}: {error.strerror}") from error
    finally:
        os.close(descriptor)
    text = content.decode("ascii", errors="replace").strip()
    if not text:
        raise UnreadableFile(f"{place} is empty")
    return text


def read_number(path: Path, place: str) -> int | None:
    """A whole number of up to 19 digits; None when there is no such file. Raises UnreadableFile for anything else."""
    if (text := read_text(path, place)) is None:
        return None
    digits = text.removeprefix("-")
    if digits.isascii() and digits.isdigit() and len(digits) <= 19:
        return int(text)
    raise UnreadableFile(f"{place}: expected a whole number, found {quoted(text)}")


def entries(path: Path, place: str) -> tuple[str, ...] | None:
    """The names in a directory, sorted; None when there is no such directory. Raises UnreadableFile.

    Only names of plain letters, as the kernel gives them: others could neither be logged nor told to kubelet.
    """
    try:
        names = [entry.name for entry in path.iterdir()]
        return tuple(sorted(name for name in names if name.isascii() and name.isprintable()))
    except FileNotFoundError as error:
        if path.is_symlink():
            raise UnreadableFile(f"{place} is a dangling link") from error
        return None
    except OSError as error:
        raise UnreadableFile(f"cannot list {place}: {error.strerror}") from error


def is_there(path: Path) -> bool:
    """Whether something can be reached under this path; links are followed."""
    try:
        path.stat()
    except OSError:
        return False
    return True


def link_target(path: Path) -> str | None:
    """Where a symbolic link points to, as written in it; None when this is no link."""
    try:
        return str(path.readlink())
    except OSError:
        return None
