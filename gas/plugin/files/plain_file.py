"""Files of ours in directories that we share with others: only plain files are read, replaced or removed.

What else may lie at their paths: a pipe, which would keep a reader waiting for ever, or a device such as ``/dev/null``,
which everybody needs.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import NamedTuple


class FileIdentity(NamedTuple):
    """Which file it is that lies at a path. File systems use numbers of inodes again, hence the time."""

    device: int
    inode: int
    written_ns: int


def file_identity(path: Path) -> FileIdentity | None:
    """What lies at this path now; None when nothing does."""
    try:
        found = path.stat()
    except OSError:
        return None
    return FileIdentity(found.st_dev, found.st_ino, found.st_mtime_ns)


def says(path: Path, text: str) -> bool:
    """Whether a plain file is there that says exactly this."""
    content = text.encode()
    try:
        refuse_what_is_none(path)
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return os.read(descriptor, len(content) + 1) == content
    except OSError:
        return False
    finally:
        os.close(descriptor)


def refuse_what_is_none(path: Path) -> None:
    """Raises OSError when something is there that is neither a plain file nor a link to one."""
    try:
        mode = path.stat().st_mode
    except OSError:
        return
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, "it is no plain file", str(path))
