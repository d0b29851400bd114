"""Backups of runs: a directory for each run with the files as they were, so that it can be undone.

backup_2026-05-04_1200001f2e3d/
  record.json                                    the changes, and whether the run came to its end
  etc/kubernetes/manifests/kube-scheduler.yaml   a file as it was

A directory gets this name when it is complete, and loses it before anything is removed from it. So a backup exists as a
whole or not at all, whenever the machine fails. Directories with another name are left over, and the next run removes
them. When ``--undo`` has taken a run back, it gives the backup a name that says so, reports it, and only then removes
the backup. So wherever it is killed, its own output or the next ``--undo`` says which run was taken back.

While a run is in progress, its backup is in a place that every run checks, whatever its ``-b``, so that the next run
notices if this one is killed. For ``--undo`` the backup is then moved to where ``-b`` says. If both are the same
directory, it is one backup.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
import shutil
import stat
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Self

from configurator.errors import ConfiguratorError, FileTrouble
from configurator.files import Change, FileState, read_state

RECORD = "record.json"
UNFINISHED = ".gas-configurator-backup-"
"""The prefix of a directory's name while it is being written or removed."""

_UNDONE = f"{UNFINISHED}undone-"
"""The prefix of a backup's name while ``--undo``, which has taken it back, removes it."""

_PREFIX = "backup_"


@dataclass(frozen=True, slots=True)
class RecordedFile:
    """A file that a run changed.

    digest_before, digest_after  None if the file did not exist then
    mode, user, group            before the run
    secret                       whether it holds a private key
    """

    path: Path
    digest_before: str | None
    digest_after: str | None
    mode: int
    user: int
    group: int
    secret: bool


@dataclass(frozen=True, slots=True)
class Backup:
    """The backup of one run.

    number       higher than those of all earlier runs, since the machine's clock may be set back between two
    complete     whether the run came to its end; else it was killed between two files
    directories  that the run made, outer ones first
    """

    directory: Path
    number: int
    complete: bool
    files: tuple[RecordedFile, ...]
    directories: tuple[Path, ...]

    @classmethod
    def write(cls, root: Path, changes: Sequence[Change], directories: Sequence[Path], now: datetime) -> Self:
        """Write the backup of a run that is about to begin, not marked complete. Raises ConfiguratorError."""
        return cls.prepare(root, changes, directories, complete=False).publish(now)

    @classmethod
    def prepare(cls, root: Path, changes: Sequence[Change], directories: Sequence[Path], *, complete: bool) -> Self:
        """Write a backup under a name that no run looks for. Raises ConfiguratorError."""
        number = max((each.number for each in backups(root)), default=0) + 1
        files = tuple(_recorded(change) for change in changes)
        backup = cls(_unfinished(root), number, complete, files, tuple(directories))
        try:
            root.mkdir(mode=0o755, parents=True, exist_ok=True)
            backup.directory.mkdir(mode=0o700)
            for change in changes:
                if change.before is not None:
                    _store(backup.directory / _inside(change.path), change.before)
            backup._write_record(complete=complete)
        except BaseException as error:
            shutil.rmtree(backup.directory, ignore_errors=True)
            if isinstance(error, OSError):
                raise _cannot_write(root, error) from None
            raise
        return backup

    def publish(self, now: datetime) -> Self:
        """Rename the backup so that runs find it. If this raises ConfiguratorError, the backup is removed."""
        root = self.directory.parent
        directory = root / f"{_PREFIX}{now:%Y-%m-%d}_{now:%H%M%S}{secrets.token_hex(3)}"
        try:
            self.directory.rename(directory)
        except BaseException as error:
            shutil.rmtree(self.directory, ignore_errors=True)
            if isinstance(error, OSError):
                raise _cannot_write(root, error) from None
            raise
        return replace(self, directory=directory)

    def mark(self, *, complete: bool) -> None:
        """Record whether the run came to its end. The next run undoes one that did not. Raises OSError."""
        self._write_record(complete=complete)

    def remove(self) -> None:
        """Remove the backup, in one step as far as other runs see. Raises ConfiguratorError if it stays."""
        renamed = _unfinished(self.directory.parent)
        _rename(self.directory, renamed)
        shutil.rmtree(renamed, ignore_errors=True)

    def mark_undone(self) -> Path:
        """Rename the backup so that only `undone_backups` finds it, and return its place.

        Raises ConfiguratorError if it keeps its name. Removing it removes the mark, so first say that it is undone.
        """
        undone = self.directory.with_name(f"{_UNDONE}{self.directory.name}")
        _rename(self.directory, undone)
        return undone

    def undoing(self) -> list[Change]:
        """Return the changes that restore the files, the last one first.

        Raises ConfiguratorError if a file is neither as this run left it nor as it was before: it was edited since,
        and the edit would be lost.
        """
        made = []
        for file in reversed(self.files):
            current = read_state(file.path)
            digest = None if current is None else current.digest
            if digest not in (file.digest_before, file.digest_after):
                problem = "was removed" if current is None else "was changed"
                raise ConfiguratorError(
                    f"{file.path} {problem} since {self.directory.name}; nothing was undone. "
                    f"The earlier content is in {self.directory}: restore by hand what still fits, and remove that "
                    "directory"
                )
            before = self._before(file)
            if current != before:
                made.append(Change(file.path, current, before, file.secret))
        return made

    def _before(self, file: RecordedFile) -> FileState | None:
        if file.digest_before is None:
            return None
        stored = read_state(self.directory / _inside(file.path))
        if stored is None or stored.digest != file.digest_before:
            raise FileTrouble(
                self.directory / _inside(file.path), "is not the file that was stored there; nothing was undone"
            )
        return FileState(stored.content, file.mode, file.user, file.group)

    def _write_record(self, *, complete: bool) -> None:
        record = {
            "version": 1,
            "number": self.number,
            "complete": complete,
            "directories": [str(directory) for directory in self.directories],
            "files": [
                {
                    "path": str(file.path),
                    "before": file.digest_before,
                    "after": file.digest_after,
                    "mode": file.mode,
                    "user": file.user,
                    "group": file.group,
                    "secret": file.secret,
                }
                for file in self.files
            ],
        }
        unfinished = self.directory / f"{RECORD}.unfinished"
        with unfinished.open("w") as opened:
            json.dump(record, opened, indent=1)
            opened.flush()
            os.fsync(opened.fileno())
        unfinished.rename(self.directory / RECORD)


def backups(root: Path) -> list[Backup]:
    """Return the backups in a directory, the newest first. Raises FileTrouble for one that is not safe to use."""
    if not root.is_dir():
        return []
    found = [read_backup(path) for path in root.glob(_PREFIX + "*") if (path / RECORD).exists()]
    return sorted(found, key=lambda backup: backup.number, reverse=True)


def remove_unfinished(roots: Iterable[Path]) -> None:
    """Remove what runs left that were killed while they wrote or removed a backup. No other run may be in progress.

    Leaves what `undone_backups` returns.
    """
    for path in _left_over(roots):
        if not path.name.startswith(_UNDONE):
            shutil.rmtree(path, ignore_errors=True)


def undone_backups(roots: Iterable[Path]) -> dict[str, Path]:
    """Return the backups that a killed ``--undo`` has taken back but not removed: their names, and where they are."""
    return {path.name.removeprefix(_UNDONE): path for path in _left_over(roots) if path.name.startswith(_UNDONE)}


def remove_undone(path: Path) -> None:
    """Remove a backup that is marked as undone; the mark goes last. Raises ConfiguratorError if the mark stays."""
    shutil.rmtree(path, ignore_errors=True)
    if path.exists():
        _rename(path, _unfinished(path.parent))


def _left_over(roots: Iterable[Path]) -> Iterable[Path]:
    for root in roots:
        if root.is_dir():
            for path in sorted(root.glob(UNFINISHED + "*")):
                found = path.lstat()
                if stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid():
                    yield path


def _rename(directory: Path, renamed: Path) -> None:
    """Rename a backup that is to be removed, so that runs no longer find it. Raises ConfiguratorError."""
    try:
        directory.rename(renamed)
    except OSError as error:
        raise ConfiguratorError(
            f"{directory} is no longer needed, but cannot be removed: {error.strerror}; remove it"
        ) from None


def read_backup(directory: Path) -> Backup:
    """Read a backup. Raises FileTrouble if it is damaged, or if another user could have written it."""
    found = directory.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o022:
        raise FileTrouble(
            directory, "could have been written by another user, so it is not used; check its owner and mode"
        )
    state = read_state(directory / RECORD)
    try:
        record: dict[str, Any] = json.loads(state.content if state is not None else b"")
        files = tuple(
            RecordedFile(
                path=Path(each["path"]),
                digest_before=each["before"],
                digest_after=each["after"],
                mode=int(each["mode"]),
                user=int(each["user"]),
                group=int(each["group"]),
                secret=bool(each["secret"]),
            )
            for each in record["files"]
        )
        return Backup(
            directory,
            int(record.get("number", 0)),
            bool(record["complete"]),
            files,
            tuple(Path(each) for each in record["directories"]),
        )
    except (ValueError, KeyError, TypeError):
        raise FileTrouble(directory / RECORD, "cannot be read: it is damaged") from None


def _cannot_write(root: Path, error: OSError) -> ConfiguratorError:
    return ConfiguratorError(f"no backup can be written to {root}: {error.strerror}; nothing was changed")


def _unfinished(root: Path) -> Path:
    return root / f"{UNFINISHED}{secrets.token_hex(8)}"


def _recorded(change: Change) -> RecordedFile:
    before = change.before or FileState(b"", 0, 0, 0)
    after = change.after
    return RecordedFile(
        path=change.path,
        digest_before=None if change.before is None else before.digest,
        digest_after=None if after is None else hashlib.sha256(after.content).hexdigest(),
        mode=before.mode,
        user=before.user,
        group=before.group,
        secret=change.secret,
    )


def _store(path: Path, state: FileState) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with open(descriptor, "wb") as opened:  # noqa: PTH123 -- a descriptor has no path
        opened.write(state.content)
        opened.flush()
        os.fsync(descriptor)


def _inside(path: Path) -> Path:
    """Return where a file is stored, relative to the backup's directory."""
    return path.relative_to(path.anchor)


class RunRecord:
    """The backup of the run in progress, and the one that it leaves. Raises ConfiguratorError if one cannot be written.

    place  directory that every run checks
    later  directory of ``-b``; None if no backup is to be left
    """

    def __init__(
        self, place: Path, later: Path | None, changes: Sequence[Change], directories: Sequence[Path], now: datetime
    ) -> None:
        self._now = now
        self._is_one = later == place
        self._kept: Backup | None = None
        self._in_progress = Backup.write(place, changes, directories, now)
        if later is not None and not self._is_one:
            try:
                self._kept = Backup.prepare(later, changes, directories, complete=True)
            except BaseException:
                self.forget()
                raise

    @property
    def directory(self) -> Path:
        """The directory to name to the administrator while the run is in progress."""
        return self._in_progress.directory

    @property
    def kept(self) -> Path | None:
        """The directory in which ``--undo`` finds the backup once the run is complete."""
        if self._is_one:
            return self._in_progress.directory
        return None if self._kept is None else self._kept.directory

    def finish(self) -> None:
        """Record that everything is changed. On ConfiguratorError or OSError the run is still in progress."""
        if self._is_one:
            self._in_progress.mark(complete=True)
            return
        if self._kept is not None:
            self._kept = self._kept.publish(self._now)
        self._in_progress.remove()

    def forget(self) -> None:
        """Remove the backups after everything was put back. Backups of a completed run are kept."""
        directory = self._in_progress.directory
        if not directory.exists() or read_backup(directory).complete:
            return
        for backup in (self._kept, self._in_progress):
            if backup is not None and backup.directory.exists():
                with contextlib.suppress(ConfiguratorError):  # the next run removes it, and finds nothing to undo
                    backup.remove()
