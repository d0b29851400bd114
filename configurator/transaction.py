"""Several files changed as one: all of them, or none.

    staged --rename, rename, …--> changed
       `--any fault--> as before        (also half-way through the renames)
                `--a file that cannot be put back--> the others as before, and NotPutBack names it

Everything that needs room on a disk is written beside its place first, what was there before as well. Then there are
only renames, and each is atomic: who reads a file at any moment reads all of the old one or all of the new one. kubelet
runs whatever it finds in the manifests' directory, so what belongs there is staged in the directory above it.
"""

from __future__ import annotations

import contextlib
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
"""How the names of staged files begin."""

_STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(frozen=True, slots=True)
class _Staged:
    change: Change
    new: Path | None
    old: Path | None


def missing_directories(changes: Sequence[Change]) -> list[Path]:
    """Those that the new files need and that are not there, outer ones first."""
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
    directories  to make, outer ones first; private where only secrets go
    start        called when everything is staged, before the first change; if it fails, nothing is changed
    finish       called when everything is changed; if it fails, everything is put back

    Raises NotPutBack when some of the files could not be put back after a fault; ConfiguratorError, or whatever stopped
    it, when every file and directory is as before.
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
        raise ConfiguratorError(f"{_what_failed(error)}; nothing was changed") from error
    finally:
        with _unstopped():
            _clear_up(staged, made)


def remove_left_over(paths: Iterable[Path], manifests: Path) -> None:
    """Staged files of runs that were killed while they changed these files. No other run may be at work."""
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
            manifests, f"is on another file system than {above}, so that no file can be put there in one step"
        )
    return above


def _write(path: Path, state: FileState) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        left = memoryview(state.content)
        while left:
            left = left[os.write(descriptor, left) :]
        # In this order: who gives a file away may no longer change its mode.
        os.fchmod(descriptor, state.mode)
        os.fchown(descriptor, state.user, state.group)
        os.fsync(descriptor)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path.parent)) from None
    finally:
        os.close(descriptor)


def _clear_up(staged: Sequence[_Staged], made: Sequence[Path]) -> None:
    """What cannot be removed now is by the next run (`remove_left_over`)."""
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
                raise FileTrouble(each.change.path, "was changed by somebody else just now; run again")
            if each.new is not None:
                each.new.rename(each.change.path)
            else:
                each.change.path.unlink()
            done.append(each)
            _sync(each.change.path.parent)
        finish()
    except BaseException as error:
        changed = [problem for each in reversed(done) if (problem := _why_not_put_back(each)) is not None]
        if changed:
            what = _what_failed(error) if isinstance(error, OSError) else str(error) or "the run was stopped"
            raise NotPutBack(f"{what}; and these files could not be put back: {', '.join(changed)}") from error
        raise


def _why_not_put_back(each: _Staged) -> str | None:
    """Puts it back, or answers what stands against that."""
    try:
        _put_back(each)
    except OSError as error:
        return f"{each.change.path} ({error.strerror})"
    return None


def _put_back(each: _Staged) -> None:
    if each.old is not None:
        each.old.rename(each.change.path)
    else:
        each.change.path.unlink(missing_ok=True)


def _what_failed(error: OSError) -> str:
    """With the file that was to be changed; a rename names its staged file first."""
    return f"{error.filename2 or error.filename or 'the files'}: {error.strerror}"


def _mode(directory: Path, changes: Sequence[Change]) -> int:
    inside = [change for change in changes if change.path.is_relative_to(directory)]
    # What also others read, as kube-scheduler under a user of its own, must be reachable for them.
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
    """Signals that stop the program wait: the renames take a moment. Whichever thread they come to."""
    arrived: list[int] = []
    before = {each: signal.signal(each, lambda number, _frame: arrived.append(number)) for each in _STOPPING}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
        for number in arrived:
            signal.raise_signal(number)
