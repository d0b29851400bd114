"""Read a static pod manifest of the control plane, and add flags to the program that it runs."""

from __future__ import annotations

import posixpath
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from configurator.errors import FileTrouble
from configurator.scheduler_container import Mounts, SchedulerFlags
from configurator.yaml_document import YamlDocument
from gas.objects.stored import Volume, VolumeMount

FINGERPRINT = "gas-configurator/fingerprint"
"""The pod's annotation with a digest of the files it reads, by whose changes kubelet restarts the pod."""


class _Part(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """A part of a manifest. Everything may be missing, since the file may be cut off."""


class _SecurityContext(_Part, frozen=True):
    run_as_user: int | None = None
    run_as_group: int | None = None


class _Container(_Part, frozen=True):
    image: str | None = None
    command: list[str] | None = None
    args: list[str] | None = None
    volume_mounts: list[VolumeMount] | None = None
    security_context: _SecurityContext | None = None

    def runs(self, program: str) -> bool:
        if self.command:
            return posixpath.basename(self.command[0]) == program
        image = (self.image or "").partition("@")[0].rpartition("/")[2].partition(":")[0]
        return bool(self.args) and (image == program or image.startswith(program + "-"))


class _Spec(_Part, frozen=True):
    containers: list[_Container] | None = None
    volumes: list[Volume] | None = None
    host_network: bool | None = None
    security_context: _SecurityContext | None = None


class _Pod(_Part, frozen=True):
    api_version: str | None = None
    kind: str | None = None
    spec: _Spec | None = None


@dataclass(frozen=True, slots=True)
class StaticPod:
    """A static pod that runs one program of the control plane."""

    document: YamlDocument
    spec: _Spec
    index: int  # of the program's container
    container: _Container  # with its command line, and without an image if the manifest is cut off
    flags: SchedulerFlags

    @classmethod
    def read(cls, document: YamlDocument, program: str, error: type[FileTrouble]) -> StaticPod:
        """Find the container that runs the program. Raises the given error."""
        try:
            pod = msgspec.convert(document.get(), _Pod)
        except msgspec.ValidationError as invalid:
            raise error(document.name, f"is not a complete Pod: {invalid}") from None
        if pod.kind != "Pod" or pod.api_version != "v1":
            raise error(document.name, f"holds a {pod.kind!r} of {pod.api_version!r}, not a Pod of 'v1'")
        spec = pod.spec or _Spec()
        containers = spec.containers or []
        found = [index for index, each in enumerate(containers) if each.runs(program)]
        if not found and any(program in word for each in containers for word in each.command or ()):
            raise error(document.name, f"starts {program} through another program, so that flags cannot be added")
        if len(found) != 1:
            raise error(document.name, f"has {len(found)} containers that run {program}")
        container = containers[found[0]]
        flags = SchedulerFlags.read([*(container.command or ()), *(container.args or ())])
        return cls(document, spec, found[0], container, flags)

    @property
    def name(self) -> str:
        return self.document.name

    @property
    def volumes(self) -> Sequence[Volume]:
        return self.spec.volumes or ()

    @property
    def volume_mounts(self) -> Sequence[VolumeMount]:
        return self.container.volume_mounts or ()

    @property
    def mounts(self) -> Mounts:
        return Mounts.of(self.volumes, self.volume_mounts)

    @property
    def owner(self) -> tuple[int, int] | None:
        """User and group of the container, as numbers; None for root."""
        user = group = None
        for context in (self.spec.security_context, self.container.security_context):
            if context is not None:
                user = user if context.run_as_user is None else context.run_as_user
                group = group if context.run_as_group is None else context.run_as_group
        return (user, user if group is None else group) if user else None

    def on_host(self, path: str) -> Path | None:
        found = self.mounts.host_path(path)
        return None if found is None else Path(found)

    def path_to(self, key: str) -> tuple[str | int, ...]:
        return "spec", "containers", self.index, key

    def set_flag(self, name: str, value: str) -> None:
        """Set the flag ``--NAME=VALUE`` in place of any earlier one."""
        word = f"--{name}={value}"
        first, *others = self.flags.places.get(name, (None,))
        for place in reversed(others):
            self.document.remove(*self._in_list(place))
        if first is None:
            self.document.append(self.path_to("args" if self.container.args else "command"), word)
        else:
            path, index = self._in_list(first)
            self.document.set((*path, index), word)

    def _in_list(self, word: int) -> tuple[tuple[str | int, ...], int]:
        """Return the path of the list that a word of the command line is in, and its index there."""
        count = len(self.container.command or ())
        return (self.path_to("command"), word) if word < count else (self.path_to("args"), word - count)

    def set_fingerprint(self, digits: str) -> None:
        """Make kubelet restart the pod if the digits differ from the manifest's."""
        self.document.set(("metadata", "annotations", FINGERPRINT), digits)
