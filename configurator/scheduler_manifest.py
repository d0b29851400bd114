"""Read kube-scheduler's static pod manifest, and add what the extender needs. Text to text."""

from __future__ import annotations

import dataclasses
import posixpath
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from configurator.errors import ConfiguratorError, NotAScheduler
from configurator.kubernetes_version import KubernetesVersion
from configurator.scheduler_container import (
    CONFIG,
    ORIGINAL_POLICY,
    POLICY_FLAGS,
    Mounts,
    SchedulerFlags,
    is_within,
)
from configurator.yaml_document import Path as YamlPath
from configurator.yaml_document import YamlDocument
from gas.objects.stored import Volume, VolumeMount

PROGRAM = "kube-scheduler"
CERTIFICATES_IN_POD = "/host/certs"
CONFIG_VOLUME = "schedulerconfig"
CERTIFICATES_VOLUME = "certdir"
DNS_POLICY = "ClusterFirstWithHostNet"
"""Lets a pod in the host's network resolve the name of the extender's Service."""

KUBECONFIG_FLAGS = ("kubeconfig", "authentication-kubeconfig", "authorization-kubeconfig")
"""Flags that name files without which kube-scheduler does not start."""

FINGERPRINT = "gas-configurator/fingerprint"
"""Annotation of the pod with a digest of the files it reads. It changes with them, and kubelet restarts the pod."""


@dataclass(frozen=True, slots=True)
class Identity:
    """User and group, as numbers, that own a file."""

    user: int
    group: int


@dataclass(frozen=True, slots=True)
class SchedulerManifest:
    """The manifest of a kube-scheduler.

    container  index among the pod's containers
    commands   number of words of ``command``; those of ``args`` follow them on kube-scheduler's command line
    mounts     of the container
    runs_as    user and group of the container; None for root
    """

    document: YamlDocument
    container: int
    commands: int
    version: KubernetesVersion
    flags: SchedulerFlags
    mounts: Mounts
    runs_as: Identity | None

    @classmethod
    def read(cls, document: YamlDocument, version: KubernetesVersion | None = None) -> SchedulerManifest:
        """Read a manifest. Raises NotAScheduler, and UnknownVersion if neither image nor caller has a version."""
        name = document.name
        pod = document.get()
        if pod.get("kind") != "Pod" or pod.get("apiVersion") != "v1":
            raise NotAScheduler(name, f"holds a {_shown(pod.get('kind'))} of {_shown(pod.get('apiVersion'))}")
        spec = _mapping(name, pod.get("spec"), "spec")
        containers = _list(name, spec.get("containers"), "spec.containers")
        index = _scheduler(name, containers)
        container = containers[index]
        image = container.get("image")
        if not isinstance(image, str):
            raise NotAScheduler(name, "names no image for kube-scheduler: is it complete?")
        if spec.get("hostNetwork") is not True:
            raise NotAScheduler(name, "does not say hostNetwork: true, as a control plane's does: is it complete?")
        command, args = (_texts(name, container, index, key) for key in ("command", "args"))
        flags = SchedulerFlags.read([*command, *args])
        _refuse_missing_kubeconfig(name, flags, container)
        return cls(
            document=document,
            container=index,
            commands=len(command),
            version=version or KubernetesVersion.of_image(image, name=name),
            flags=flags,
            mounts=_mounts(name, spec, container),
            runs_as=identity_of(spec, container),
        )

    def on_host(self, path: str) -> Path | None:
        """Return where a file of the container lies on the host; None if it does not."""
        found = self.mounts.host_path(path)
        return None if found is None else Path(found)

    @property
    def certificates(self) -> Path | None:
        """The host's directory that is mounted where the extender's configuration looks for certificates."""
        return self._certificates()

    @property
    def own_certificates(self) -> Path | None:
        """The same directory, if the configurator or the original has mounted it."""
        return self._certificates(CERTIFICATES_VOLUME)

    def _certificates(self, volume: str | None = None) -> Path | None:
        for mount in self.mounts.all:
            is_wanted = mount.path == CERTIFICATES_IN_POD and volume in (None, mount.volume.name)
            if is_wanted and mount.host_path is not None:
                return Path(mount.host_path)
        return None

    @property
    def has_own_configuration(self) -> bool:
        """True if ``--config`` names a file that neither the configurator nor the original has mounted."""
        given = self.flags.values.get(CONFIG)
        if given is None:
            return False
        wanted = posixpath.normpath(given)
        return not any(
            each.volume.name == CONFIG_VOLUME and each.path == wanted and each.host_path is not None
            for each in self.mounts.all
        )

    def wired(self, *, configuration: Path, certificates: Path, fingerprint: str) -> YamlDocument:
        """Return the manifest with configuration file, certificates and DNS policy added. Nothing else differs.

        configuration, certificates  a file and a directory of the host
        fingerprint                  digest of what kube-scheduler reads from them

        Raises ConfiguratorError if that cannot be done.
        """
        document = self._with_config_flag(self._without_policy(), configuration)
        document = document.with_value(("spec", "dnsPolicy"), DNS_POLICY)
        document = document.with_value(("metadata", "annotations", FINGERPRINT), fingerprint)
        if not self._has_config(configuration) and self.on_host(str(configuration)) != configuration:
            document = self._with_mount(document, CONFIG_VOLUME, str(configuration), configuration, "File")
        if self.certificates != certificates:
            document = self._with_mount(document, CERTIFICATES_VOLUME, CERTIFICATES_IN_POD, certificates, "Directory")
        return document

    def _has_config(self, configuration: Path) -> bool:
        """Return whether ``--config`` is this file of the host already, by any path."""
        given = self.flags.values.get(CONFIG)
        return given is not None and self.on_host(given) == configuration

    def _without_policy(self) -> YamlDocument:
        document = self.document
        present = [name for name in POLICY_FLAGS if name in self.flags.values]
        if present and self.flags.values.get("policy-configmap") != ORIGINAL_POLICY:
            raise ConfiguratorError(
                f"{document.name} gives kube-scheduler a policy with --{present[0]}, which cannot be converted into a "
                "configuration file; write one with the same content for -f, remove the flag, and run again"
            )
        for index in sorted((place for name in present for place in self.flags.places[name]), reverse=True):
            document = document.without_item(*self._place(index))
        return document

    def _with_config_flag(self, document: YamlDocument, configuration: Path) -> YamlDocument:
        if self._has_config(configuration):
            return document
        wanted = f"--{CONFIG}={configuration}"
        command, args = (document.get("spec", "containers", self.container, key) or [] for key in ("command", "args"))
        present = SchedulerFlags.read([*command, *args]).places.get(CONFIG, ())
        if not present:
            return document.with_item(self._list("args" if args else "command"), wanted)
        here = dataclasses.replace(self, commands=len(command))
        for index in reversed(present[1:]):
            document = document.without_item(*here._place(index))
        path, index = here._place(present[0])
        return document.with_value((*path, index), wanted)

    def _place(self, word: int) -> tuple[YamlPath, int]:
        """Return the list that a word of the command line is in, and its index there."""
        return (self._list("command"), word) if word < self.commands else (self._list("args"), word - self.commands)

    def _list(self, key: str) -> YamlPath:
        return "spec", "containers", self.container, key

    def _with_mount(self, document: YamlDocument, name: str, inside: str, on_host: Path, kind: str) -> YamlDocument:
        mounts = document.get("spec", "containers", self.container, "volumeMounts") or []
        taken = next((each for each in mounts if posixpath.normpath(str(each.get("mountPath"))) == inside), None)
        volumes = document.get("spec", "volumes") or []
        index = next((place for place, each in enumerate(volumes) if each.get("name") == name), None)
        if taken is not None and taken.get("name") == name and index is not None:
            # An earlier run added it: only the path on the host changes.
            return document.with_value(("spec", "volumes", index, "hostPath", "path"), str(on_host))
        if taken is not None:
            raise ConfiguratorError(
                f"{document.name} mounts {_shown(taken.get('name'))} at {inside}, where {on_host} must be mounted"
            )
        if index is not None:
            raise ConfiguratorError(
                f"{document.name} uses the volume name {name!r} for something else; rename it, and run again"
            )
        mount = {"mountPath": inside, "name": name, "readOnly": True}
        document = document.with_item(("spec", "containers", self.container, "volumeMounts"), mount)
        volume = {"hostPath": {"path": str(on_host), "type": kind}, "name": name}
        return document.with_item(("spec", "volumes"), volume)


def _scheduler(name: str, containers: list[Any]) -> int:
    found = [index for index, each in enumerate(containers) if isinstance(each, Mapping) and _is_scheduler(each)]
    if len(found) == 1:
        return found[0]
    if found:
        raise NotAScheduler(name, "has several containers that run kube-scheduler")
    through_shell = [each for each in containers if isinstance(each, Mapping) and PROGRAM in str(each.get("command"))]
    if through_shell:
        raise NotAScheduler(name, "starts kube-scheduler through another program, so that flags cannot be added")
    raise NotAScheduler(name, "has no container that runs kube-scheduler")


def _is_scheduler(container: Mapping[str, Any]) -> bool:
    command = container.get("command")
    if isinstance(command, list) and command:
        return posixpath.basename(str(command[0])) == PROGRAM
    image = str(container.get("image")).partition("@")[0].rpartition("/")[2].partition(":")[0]
    return bool(container.get("args")) and (image == PROGRAM or image.startswith(PROGRAM + "-"))


def _mounts(name: str, spec: Mapping[str, Any], container: Mapping[str, Any]) -> Mounts:
    """Read volumes and mounts. Raises NotAScheduler if a mounted volume is missing: the manifest may be cut off."""
    volumes = [
        _mapping(name, volume, "an entry of spec.volumes")
        for volume in _list(name, spec.get("volumes") or [], "spec.volumes")
    ]
    names = {_volume_name(name, volume) for volume in volumes}
    mounts = [
        _mapping(name, mount, "an entry of volumeMounts")
        for mount in _list(name, container.get("volumeMounts") or [], "volumeMounts")
    ]
    for mount in mounts:
        if _volume_name(name, mount) not in names:
            raise NotAScheduler(
                name, f"mounts {_shown(mount['name'])}, which is not among its volumes: is it complete?"
            )
    try:
        return Mounts.of(msgspec.convert(volumes, list[Volume]), msgspec.convert(mounts, list[VolumeMount]))
    except msgspec.ValidationError as error:
        raise NotAScheduler(name, f"has volumes or mounts that are invalid: {error}") from None


def _volume_name(name: str, entry: Mapping[str, Any]) -> str:
    found = entry.get("name")
    if not isinstance(found, str):
        raise NotAScheduler(name, f"has {_shown(found)} where the name of a volume is expected: is it complete?")
    return found


def _refuse_missing_kubeconfig(name: str, flags: SchedulerFlags, container: Mapping[str, Any]) -> None:
    """Refuse a manifest that does not mount its kubeconfig: one that was cut off lacks the mounts at its end."""
    entries = _list(name, container.get("volumeMounts") or [], "volumeMounts")
    mounted = [str(_mapping(name, entry, "an entry of volumeMounts").get("mountPath")) for entry in entries]
    for flag in KUBECONFIG_FLAGS:
        given = flags.values.get(flag)
        if given is not None and not any(is_within(given, path) for path in mounted):
            raise NotAScheduler(name, f"has --{flag}={given[:200]}, which it does not mount: is it complete?")


def _texts(name: str, container: Mapping[str, Any], index: int, key: str) -> list[str]:
    where = f"spec.containers.{index}.{key}"
    words = _list(name, container.get(key) or [], where)
    if not all(isinstance(word, str) for word in words):
        raise NotAScheduler(name, f"has something that is not text in {where}")
    return words


def identity_of(spec: Mapping[str, Any], container: Mapping[str, Any]) -> Identity | None:
    """Return user and group of the container's security context, else of the pod's; None for root."""
    found: dict[str, int] = {}
    for context in (spec.get("securityContext"), container.get("securityContext")):
        if isinstance(context, Mapping):
            found.update({key: value for key, value in context.items() if type(value) is int})
    user = found.get("runAsUser", 0)
    return Identity(user, found.get("runAsGroup", user)) if user else None


def _mapping(name: str, value: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise NotAScheduler(name, f"has no mapping at {where}: is it complete?")
    return value


def _list(name: str, value: Any, where: str) -> list[Any]:
    if not isinstance(value, list):
        raise NotAScheduler(name, f"has no list at {where}: is it complete?")
    return value


def _shown(value: object) -> str:
    return repr(value)[:80] if value is not None else "(nothing)"
