"""Keep copies of the files that a run changes, so that it can be undone, and the marker of a run in progress.

backup_2026-05-04_1200001f2e3d/
  record.json                                    the changes; written last and removed first: without it, no backup
  etc/kubernetes/manifests/kube-scheduler.yaml   a file as it was

The marker is a file in the directory that every run locks, whatever its ``-b``. It names the backup, and exists from
before the backup is written until the run is complete. A run that finds one first restores the files of that backup:

    write marker -> write backup -> replace files -> remove marker
    write marker -> restore files -> remove marker -> remove backup     (--undo, and the run after an interrupted one)
"""

from __future__ import annotations

import os
import secrets
import shutil
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TypeVar

import msgspec

from configurator.errors import ConfiguratorError, FileTrouble
from configurator.files import Change, FileState, digest, private_file, put_file, read_state, sync, write_file

RECORD = "record.json"
MARKER = ".gas-run.json"

_PREFIX = "backup_"


class RecordedFile(msgspec.Struct, frozen=True):
    """A file that a run changed.

    before, after      digests, None if the file did not exist then
    mode, user, group  before the run
    secret             it holds a private key
    """

    path: str
    before: str | None
    after: str | None
    mode: int
    user: int
    group: int
    secret: bool


class Record(msgspec.Struct, frozen=True):
    number: int  # higher than those of all earlier runs, since the machine's clock may be set back between two
    directories: tuple[str, ...]  # made by the run, outer ones first
    files: tuple[RecordedFile, ...]


class _Marker(msgspec.Struct, frozen=True):
    backup: str


_Stored = TypeVar("_Stored", Record, _Marker)


@dataclass(frozen=True, slots=True)
class Backup:
    directory: Path
    record: Record

    @classmethod
    def of(cls, root: Path, changes: Sequence[Change], directories: Sequence[Path], now: datetime) -> Backup:
        """Describe the backup of a run, in a directory of its own below the root, without writing it.

        Raises FileTrouble if an earlier backup is damaged.
        """
        number = max((each.record.number for each in backups(root)), default=0) + 1
        directory = root / f"{_PREFIX}{now:%Y-%m-%d}_{now:%H%M%S}{secrets.token_hex(3)}"
        return cls(directory, Record(number, tuple(map(str, directories)), tuple(map(_recorded, changes))))

    def write(self, changes: Sequence[Change]) -> None:
        """Write the copies, then the record. If this raises ConfiguratorError, nothing of the backup is left."""
        try:
            self.directory.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
            self.directory.mkdir(mode=0o700)
            for change in changes:
                if change.before is not None:
                    stored = self._stored(change.path)
                    stored.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                    write_file(stored, private_file(change.before.content))
            _store(self.directory / RECORD, self.record)
        except OSError as error:
            shutil.rmtree(self.directory, ignore_errors=True)
            raise ConfiguratorError(
                f"no backup can be written to {self.directory.parent}: {error.strerror}; nothing was changed"
            ) from None

    def undoing(self) -> list[Change]:
        """Return the changes that restore the files, the last one first.

        Raises ConfiguratorError if a file was edited since the run, because the edit would be lost.
        """
        made = []
        for file in reversed(self.record.files):
            path = Path(file.path)
            current = read_state(path)
            if (None if current is None else digest(current.content)) not in (file.before, file.after):
                problem = "was removed" if current is None else "was changed"
                raise ConfiguratorError(
                    f"{path} {problem} since {self.directory.name}; nothing was undone. The earlier content is in "
                    f"{self.directory}: restore by hand what still fits, and remove that directory"
                )
            before = self._before(file)
            if current != before:
                made.append(Change(path, current, before, file.secret))
        return made

    def _before(self, file: RecordedFile) -> FileState | None:
        if file.before is None:
            return None
        path = self._stored(Path(file.path))
        stored = read_state(path)
        if stored is None or digest(stored.content) != file.before:
            raise FileTrouble(path, "is not the file that was stored there; nothing was undone")
        return FileState(stored.content, file.mode, file.user, file.group)

    def _stored(self, path: Path) -> Path:
        return self.directory / path.relative_to(path.anchor)


def backups(root: Path) -> list[Backup]:
    """Return the backups in a directory, the newest first. Raises FileTrouble for one that is not safe to use."""
    if not root.is_dir():
        return []
    found = [read_backup(path) for path in root.glob(_PREFIX + "*") if (path / RECORD).exists()]
    return sorted(found, key=lambda backup: backup.record.number, reverse=True)


def read_backup(directory: Path) -> Backup:
    """Read a backup. Raises FileTrouble if it is damaged, or if another user could have written it."""
    found = directory.lstat()
    if not stat.S_ISDIR(found.st_mode):
        raise FileTrouble(directory, "is not a directory")
    _refuse_written_by_others(directory, found.st_uid, found.st_mode)
    path = directory / RECORD
    return Backup(directory, _decoded(path, read_state(path), Record))


def remove_backup(directory: Path) -> None:
    """Remove a backup, or what is left of one. Raises ConfiguratorError if its record stays."""
    try:
        (directory / RECORD).unlink(missing_ok=True)
    except OSError as error:
        raise ConfiguratorError(
            f"{directory} is no longer needed, but cannot be removed: {error.strerror}; remove it"
        ) from None
    shutil.rmtree(directory, ignore_errors=True)


def mark(place: Path, directory: Path) -> None:
    try:
        _store(place / MARKER, _Marker(str(directory)))
    except OSError as error:
        (place / MARKER).unlink(missing_ok=True)
        raise ConfiguratorError(f"{place / MARKER} cannot be written: {error.strerror}; nothing was changed") from None


def unmark(place: Path) -> None:
    try:
        (place / MARKER).unlink()
        sync(place)
    except FileNotFoundError:
        return
    except OSError as error:
        raise ConfiguratorError(
            f"{place / MARKER} cannot be removed: {error.strerror}; remove it, or the next run undoes this one"
        ) from None


def marked_backup(place: Path) -> Path | None:
    """Return the directory of the backup of an interrupted run; None if there is no such run.

    Without a record in it, nothing has been changed. Raises FileTrouble for a marker that is not safe to use.
    """
    path = place / MARKER
    state = read_state(path)
    if state is None:
        return None
    _refuse_written_by_others(path, state.user, state.mode)
    return Path(_decoded(path, state, _Marker).backup)


def _refuse_written_by_others(path: Path, user: int, mode: int) -> None:
    if user != os.geteuid() or mode & 0o022:
        raise FileTrouble(path, "could have been written by another user, so it is not used; check its owner and mode")


def _decoded(path: Path, state: FileState | None, kind: type[_Stored]) -> _Stored:
    try:
        return msgspec.json.decode(b"" if state is None else state.content, type=kind)
    except msgspec.DecodeError:
        raise FileTrouble(path, "cannot be read: it is damaged") from None


def _store(path: Path, value: _Stored) -> None:
    put_file(path, private_file(msgspec.json.format(msgspec.json.encode(value), indent=1)))


def _recorded(change: Change) -> RecordedFile:
    before, after = change.before, change.after
    return RecordedFile(
        path=str(change.path),
        before=None if before is None else digest(before.content),
        after=None if after is None else digest(after.content),
        mode=0 if before is None else before.mode,
        user=0 if before is None else before.user,
        group=0 if before is None else before.group,
        secret=change.secret,
    )
