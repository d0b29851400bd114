"""Find the cgroup of a pod by its UID, for kubelet's drivers ``cgroupfs`` and ``systemd`` and any root of kubelet's."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

_POD = re.compile(r"(?:.*-)?pod(?P<uid>[0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12}|[0-9a-f]{32})(?:\.slice)?")
_DEEPEST = 8
_SLICE = ".slice"


class PodCgroups:
    """The cgroups of pods below a root. Where pods are is remembered, so that the next one is found at once.

    root  normally ``/sys/fs/cgroup``
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self._parents: set[Path] = set()

    def find(self, uid: str) -> Path | None:
        """Return the cgroup of a pod; None if it has none (yet)."""
        if (found := self._known(uid)) is not None:
            return found
        self._parents = {path.parent for path in self.all()}
        return self._known(uid)

    def all(self) -> Iterator[Path]:
        """Yield the cgroups of all pods. Groups below them are made in containers and not looked at."""
        for directory, names, _ in os.walk(self.root):
            path = Path(directory)
            if len(path.relative_to(self.root).parts) >= _DEEPEST:
                names.clear()
            yield from (path / name for name in names if _POD.fullmatch(name))
            names[:] = [name for name in names if not _POD.fullmatch(name)]

    def _known(self, uid: str) -> Path | None:
        for parent in self._parents:
            if parent.name.endswith(_SLICE):
                name = f"{parent.name.removesuffix(_SLICE)}-pod{uid.replace('-', '_')}{_SLICE}"
            else:
                name = f"pod{uid}"
            if (path := parent / name).is_dir():
                return path
        return None
