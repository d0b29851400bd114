"""The cgroups of one kubelet: below a name of their own, so that kubelets on one machine leave each other's pods."""

from __future__ import annotations

import contextlib
import itertools
import os
from functools import partial
from pathlib import Path

from tests.e2e.waiting import wait_for

_MOUNTED = Path("/sys/fs/cgroup")
_PREFIX = "gas-e2e"
_INHERITED = ("cpuset.cpus", "cpuset.mems")
"""Empty in a new cgroup of version 1, where no process may then be put into it."""

_numbers = itertools.count(1)


class CgroupRoot:
    """One cgroup in every hierarchy. `make` before kubelet starts, `remove` when all its processes have ended."""

    def __init__(self) -> None:
        self.name = f"{_PREFIX}-{os.getpid()}-{next(_numbers)}"

    def make(self) -> None:
        """Takes away as well what killed runs left."""
        for left in _left_by_killed_runs():
            _remove(left)
        for hierarchy in _hierarchies():
            directory = hierarchy / self.name
            directory.mkdir(exist_ok=True)
            for name in _INHERITED:
                if (hierarchy / name).exists() and (value := (hierarchy / name).read_text().strip()):
                    (directory / name).write_text(value)

    def remove(self) -> None:
        """Raises TimeoutError while there are processes in it."""
        for hierarchy in _hierarchies():
            directory = hierarchy / self.name
            wait_for(f"no process in {directory}", partial(_remove, directory), seconds=10, every=0.02)


def _hierarchies() -> list[Path]:
    """One with version 2 alone, else a directory for each."""
    if (_MOUNTED / "cgroup.controllers").exists():
        return [_MOUNTED]
    return [entry for entry in sorted(_MOUNTED.iterdir()) if entry.is_dir() and not entry.is_symlink()]


def _left_by_killed_runs() -> list[Path]:
    """Their names say the process that made them."""
    found = [path for hierarchy in _hierarchies() for path in hierarchy.glob(f"{_PREFIX}-*-*")]
    return [path for path in found if not Path(f"/proc/{path.name.split('-')[2]}").exists()]


def _remove(top: Path) -> bool:
    """Whether nothing is left of it. The files in a cgroup are the kernel's; only its directories are removed."""
    for directory, _, _ in os.walk(top, topdown=False):
        with contextlib.suppress(OSError):
            Path(directory).rmdir()
    return not top.exists()
