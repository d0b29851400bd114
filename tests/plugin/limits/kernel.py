"""A tree that looks like ``/sys/fs/cgroup``, with the files of the controller ``dmem`` as the kernel behaves."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from gas.plugin.limits import limit_files

CARD0, CARD1 = "0000:03:00.0", "0000:04:00.0"
MIB = 2**20


def region(address: str = CARD0, tile: int = 0) -> str:
    return f"drm/{address}/vram{tile}"


class Kernel:
    """A tree of cgroups with limits. A write changes one region; an unknown region is EINVAL, as in the kernel.

    A limit below what is in use is dropped, without an error in Linux 6.14.

    written         the writes so far, as pairs of path below the root and text
    used            bytes in use, by cgroup and region
    reports_busy    whether a limit that is dropped is EBUSY
    """

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch, capacity: Mapping[str, int]) -> None:
        self.root = root
        self.capacity = dict(capacity)
        self.limits: dict[Path, dict[str, str]] = {}
        self.written: list[tuple[str, str]] = []
        self.used: dict[Path, dict[str, int]] = {}
        self.reports_busy = False
        self.failure: int | None = None
        root.mkdir(parents=True)
        (root / "dmem.capacity").touch()
        monkeypatch.setattr(limit_files, "_read", self.read)
        monkeypatch.setattr(limit_files, "_write", self.write)

    def add(self, path: str, *, enabled: bool = True) -> Path:
        """Create a cgroup, with the groups above it; ``enabled``: it has the controller's files."""
        cgroup = self.root / path
        cgroup.mkdir(parents=True, exist_ok=True)
        if enabled:
            (cgroup / "dmem.max").touch()
        return cgroup

    def of(self, cgroup: Path) -> dict[str, str]:
        """Return the limits of a cgroup that are not ``max``."""
        return self.limits.get(cgroup, {})

    def read(self, file: Path) -> str:
        file.stat()
        if file.name == "dmem.capacity":
            return "".join(f"{name} {size}\n" for name, size in self.capacity.items())
        limits = self.limits.get(file.parent, {})
        return "".join(f"{name} {limits.get(name, 'max')}\n" for name in self.capacity)

    def write(self, file: Path, text: str) -> None:
        if self.failure is not None:
            raise OSError(self.failure, os.strerror(self.failure), str(file))
        if file.name == "cgroup.subtree_control":
            assert text == "+dmem"
            self.written.append((str(file.parent.relative_to(self.root)), text))
            for child in file.parent.iterdir():
                if child.is_dir():
                    (child / "dmem.max").touch()
            return
        file.stat()
        name, _, value = text.strip().partition(" ")
        if name not in self.capacity or "\n" in text.strip():
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), str(file))
        self.written.append((str(file.parent.relative_to(self.root)), text))
        if value != "max" and int(value) < self.used.get(file.parent, {}).get(name, 0):
            if self.reports_busy:
                raise OSError(errno.EBUSY, os.strerror(errno.EBUSY), str(file))
            return
        limits = self.limits.setdefault(file.parent, {})
        limits.pop(name, None)
        if value != "max":
            limits[name] = value
