"""Read kube-scheduler's container for configurator and doctor: its flags, and the sources of the files it sees."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from configurator.errors import ConfiguratorError
from gas.daemon.flag_values import boolean
from gas.objects.stored import Volume, VolumeMount

CONFIG = "config"

_NUMBER = re.compile(r"[-+]?([0-9]{1,17}\.?[0-9]{0,17}|\.[0-9]{1,17})([eE][-+]?[0-9]{1,2})?", re.ASCII)
_INTEGER = re.compile(r"[-+]?([1-9][0-9]{0,9}|0|0[xX][0-9a-fA-F]{1,8}|0[bB][01]{1,31}|0[oO][0-7]{1,11})", re.ASCII)


def _number(text: str) -> int | float:
    found = float(text) if _NUMBER.fullmatch(text) else None
    if found is not None and found.is_integer() and abs(found) < 1e17:
        return int(found)
    if found is None or "e" in repr(found):
        raise ValueError("a number such as 50")
    return found


def _integer(text: str) -> int:
    found = int(text, 0) if _INTEGER.fullmatch(text) else None
    if found is None or not -(2**31) <= found < 2**31:
        raise ValueError("a whole number such as 100")
    return found


_CARRIED: Mapping[str, tuple[tuple[str, ...], Callable[[str], object]]] = {
    "kubeconfig": (("clientConnection", "kubeconfig"), str),
    "kube-api-content-type": (("clientConnection", "contentType"), str),
    "kube-api-qps": (("clientConnection", "qps"), _number),
    "kube-api-burst": (("clientConnection", "burst"), _integer),
    "profiling": (("enableProfiling",), boolean),
    "contention-profiling": (("enableContentionProfiling",), boolean),
    "lock-object-namespace": (("leaderElection", "resourceNamespace"), str),
    "lock-object-name": (("leaderElection", "resourceName"), str),
}
"""By flag, its path in a configuration, and the parser of its value."""


@dataclass(frozen=True, slots=True)
class SchedulerFlags:
    """The flags of kube-scheduler's command line, by name without dashes."""

    values: Mapping[str, str]  # the last one of a repeated flag; ``true`` for a boolean without a value
    places: Mapping[str, tuple[int, ...]]  # indices, among all words, of the words that set it

    @classmethod
    def read(cls, words: Sequence[str]) -> SchedulerFlags:
        """Read the words of ``command`` and then of ``args``, skipping words that are not flags."""
        values: dict[str, str] = {}
        places: dict[str, tuple[int, ...]] = {}
        numbered = enumerate(words)
        for index, word in numbered:
            if not word.startswith("--") or word == "--":
                continue
            name, equals, values[name] = word[2:].partition("=")
            places[name] = (*places.get(name, ()), index)
            if not equals:
                values[name] = "true"
                if index + 1 < len(words) and _takes(name, words[index + 1]):
                    following, values[name] = next(numbered)
                    places[name] += (following,)
        return cls(values, places)

    def configuration(self) -> dict[tuple[str, ...], object]:
        """Return, by path in a configuration, the values of flags that kube-scheduler ignores once it has a file.

        Otherwise a scheduler with ``--profiling=false`` would serve profiles again. Raises ConfiguratorError for a
        value that kube-scheduler could not parse.
        """
        found: dict[tuple[str, ...], object] = {}
        for name, (path, typed) in _CARRIED.items():
            if name not in self.values:
                continue
            try:
                found[path] = typed(self.values[name])
            except ValueError as expected:
                raise ConfiguratorError(
                    f"kube-scheduler has --{name}={self.values[name][:200]}, which must go into its configuration; "
                    f"expected {expected}"
                ) from None
        return found


def _takes(name: str, following: str) -> bool:
    """Return whether the word after a flag without ``=`` is its value, which it never is for a boolean."""
    if name in _CARRIED:
        return _CARRIED[name][1] is not boolean
    return name == CONFIG or not following.startswith("-")


@dataclass(frozen=True, slots=True)
class Mount:
    """A volume as the container sees it at a path."""

    volume: Volume
    mount: VolumeMount

    @property
    def path(self) -> str:
        """The path in the container, without a slash at the end."""
        return posixpath.normpath(self.mount.mount_path)

    @property
    def host_path(self) -> str | None:
        if self.volume.host_path is None or self.mount.sub_path_expr:
            return None
        return posixpath.join(self.volume.host_path.path, self.mount.sub_path or "")


@dataclass(frozen=True, slots=True)
class Mounts:
    """The mounts of one container. Of nested mounts, the innermost counts."""

    all: tuple[Mount, ...] = ()

    @classmethod
    def of(cls, volumes: Iterable[Volume], mounts: Iterable[VolumeMount]) -> Mounts:
        """Join the volumes of a pod with the mounts of a container, skipping mounts of unknown volumes."""
        by_name = {volume.name: volume for volume in volumes}
        return cls(tuple(Mount(by_name[mount.name], mount) for mount in mounts if mount.name in by_name))

    def host_path(self, path: str) -> str | None:
        """Return the node's path of a path in the container; None if it is not in a directory of the node."""
        found = self.innermost(path)
        if found is None or (host_path := found[0].host_path) is None:
            return None
        return posixpath.normpath(posixpath.join(host_path, found[1]))

    def config_map(self, path: str) -> tuple[str, str] | None:
        """Return name and key of the ConfigMap that contains a file of the container; None if none does."""
        found = self.innermost(path)
        if found is None or (source := found[0].volume.config_map) is None:
            return None
        file = posixpath.normpath(posixpath.join(found[0].mount.sub_path or "", found[1]))
        return source.name, next((item.key for item in source.items or () if item.path == file), file)

    def innermost(self, path: str) -> tuple[Mount, str] | None:
        """Return the mount that contains the path, and the path inside of it."""
        wanted = posixpath.normpath(path)
        around = [mount for mount in self.all if is_within(wanted, mount.path)]
        if not around:
            return None
        mount = max(around, key=lambda each: len(each.path))
        return mount, wanted[len(mount.path) :].lstrip("/")


def is_within(path: str, directory: str) -> bool:
    wanted, around = posixpath.normpath(path), posixpath.normpath(directory)
    return wanted == around or wanted.startswith(around.rstrip("/") + "/")
