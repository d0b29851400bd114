"""Read files of the control plane, on that machine or with its directory mounted here."""

import os
import select
import stat
import time
from pathlib import Path, PurePosixPath

from gas.cluster.credentials import kind_of
from gas.doctor import fix
from gas.doctor.findings import Unseen

ETC_KUBERNETES = PurePosixPath("/etc/kubernetes")
LARGEST_FILE = 1024 * 1024  # Bytes. Manifests, configurations and certificates are far smaller.

AS_ROOT = "sudo gas doctor   # on the control-plane node"


class HostFiles:
    """Files of the control-plane machine, as they are mounted on this one.

    control_plane  directory that is /etc/kubernetes there. If the path ends in etc/kubernetes, the part before that
                   is the machine's root. Otherwise only files below ``control_plane`` can be read
    patience       seconds to wait for a pipe without a writer
    """

    def __init__(self, control_plane: Path, patience: float) -> None:
        self.control_plane = control_plane
        self._patience = patience
        parts = control_plane.absolute().parts
        is_rooted = parts[-2:] == ("etc", "kubernetes")
        self._root = Path(*parts[:-2]) if is_rooted else None

    def local(self, path: str) -> Path | Unseen:
        """Return the path on this machine for one of that machine."""
        pure = PurePosixPath(path)
        if pure.is_absolute() and ".." not in pure.parts:
            if pure.is_relative_to(ETC_KUBERNETES):
                return self.control_plane / pure.relative_to(ETC_KUBERNETES)
            if self._root is not None:
                return self._root / pure.relative_to("/")
        return Unseen(f"{path} of the control-plane node is not available on this machine", AS_ROOT)

    def read(self, path: str) -> bytes | Unseen:
        local = self.local(path)
        return local if isinstance(local, Unseen) else self.read_here(local)

    def read_here(self, file: Path) -> bytes | Unseen:
        """Return the content of a file of this machine, or of a pipe such as a shell's ``<(command)``."""
        try:
            # Without O_NONBLOCK, opening a pipe that has no writer blocks.
            descriptor = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            return Unseen(f"{file} cannot be read: {error.strerror}", AS_ROOT)
        try:
            mode = os.fstat(descriptor).st_mode
            if not (stat.S_ISREG(mode) or stat.S_ISFIFO(mode)):
                return Unseen(f"{file}: expected a file, found {kind_of(mode)}", fix.command("ls", "-ld", str(file)))
            content = _all_of(descriptor, time.monotonic() + self._patience)
        except OSError as error:
            return Unseen(f"{file} cannot be read: {error.strerror}", AS_ROOT)
        finally:
            os.close(descriptor)
        if content is None:
            return Unseen(
                f"{file} is a pipe whose writer did not finish in {self._patience:g} s",
                fix.command("ls", "-l", str(file)),
            )
        if len(content) > LARGEST_FILE:
            return Unseen(f"{file} is larger than {LARGEST_FILE} bytes", fix.command("ls", "-l", str(file)))
        return content


def _all_of(descriptor: int, deadline: float) -> bytes | None:
    """Read up to one byte more than a file may have; None if the writer is not done at the deadline."""
    content = b""
    while len(content) <= LARGEST_FILE:
        ready, _, _ = select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            return None
        if not (part := os.read(descriptor, LARGEST_FILE + 1 - len(content))):
            break
        content += part
    return content
