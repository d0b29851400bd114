"""Change several files as one: all of them or none, and one run at a time.

    staged --rename, rename, …--> changed
       `--any fault--> as before        (also half-way through the renames)
                `--a file cannot be put back--> the others as before, and NotPutBack names it

Everything that needs disk space, the copies of the present files included, is first written beside its final path.
Then there are only renames, each of them atomic: a reader sees either all of the old file or all of the new one.
kubelet runs every file that it finds in the manifests' directory, so manifests are staged in the directory above it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import signal
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from configurator.errors import ConfiguratorError, FileTrouble, NotPutBack
from configurator.files import Change, FileState, read_state

STAGED = ".gas-configurator-"
"""The prefix of the names of staged files."""

_STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(frozen=True, slots=True)
class _Staged:
    change: Change
    new: Path | None
    old: Path | None


def missing_directories(changes: Sequence[Change]) -> list[Path]:
    """Return the directories that the new files need and that do not exist, outer ones first."""
    found: dict[Path, None] = {}
    for change in changes:
        if change.after is not None:
            missing = [parent for parent in change.path.parents if not parent.is_dir()]
            found.update(dict.fromkeys(reversed(missing)))
    return list(found)


def commit(
    changes: Sequence[Change],
    *,
    manifests: Path,
    directories: Sequence[Path] = (),
    start: Callable[[], None] = lambda: None,
    finish: Callable[[], None] = lambda: None,
) -> None:
    """Make the changes in this order, the directories before them.

    manifests    the directory whose files kubelet runs
    directories  to make, outer ones first; private if they will contain only secrets
    start        called when everything is staged, before the first change; if it fails, nothing is changed
    finish       called when everything is changed; if it fails, everything is put back

    Raises NotPutBack if some files could not be put back after a fault. Any other exception means that every file and
    directory is as before: ConfiguratorError, or the one that stopped the run.
    """
    staged: list[_Staged] = []
    made: list[Path] = []
    try:
        for directory in directories:
            mode = _mode(directory, changes)
            directory.mkdir(mode=mode)
            made.append(directory)
            directory.chmod(mode)
        for change in changes:
            _stage(change, manifests, staged)
        with _unstopped():
            start()
            _rename_all(staged, finish)
        made.clear()
    except OSError as error:
        raise ConfiguratorError(f"{_failure(error)}; nothing was changed") from error
    finally:
        with _unstopped():
            _clear_up(staged, made)


def remove_left_over(paths: Iterable[Path], manifests: Path) -> None:
    """Remove staged files of runs that were killed while they changed these files. No other run may be in progress."""
    for directory in {manifests.parent if path.parent == manifests else path.parent for path in paths}:
        if directory.is_dir():
            for path in directory.glob(STAGED + "*"):
                if stat.S_ISREG(path.lstat().st_mode):
                    path.unlink(missing_ok=True)


def _stage(change: Change, manifests: Path, staged: list[_Staged]) -> None:
    directory = _staging_directory(change.path, manifests)
    new = old = None
    if change.after is not None:
        new = directory / f"{STAGED}{secrets.token_hex(8)}"
    if change.before is not None:
        old = directory / f"{STAGED}{secrets.token_hex(8)}"
    staged.append(_Staged(change, new, old))
    for path, state in ((new, change.after), (old, change.before)):
        if path is not None and state is not None:
            _write(path, state)


def _staging_directory(path: Path, manifests: Path) -> Path:
    if path.parent != manifests:
        return path.parent
    above = manifests.parent
    if above.stat().st_dev != manifests.stat().st_dev:
        raise FileTrouble(
            manifests, f"is on another file system than {above}, so no file can be moved there in one step"
        )
    return above


def _write(path: Path, state: FileState) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        left = memoryview(state.content)
        while left:
            left = left[os.write(descriptor, left) :]
        # In this order: after the owner has changed, the mode can no longer be set.
        os.fchmod(descriptor, state.mode)
        os.fchown(descriptor, state.user, state.group)
        os.fsync(descriptor)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path.parent)) from None
    finally:
        os.close(descriptor)


def _clear_up(staged: Sequence[_Staged], made: Sequence[Path]) -> None:
    """Remove staged files and new directories. The next run removes the rest (`remove_left_over`)."""
    for each in staged:
        for path in (each.new, each.old):
            if path is not None:
                with contextlib.suppress(OSError):
                    path.unlink(missing_ok=True)
    for directory in reversed(made):
        with contextlib.suppress(OSError):
            directory.rmdir()


def _rename_all(staged: Sequence[_Staged], finish: Callable[[], None]) -> None:
    done: list[_Staged] = []
    try:
        for each in staged:
            if read_state(each.change.path) != each.change.before:
                raise FileTrouble(each.change.path, "was changed by another program just now; run again")
            if each.new is not None:
                each.new.rename(each.change.path)
            else:
                each.change.path.unlink()
            done.append(each)
            _sync(each.change.path.parent)
        finish()
    except BaseException as error:
        changed = [failure for each in reversed(done) if (failure := _put_back(each)) is not None]
        if changed:
            cause = _failure(error) if isinstance(error, OSError) else str(error) or "the run was stopped"
            raise NotPutBack(f"{cause}; and these files could not be put back: {', '.join(changed)}") from error
        raise


def _put_back(each: _Staged) -> str | None:
    """Put a file back. Returns the file and the error if that fails."""
    try:
        if each.old is not None:
            each.old.rename(each.change.path)
        else:
            each.change.path.unlink(missing_ok=True)
    except OSError as error:
        return f"{each.change.path} ({error.strerror})"
    return None


def _failure(error: OSError) -> str:
    """Return the error with the file that was to be changed. A rename names its staged file first."""
    return f"{error.filename2 or error.filename or 'the files'}: {error.strerror}"


def _mode(directory: Path, changes: Sequence[Change]) -> int:
    inside = [change for change in changes if change.path.is_relative_to(directory)]
    # Files that other users read, such as kube-scheduler with a user of its own, must be reachable for them.
    private = all(change.after is not None and not change.after.mode & 0o077 for change in inside)
    return 0o700 if private else 0o755


def _sync(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _unstopped() -> Iterator[None]:
    """Delay signals that stop the program, in any thread. The renames take only a moment."""
    arrived: list[int] = []
    before = {each: signal.signal(each, lambda number, _frame: arrived.append(number)) for each in _STOPPING}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
        for number in arrived:
            signal.raise_signal(number)


@contextlib.contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Lock the directory while the block runs. The kernel releases it when the process ends, in whatever way.

    The directory itself is locked, so that no lock file is left. Raises ConfiguratorError if another run has it.
    """
    try:
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise FileTrouble(directory, f"cannot be opened: {error.strerror}") from None
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfiguratorError(
                f"another configurator is running in {directory}; nothing was changed; run this again when it is done"
            ) from None
        yield
    finally:
        os.close(descriptor)
