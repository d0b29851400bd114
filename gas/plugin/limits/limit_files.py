"""Limit device memory by the cgroup controller ``dmem``: write the limits that differ into the cgroups of pods.

Source: Documentation/admin-guide/cgroup-v2.rst and kernel/cgroup/dmem.c of Linux 6.14. A region is named
``drm/0000:03:00.0/vram0``, and a card with several tiles has several. Only the root has the file with their capacities.
"""

import errno
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from gas.plugin.discovery.sysfs_files import read_start
from gas.values.errors import GasError
from gas.values.quoted import quoted

Limits = Mapping[str, int | None]  # bytes by region; None for a region without a limit

_UNLIMITED = "max"
_GONE = {errno.ENOENT, errno.ENODEV}
_LARGEST = 64 * 1024
_POD = re.compile(r"(?:.*-)?pod(?P<uid>[0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12}|[0-9a-f]{32})(?:\.slice)?")
_DEEPEST = 8


class MalformedLimits(GasError):
    """A file of the controller has another form than the kernel writes."""


class Dmem:
    """The controller's name and the names and text of its files.

    ``capacity`` is in the root and states the regions; ``limits`` is in every other cgroup.
    """

    name = "dmem"
    capacity = "dmem.capacity"
    limits = "dmem.max"

    def parse_capacity(self, text: str) -> Mapping[str, int]:
        """Return the bytes of each region. Raises MalformedLimits."""
        return {region: _bytes(value) for region, value in _lines(text)}

    def parse_limits(self, text: str) -> Limits:
        """Return the limits of a cgroup. Raises MalformedLimits."""
        return {region: None if value == _UNLIMITED else _bytes(value) for region, value in _lines(text)}

    def format_limit(self, region: str, limit: int | None) -> str:
        """Return the text to write for one region; the kernel takes one region with each write."""
        return f"{region} {_UNLIMITED if limit is None else limit}\n"


DMEM = Dmem()


def regions_of(pci_address: str, capacity: Mapping[str, int]) -> dict[str, int]:
    """Return the bytes of each region on the card, without memory that the driver keeps for itself (``stolen``)."""
    prefix = f"drm/{pci_address}/vram"
    return {
        region: size
        for region, size in capacity.items()
        if region.startswith(prefix) and (region == prefix or region[len(prefix) :].isdigit())
    }


def _lines(text: str) -> list[tuple[str, str]]:
    lines: list[tuple[str, str]] = []
    for line in text.splitlines():
        region, _, value = line.partition(" ")
        if not region or not value:
            raise MalformedLimits(f"expected a region and an amount in each line, found {quoted(line)}")
        lines.append((region, value))
    return lines


def _bytes(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 20):
        raise MalformedLimits(f"expected bytes, found {quoted(text)}")
    return int(text)


def pod_cgroups(root: Path) -> Iterator[tuple[str, Path]]:
    """Yield UID (from the name) and path of each pod's cgroup below a root, without groups made in containers."""
    for directory, names, _ in os.walk(root):
        path = Path(directory)
        if len(path.relative_to(root).parts) >= _DEEPEST:
            names.clear()
        for name, match in [(name, _POD.fullmatch(name)) for name in names]:
            if match is not None:
                yield match["uid"].replace("_", "-"), path / name
                names.remove(name)


class NoLimits(GasError):
    """The node cannot limit memory; the sentence says what is missing and what to do."""


@dataclass(slots=True)
class Outcome:
    limited: set[str] = field(default_factory=set)  # UIDs of pods that have all their limits
    # UIDs of pods that use more already than a limit, so that the kernel did not accept it
    refused: set[str] = field(default_factory=set)
    missing: set[str] = field(default_factory=set)  # UIDs of pods that want limits and have no cgroup (yet)
    faults: dict[str, None] = field(default_factory=dict)  # one sentence for each cause of failed writes


class LimitFiles:
    def __init__(self, root: Path, controller: Dmem = DMEM) -> None:
        self._root = root
        self._controller = controller

    def capacity(self) -> Mapping[str, int]:
        """Return the bytes of each region of the node. Raises NoLimits."""
        file = self._root / self._controller.capacity
        try:
            return self._controller.parse_capacity(_read(file))
        except FileNotFoundError as error:
            raise NoLimits(
                f"the kernel does not limit memory of cards: {file} does not exist; it needs Linux 6.14 with "
                "CONFIG_CGROUP_DMEM, cgroup version 2, and the node's /sys/fs/cgroup"
            ) from error
        except (OSError, MalformedLimits) as error:
            raise NoLimits(f"cannot read {file}: {_reason(error)}") from error

    def apply(self, wanted: Mapping[str, Limits]) -> Outcome:
        """Give pods their limits, which ``wanted`` has by UID for every region that counts; None removes a limit."""
        found = Outcome()
        cgroups = dict(pod_cgroups(self._root))
        for uid, limits in wanted.items():
            is_limited = any(limit is not None for limit in limits.values())
            if (cgroup := cgroups.get(uid)) is None:
                found.missing |= {uid} if is_limited else set()
                continue
            try:
                is_accepted = self._apply(cgroup, limits)
            except (OSError, MalformedLimits) as error:
                if isinstance(error, OSError) and error.errno in _GONE and not cgroup.is_dir():
                    found.missing |= {uid} if is_limited else set()  # the pod has ended
                else:
                    found.faults[self._sentence(error)] = None
            else:
                if not is_accepted:
                    found.refused.add(uid)
                elif is_limited:
                    found.limited.add(uid)
        return found

    def clear(self) -> None:
        """Remove all limits of cards' memory from all pods, if the kernel has the controller.

        Raises NoLimits for the first that cannot be removed.
        """
        if not (self._root / self._controller.capacity).exists():
            return
        regions = [region for region in self.capacity() if region.startswith("drm/")]
        for _, cgroup in pod_cgroups(self._root):
            try:
                if (cgroup / self._controller.limits).exists():
                    self._apply(cgroup, dict.fromkeys(regions))
            except (OSError, MalformedLimits) as error:
                raise NoLimits(self._sentence(error)) from error

    def _apply(self, cgroup: Path, limits: Limits) -> bool:
        """Write the limits that differ. Return whether the kernel accepted all of them.

        The kernel rejects a limit below what is in use. Linux 6.14 does so without an error, so the file is read again.
        """
        file = cgroup / self._controller.limits
        if not file.exists():
            self._enable(cgroup)
        present = self._controller.parse_limits(_read(file))
        different = {region: limit for region, limit in limits.items() if present.get(region) != limit}
        if not different:
            return True
        for region, limit in different.items():
            try:
                _write(file, self._controller.format_limit(region, limit))
            except OSError as error:
                if error.errno != errno.EBUSY:
                    raise
        present = self._controller.parse_limits(_read(file))
        return all(present.get(region) == limit for region, limit in different.items())

    def _enable(self, cgroup: Path) -> None:
        """Enable the controller in all groups above a pod's, as kubelet's runtime library does."""
        group = self._root
        for name in ("", *cgroup.relative_to(self._root).parts[:-1]):
            group /= name
            _write(group / "cgroup.subtree_control", f"+{self._controller.name}")

    def _sentence(self, error: OSError | MalformedLimits) -> str:
        name = self._controller.limits
        advice = ""
        if isinstance(error, OSError):
            if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
                advice = "; let the plugin write in the node's /sys/fs/cgroup"
            if error.filename and Path(error.filename).name == "cgroup.subtree_control":
                name = f"+{self._controller.name} to cgroup.subtree_control"
        return f"memory limits of pods cannot be set: {name}: {_reason(error)}{advice}; pods run without them"


def _read(file: Path) -> str:
    return read_start(file, _LARGEST).decode("ascii", errors="replace")


def _write(file: Path, text: str) -> None:
    descriptor = os.open(file, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, text.encode())
    except OSError as error:
        error.filename = str(file)
        raise
    finally:
        os.close(descriptor)


def _reason(error: OSError | MalformedLimits) -> str:
    return error.strerror or str(error) if isinstance(error, OSError) else str(error)
