"""The control plane's files, where the doctor runs on that machine or with its directory mounted."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

from gas.doctor.looked import Unseen

ETC_KUBERNETES = PurePosixPath("/etc/kubernetes")
LARGEST_FILE = 1024 * 1024
"""Bytes; no manifest, configuration or certificate comes near."""

AS_ROOT = "sudo gas doctor   # on the control-plane node"


class HostFiles:
    """Paths of the control-plane machine, found on this one.

    control_plane  what is /etc/kubernetes there. When its name ends so, what stands before is taken for the machine's
                   root (``/host/etc/kubernetes``); else nothing beside it can be found
    """

    def __init__(self, control_plane: Path) -> None:
        self.control_plane = control_plane
        parts = control_plane.absolute().parts
        is_rooted = parts[-2:] == ("etc", "kubernetes")
        self._root = Path(*parts[:-2]) if is_rooted else None

    def local(self, path: str) -> Path | None:
        """Where a path of that machine is here; None when it cannot be here."""
        pure = PurePosixPath(path)
        if not pure.is_absolute() or ".." in pure.parts:
            return None
        if pure.is_relative_to(ETC_KUBERNETES):
            return self.control_plane / pure.relative_to(ETC_KUBERNETES)
        return self._root / pure.relative_to("/") if self._root is not None else None

    def read(self, path: str) -> bytes | Unseen:
        """What is in a file of that machine."""
        local = self.local(path)
        if local is None:
            return Unseen(f"{path} of the control-plane node cannot be found here", AS_ROOT)
        return read_file(local)


def read_file(file: Path) -> bytes | Unseen:
    """What is in a file of this machine."""
    try:
        with file.open("rb") as opened:
            content = opened.read(LARGEST_FILE + 1)
    except OSError as error:
        return Unseen(f"{file} cannot be read: {error.strerror}", AS_ROOT)
    if len(content) > LARGEST_FILE:
        return Unseen(f"{file} is larger than {LARGEST_FILE} bytes", f"ls -l {file}")
    return content
