"""The cgroups of one kubelet, below a name of their own, so that several kubelets can run on one machine."""

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
"""Files that are empty in a new cgroup of version 1; until they are filled, the cgroup accepts no process."""

_numbers = itertools.count(1)


class CgroupRoot:
    """One cgroup in every hierarchy. Call `make` before kubelet starts, `remove` when its processes have ended."""

    def __init__(self) -> None:
        self.name = f"{_PREFIX}-{os.getpid()}-{next(_numbers)}"

    def make(self) -> None:
        """Create the cgroups, and remove those that killed runs left behind."""
        for left in _left_by_killed_runs():
            _remove(left)
        for hierarchy in _hierarchies():
            directory = hierarchy / self.name
            directory.mkdir(exist_ok=True)
            for name in _INHERITED:
                if (hierarchy / name).exists() and (value := (hierarchy / name).read_text().strip()):
                    (directory / name).write_text(value)

    def remove(self) -> None:
        """Remove the cgroups. Raises TimeoutError while they contain processes."""
        for hierarchy in _hierarchies():
            directory = hierarchy / self.name
            wait_for(f"no process in {directory}", partial(_remove, directory), every=0.02)


def _hierarchies() -> list[Path]:
    """Return the directories of the hierarchies: one with version 2 alone, several otherwise."""
    if (_MOUNTED / "cgroup.controllers").exists():
        return [_MOUNTED]
    return [entry for entry in sorted(_MOUNTED.iterdir()) if entry.is_dir() and not entry.is_symlink()]


def _left_by_killed_runs() -> list[Path]:
    """Return the cgroups of processes that are gone; the process id is part of the name."""
    found = [path for hierarchy in _hierarchies() for path in hierarchy.glob(f"{_PREFIX}-*-*")]
    return [path for path in found if not Path(f"/proc/{path.name.split('-')[2]}").exists()]


def _remove(top: Path) -> bool:
    """Remove the directories of a cgroup, and return whether it is gone. The files in it belong to the kernel."""
    for directory, _, _ in os.walk(top, topdown=False):
        with contextlib.suppress(OSError):
            Path(directory).rmdir()
    return not top.exists()
