"""Read files, and replace several of them as one, all or none, in one run at a time.

    staged --os.replace, os.replace, …--> changed
       `--any fault--> as before        (also after some of them)
                `--a file cannot be put back--> the others as before, and NotPutBack names it

Every new file is staged first, next to its final place, so that a full disk is noticed before the first change. A
reader sees all of the old file or all of the new one. Names of staged files begin with a dot: kubelet, which runs every
file in the manifests' directory, ignores those.
"""

import contextlib
import errno
import fcntl
import hashlib
import os
import signal
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from configurator.errors import ConfiguratorError, FileTrouble, NotPutBack

STAGED = ".gas-configurator-"

_STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(frozen=True, slots=True)
class FileState:
    content: bytes
    mode: int
    user: int
    group: int


Read = Callable[[Path], FileState | None]
"""Returns the state of a file, None if it does not exist: `read_state`, or the same with a cache."""


def private_file(content: bytes) -> FileState:
    """Return the state of a file that only the configurator's user can read."""
    return FileState(content, 0o600, os.geteuid(), os.getegid())


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def fingerprint(contents: Iterable[bytes]) -> str:
    """Return 16 digits that change with any of the contents."""
    return digest(b"".join(hashlib.sha256(content).digest() for content in contents))[:16]


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedFile:
    """The content that a file should have. ``mode`` and ``owner`` apply to a file that is new or secret."""

    path: Path
    content: bytes
    mode: int = 0o644
    owner: tuple[int, int] | None = None  # user and group as numbers; None for the user who runs the configurator
    secret: bool = False  # it holds a private key: it is never shown, and even an existing file becomes private


@dataclass(frozen=True, slots=True)
class Change:
    """One file before and after a run; None if it does not exist."""

    path: Path
    before: FileState | None
    after: FileState | None
    secret: bool


def read_state(path: Path) -> FileState | None:
    """Return the state of a file; None if it does not exist. Raises FileTrouble if it is not a regular file.

    A link is not followed: replacing it would leave the file that it points to unchanged. A file with a second name is
    refused for the same reason.
    """
    try:
        content, found = _read(path, os.O_NOFOLLOW)
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise FileTrouble(path, f"is a link to {path.readlink()}; name the file itself") from None
        raise FileTrouble(path, f"cannot be read: {error.strerror}") from None
    if found.st_nlink > 1:
        raise FileTrouble(path, "has a second name (a hard link), which would keep the old content; remove that one")
    return FileState(content, stat.S_IMODE(found.st_mode), found.st_uid, found.st_gid)


def read_input(path: Path) -> bytes:
    """Return the content of a file that is only read. Links are followed. Raises FileTrouble."""
    try:
        return _read(path)[0]
    except OSError as error:
        raise FileTrouble(path, f"cannot be read: {error.strerror}") from None


def _read(path: Path, flags: int = 0) -> tuple[bytes, os.stat_result]:
    """Return the content and status of a regular file. Raises OSError, and FileTrouble for another kind of file."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | flags)
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode):
        os.close(descriptor)
        raise FileTrouble(path, "is not a regular file")
    with open(descriptor, "rb") as file:  # noqa: PTH123 -- a descriptor has no path
        return file.read(), found


def changes(wanted: Iterable[WantedFile], read: Read) -> list[Change]:
    """Return the changes for the wanted files that differ from what is there, in the same order."""
    made = []
    for file in wanted:
        before = read(file.path)
        owner = file.owner or (os.geteuid(), os.getegid())
        if before is None or file.secret:
            after = FileState(file.content, file.mode, *owner)
        else:
            after = FileState(file.content, before.mode, before.user, before.group)
        if before != after:
            made.append(Change(file.path, before, after, file.secret))
    return made


def missing_directories(changes: Sequence[Change]) -> list[Path]:
    """Return the missing directories of the new files, outer ones first."""
    found: dict[Path, None] = {}
    for change in changes:
        if change.after is not None:
            missing = [parent for parent in change.path.parents if not parent.is_dir()]
            found.update(dict.fromkeys(reversed(missing)))
    return list(found)


def replace_files(changes: Sequence[Change], directories: Sequence[Path] = ()) -> None:
    """Make the directories, then the changes in this order. Directories with only secrets are private.

    Raises NotPutBack if some files could not be put back after a fault, and another ConfiguratorError if every file and
    directory is as before. Call it with `signals_delayed`.
    """
    made: list[Path] = []
    done: list[Change] = []
    try:
        for directory in directories:
            directory.mkdir(mode=0o700)
            made.append(directory)
            directory.chmod(_mode(directory, changes))
        for change in changes:
            if change.after is not None:
                _stage(change.path, change.after)
        for change in changes:
            if read_state(change.path) != change.before:
                raise FileTrouble(change.path, "was changed by another program just now; run again")
            if change.after is not None:
                _staging_place(change.path).replace(change.path)
            else:
                change.path.unlink()
            done.append(change)
            sync(change.path.parent)
    except (OSError, ConfiguratorError) as error:
        cause = _failure(error) if isinstance(error, OSError) else str(error)
        stuck = [failure for change in reversed(done) if (failure := _put_back(change)) is not None]
        remove_staged(change.path for change in changes)
        for directory in reversed(made):
            with contextlib.suppress(OSError):
                directory.rmdir()
        if stuck:
            raise NotPutBack(f"{cause}; and these files could not be put back: {', '.join(stuck)}") from error
        if isinstance(error, OSError):
            raise ConfiguratorError(f"{cause}; nothing was changed") from error
        raise


def remove_staged(paths: Iterable[Path]) -> None:
    """Remove what a run staged for these files, and left if it was killed."""
    for path in paths:
        with contextlib.suppress(OSError):
            _staging_place(path).unlink(missing_ok=True)


def put_file(path: Path, state: FileState) -> None:
    """Replace a file in one step, and wait until it is on the disk. Raises OSError."""
    try:
        _stage(path, state)
        _staging_place(path).replace(path)
    except OSError:
        remove_staged([path])
        raise
    sync(path.parent)


def write_file(path: Path, state: FileState) -> None:
    """Write a new file, and wait until it is on the disk. Raises OSError that names the directory."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            left = memoryview(state.content)
            while left:
                left = left[os.write(descriptor, left) :]
            # In this order: after the owner has changed, the mode can no longer be set.
            os.fchmod(descriptor, state.mode)
            os.fchown(descriptor, state.user, state.group)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path.parent)) from None


def sync(directory: Path) -> None:
    """Wait until the names in a directory are on the disk."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Lock the directory while the block runs. Raises ConfiguratorError if another run has it.

    The directory itself is locked, so that no lock file is left. The kernel releases it when the process ends in any
    way.
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


@contextlib.contextmanager
def signals_delayed() -> Iterator[None]:
    """Delay signals that stop the program until the block ends. Replacing files takes only milliseconds."""
    arrived: list[int] = []
    before = {each: signal.signal(each, lambda number, _frame: arrived.append(number)) for each in _STOPPING}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
        for number in arrived:
            signal.raise_signal(number)


def _staging_place(path: Path) -> Path:
    return path.with_name(f"{STAGED}{path.name}")


def _stage(path: Path, state: FileState) -> None:
    remove_staged([path])  # of a run that was killed
    write_file(_staging_place(path), state)


def _put_back(change: Change) -> str | None:
    """Put a file back. Return the file and the error if that fails."""
    try:
        if change.before is None:
            change.path.unlink(missing_ok=True)
        else:
            put_file(change.path, change.before)
    except OSError as error:
        return f"{change.path} ({error.strerror})"
    return None


def _failure(error: OSError) -> str:
    """Return the error with the name of the file. A failed replacement names its staged file first."""
    return f"{error.filename2 or error.filename or 'the files'}: {error.strerror}"


def _mode(directory: Path, changes: Sequence[Change]) -> int:
    inside = [change for change in changes if change.path.is_relative_to(directory)]
    # Files that other users read, such as kube-scheduler with a user of its own, must be reachable for them.
    private = all(change.after is not None and not change.after.mode & 0o077 for change in inside)
    return 0o700 if private else 0o755


def unreadable(files: Sequence[WantedFile], read: Read, *, directory: Path, owner: tuple[int, int]) -> Iterator[str]:
    """Yield a sentence for each existing file that kube-scheduler cannot read, with the command that fixes it.

    files      that kube-scheduler reads; secret files get its owner in any case
    directory  mounted as a whole in its container, so the modes of the directories above do not matter
    owner      user and group of kube-scheduler, as numbers
    """
    with contextlib.suppress(FileNotFoundError):  # it will be made with a mode that lets every user in
        way = directory.stat()
        if not _allows(way.st_mode, (way.st_uid, way.st_gid), owner, stat.S_IXOTH):
            yield _sentence(directory, way.st_mode, owner, "chmod o+x")
    for file in files:
        before = read(file.path)
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
