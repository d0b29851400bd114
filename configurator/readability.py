"""What keeps a kube-scheduler that is not root from what it has to read."""

from __future__ import annotations

import contextlib
import stat
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from configurator.files import FileState, WantedFile


def unreadable(
    files: Sequence[WantedFile], found: Mapping[Path, FileState | None], *, directory: Path, owner: tuple[int, int]
) -> Iterator[str]:
    """Sentences about what is there already and keeps its mode, each with the command that mends it.

    files      of those that kube-scheduler reads; what is secret is given to it in any case
    directory  that its container mounts as a whole; who mounts one needs no way through the directories above
    owner      numbers of kube-scheduler's user and group
    """
    with contextlib.suppress(FileNotFoundError):  # it will be made, for everybody
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
    """Whether somebody may do what the bit, the others' one, stands for, as the kernel decides it."""
    if who[0] == owned_by[0]:
        bit <<= 6
    elif who[1] == owned_by[1]:
        bit <<= 3
    return bool(mode & bit)
