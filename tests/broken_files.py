"""Ways to break a file of a tree, also for root, who may read files that other users may not."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path


def _write(content: bytes) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        path.write_bytes(content)

    return write


BREAKS: Mapping[str, Callable[[Path], None]] = {
    "missing": lambda path: None,
    "empty": _write(b""),
    "blank": _write(b" \n\n"),
    "binary": _write(bytes(range(256))),
    "words": _write(b"no such thing\n"),
    "huge-number": _write(b"9" * 40),
    "endless": _write(b"7" * 1_000_000),
    "unreadable": lambda path: path.symlink_to(path.name),  # a link to itself
    "dangling": lambda path: path.symlink_to("nowhere"),
    "directory": lambda path: path.mkdir(),
    "pipe": os.mkfifo,
}
"""By the word for what the file is afterwards."""


def break_file(path: Path, how: str) -> None:
    """Break a file, link or directory; ``how`` is one of BREAKS."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
    BREAKS[how](path)
