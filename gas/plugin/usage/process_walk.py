"""Walk the processes of a node for the cards' clients that belong to given pods.

Of other processes only ``/proc/PID/cgroup`` is read.
"""

import os
import re
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from gas.plugin.discovery.sysfs_files import read_start
from gas.plugin.usage.fdinfo import LARGEST, Client, MalformedFdinfo, is_drm, parse_fdinfo
from gas.values.errors import GasError

RECHECK = 6
"""Number of first walks in which a process is read completely. Then it is in each RECHECK-th walk, if it has opened or
closed files; in the other walks only the files are read that were clients of cards."""

RECHECK_ALL = 5 * RECHECK
"""A process is read completely in each RECHECK_ALL-th walk in any case. Linux before 6.2 does not state the number of
open files, so there it is the only way to notice a change."""

MOST_FILES = 4096  # Most files of one process that are read, lowest descriptors first. A program opens its card early.
SLICE = 64  # processes and files between two pauses: about a millisecond of work

_CGROUP_SIZE = 16 * 1024


# The paths of one container in /proc/PID/cgroup, as kubelet and the runtimes make them:
#
#   /kubepods/burstable/podUID/ID                                                      cgroupfs, containerd
#   /kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podUID.slice/cri-containerd-ID.scope     systemd
#   /system.slice/containerd.service/kubepods-podUID.slice:cri-containerd:ID           systemd in kubelet alone
#
# systemd's names have ``_`` in place of the ``-`` in a UID. The beginning differs: kubelet may have a root of its own,
# and a reader in a cgroup namespace sees ``/../../podUID/ID``. A process of a container may have created groups below.
_POD = re.compile(
    rb"(?:^|/)(?:[^/]*-)?pod(?P<uid>[0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12}|[0-9a-f]{32})(?:\.slice)?"
    rb"(?:[/:]|$)"
)


def pod_of_process(content: bytes) -> str | None:
    """Return the UID of the pod that a process belongs to, from its cgroups; None if it belongs to no pod.

    The first part of a path that names a pod counts, because kubelet makes it; parts below it are made in containers,
    which may call them what they like. With cgroup version 1 there is a path for each hierarchy: if they name different
    pods, the process counts for none of them.
    """
    paths = (line.partition(b":")[2].partition(b":")[2] for line in content.split(b"\n"))
    pods = {match["uid"].decode().replace("_", "-") for match in map(_POD.search, paths) if match is not None}
    return pods.pop() if len(pods) == 1 else None


class CannotWalk(GasError):
    """The processes of the node cannot be listed."""


class SeenClient(NamedTuple):
    """A client of a card that a process of a pod has open. Several processes, even of several pods, may share one."""

    pod: str
    client: Client


@dataclass(slots=True)
class Walk:
    clients: list[SeenClient] = field(default_factory=list)
    processes: int = 0  # number of processes of the pods
    problems: dict[str, None] = field(default_factory=dict)  # one sentence for each cause of failed reads


@dataclass(slots=True)
class _Known:
    """A process as it was last read completely."""

    inode: int  # of its entry in /proc, which differs for another process with the same id
    turn: int  # the process's own turn to be read completely comes when this is a multiple of `RECHECK`
    walks: int = 0  # number of walks that have found it
    identity: tuple[int, int] | None = None  # of its directory, through which it was read
    pod: str | None = None
    opened: int | None = None  # number of files it had open then; None if the kernel does not say
    # the descriptors that were clients; None while it does not belong to a pod that matters
    files: list[str] | None = None

    @property
    def may_be_due(self) -> bool:
        """True if it must be read completely in this walk, should its files have changed."""
        return self.walks <= RECHECK or self.turn % RECHECK == 0

    def is_due(self, opened: int | None) -> bool:
        """Return whether its files may have changed. ``opened`` is how many it has now, as far as the kernel says."""
        is_unknown = opened is None or self.walks <= RECHECK or self.turn % RECHECK_ALL == 0
        return is_unknown or opened != self.opened


class ProcessWalker:
    """Walk in one thread at a time, and remember which files are clients of cards.

    A process is opened once, by its directory, and everything is read through that handle: as soon as the process has
    ended, reading fails, even if its id is in use again. So no number can come from a process of another pod. ``pause``
    is called regularly, so that other threads can work.
    """

    def __init__(self, proc: Path, *, pause: Callable[[], None] = lambda: None) -> None:
        self._proc = proc
        self._pause = pause
        self._before: dict[str, _Known] = {}
        self._known: dict[str, _Known] = {}
        self._steps = 0

    def walk(self, pods: Collection[str]) -> Walk:
        """Read the processes of the pods with these UIDs in the names of their cgroups. Raises CannotWalk.

        A process that ends meanwhile, or cannot be read, is left out of this walk.
        """
        found = Walk()
        self._before, self._known = self._known, {}
        try:
            with _directory(str(self._proc), None, os.O_RDONLY) as root, os.scandir(root) as entries:
                for entry in entries:
                    if not (entry.name.isascii() and entry.name.isdigit()):
                        continue
                    try:
                        self._visit(root, entry, pods, found)
                    except (FileNotFoundError, ProcessLookupError, NotADirectoryError):
                        continue  # it has ended
                    except OSError as error:
                        found.problems.setdefault(_sentence(error))
        except OSError as error:
            raise CannotWalk(f"cannot list the processes of this node: {self._proc}: {error.strerror}") from error
        return found

    def pod_of(self, pid: int) -> str | None:
        """Return the UID of the pod that a process belongs to; None if it belongs to none, or has ended."""
        try:
            with _directory(str(self._proc), None, os.O_RDONLY) as root, _directory(str(pid), root) as directory:
                return pod_of_process(self._content("cgroup", directory, _CGROUP_SIZE))
        except OSError:
            return None

    def _visit(self, root: int, entry: os.DirEntry[str], pods: Collection[str], found: Walk) -> None:
        self._step()
        known = self._before.get(entry.name)
        if known is None or known.inode != entry.inode():
            known = _Known(entry.inode(), turn=int(entry.name))
        self._known[entry.name] = known
        known.turn += 1
        known.walks += 1
        is_of_pod = known.pod in pods
        if known.files or known.may_be_due or (is_of_pod and known.files is None):
            with _directory(entry.name, root) as directory:
                self._read(directory, known, pods, found)
        elif is_of_pod:
            found.processes += 1

    def _read(self, directory: int, known: _Known, pods: Collection[str], found: Walk) -> None:
        """Read a process through the handle of its directory: completely, or only the clients that are known."""
        status = os.fstat(directory)
        identity = (status.st_ino, status.st_mtime_ns)
        is_new = identity != known.identity
        if is_new or known.may_be_due:
            known.identity = identity
            known.pod = pod_of_process(self._content("cgroup", directory, _CGROUP_SIZE))
        if known.pod is None or known.pod not in pods:
            known.files = None
            return
        is_due = is_new or (known.may_be_due and known.is_due(_open_files(directory)))
        if is_due or known.files is None:
            known.opened = _open_files(directory)
            with _directory("fdinfo", directory, os.O_RDONLY) as files, os.scandir(files) as entries:
                names = [entry.name for entry in entries if entry.name.isascii() and entry.name.isdigit()]
            if len(names) > MOST_FILES:
                names = sorted(names, key=int)[:MOST_FILES]
        else:
            names = known.files
        known.files = [name for name in names if self._is_client(directory, name, known.pod, found)]
        found.processes += 1

    def _is_client(self, directory: int, name: str, pod: str, found: Walk) -> bool:
        """Read one open file of a process. Return whether it is a DRM file, and so worth reading in the next walk."""
        try:
            content = self._content(f"fdinfo/{name}", directory, LARGEST)
        except FileNotFoundError:
            return False  # it was closed
        except (ProcessLookupError, PermissionError):
            raise  # so will be every other file of the process
        except OSError as error:
            found.problems.setdefault(_sentence(error))
            return True
        if not is_drm(content):
            return False
        try:
            client = parse_fdinfo(content)
        except MalformedFdinfo as malformed:
            found.problems.setdefault(f"a client of a card in pod {pod} is left out: {malformed}")
        else:
            if client is not None:
                found.clients.append(SeenClient(pod, client))
        return True

    def _step(self) -> None:
        self._steps += 1
        if self._steps % SLICE == 0:
            self._pause()

    def _content(self, name: str, directory: int, size: int) -> bytes:
        self._step()
        return read_start(name, size, directory)


def _open_files(directory: int) -> int | None:
    """Return the number of files a process has open; None if the kernel does not say."""
    try:
        return os.stat("fd", dir_fd=directory).st_size
    except OSError:
        return None


def _sentence(error: OSError) -> str:
    if isinstance(error, PermissionError):
        return (
            "the files of processes of pods cannot be read: Permission denied; give the plugin the capability "
            "SYS_PTRACE, and let AppArmor or SELinux permit it to read other processes"
        )
    return f"some processes of pods cannot be read: {error.strerror}"


@contextmanager
def _directory(name: str, parent: int | None, flags: int = os.O_PATH) -> Iterator[int]:
    """Open a directory. Links are followed only without a ``parent``, for ``/proc`` itself."""
    flags |= os.O_DIRECTORY | os.O_CLOEXEC | (0 if parent is None else os.O_NOFOLLOW)
    descriptor = os.open(name, flags, dir_fd=parent)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
