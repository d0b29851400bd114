"""Where the paths in a container of kube-scheduler lead to."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePosixPath

from gas.doctor.objects import Container, Details, Volume


@dataclass(frozen=True, slots=True, kw_only=True)
class Mounts:
    """Without a pod the paths are those of the scheduler's machine."""

    pod: Details | None = None
    container: Container | None = None

    def host_path(self, path: str) -> str | None:
        """The path on the scheduler's machine; None when it is in no directory of it."""
        if self.container is None:
            return path
        found = self._volume(path)
        if found is None or found[0].host_path is None:
            return None
        return str(PurePosixPath(found[0].host_path.path) / found[1])

    def config_map(self, path: str) -> tuple[str, str] | None:
        """Name and key of the ConfigMap that holds the file."""
        found = self._volume(path)
        if found is None or found[0].config_map is None:
            return None
        items = found[0].config_map.items or ()
        return found[0].config_map.name, next((item.key for item in items if item.path == found[1]), found[1])

    def _volume(self, path: str) -> tuple[Volume, str] | None:
        """The volume that is mounted there, and the path inside of it."""
        if self.container is None or self.pod is None:
            return None
        pure = PurePosixPath(path)
        mounts = [each for each in self.container.volume_mounts or () if pure.is_relative_to(each.mount_path)]
        if not mounts:
            return None
        mount = max(mounts, key=lambda each: len(PurePosixPath(each.mount_path).parts))
        rest = PurePosixPath(mount.sub_path or "") / pure.relative_to(mount.mount_path)
        volume = next((each for each in self.pod.spec.volumes or () if each.name == mount.name), None)
        return (volume, "" if str(rest) == "." else str(rest)) if volume is not None else None
