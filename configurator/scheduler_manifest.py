"""kube-scheduler's static pod: what it says today, and the same with the extender's parts in it. Text to text."""

from __future__ import annotations

import dataclasses
import posixpath
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from configurator.errors import ConfiguratorError, NotAScheduler
from configurator.kubernetes_version import KubernetesVersion
from configurator.scheduler_flags import CONFIG, ORIGINAL_POLICY, POLICY_FLAGS, SchedulerFlags
from configurator.yaml_document import Path as YamlPath
from configurator.yaml_document import YamlDocument

PROGRAM = "kube-scheduler"
CERTIFICATES_IN_POD = "/host/certs"
CONFIG_VOLUME = "schedulerconfig"
CERTIFICATES_VOLUME = "certdir"
DNS_POLICY = "ClusterFirstWithHostNet"
"""So that a pod in the host's network finds the extender by the name of its Service."""

KUBECONFIG_FLAGS = ("kubeconfig", "authentication-kubeconfig", "authorization-kubeconfig")
"""Flags that name files which kube-scheduler cannot do without."""

FINGERPRINT = "gas-configurator/fingerprint"
"""Annotation of the pod: of the files that it reads. When they change it does, and kubelet starts the pod anew."""


@dataclass(frozen=True, slots=True)
class Identity:
    """Numbers of the user and the group that own a file."""

    user: int
    group: int


@dataclass(frozen=True, slots=True)
class Mount:
    """One directory or file of the host as the container sees it. ``name`` is the volume's."""

    name: str
    path: str
    host_path: str


@dataclass(frozen=True, slots=True)
class SchedulerManifest:
    """A manifest that was found to be a kube-scheduler's.

    container  index among the pod's containers
    commands   how many words ``command`` has; those of ``args`` follow them on kube-scheduler's command line
    mounts     those of the container that are of the host, in order
    runs_as    the user of the container; None: root
    """

    document: YamlDocument
    container: int
    commands: int
    version: KubernetesVersion
    flags: SchedulerFlags
    mounts: tuple[Mount, ...]
    runs_as: Identity | None

    @classmethod
    def read(cls, document: YamlDocument, version: KubernetesVersion | None = None) -> SchedulerManifest:
        """Raises NotAScheduler, and UnknownVersion when neither the image nor the caller says the version."""
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
        _refuse_lost_kubeconfig(name, flags, container)
        return cls(
            document=document,
            container=index,
            commands=len(command),
            version=version or KubernetesVersion.of_image(image, name=name),
            flags=flags,
            mounts=tuple(_host_mounts(name, spec, container)),
            runs_as=_runs_as(spec, container),
        )

    def on_host(self, path: str) -> Path | None:
        """Where a file of the container lies on the host; None: it is not one of the host's."""
        wanted = posixpath.normpath(path)
        found = None
        longest = -1
        for mount in self.mounts:
            inside = posixpath.normpath(mount.path)
            if len(inside) > longest and _is_within(wanted, inside):
                longest = len(inside)
                found = posixpath.normpath(mount.host_path + "/" + wanted[len(inside) :].lstrip("/"))
        return None if found is None else Path(found)

    @property
    def certificates(self) -> Path | None:
        """The host's directory that is mounted where the extender's configuration looks for certificates."""
        mount = next((each for each in self.mounts if posixpath.normpath(each.path) == CERTIFICATES_IN_POD), None)
        return None if mount is None else Path(mount.host_path)

    @property
    def has_own_configuration(self) -> bool:
        """Whether ``--config`` names a file that no run of the configurator, nor of the original, has mounted."""
        given = self.flags.values.get(CONFIG)
        if given is None:
            return False
        wanted = posixpath.normpath(given)
        return not any(
            mount.name == CONFIG_VOLUME and posixpath.normpath(mount.path) == wanted for mount in self.mounts
        )

    def wired(self, *, configuration: Path, certificates: Path, fingerprint: str) -> YamlDocument:
        """The manifest with the extender's parts: configuration file, certificates, DNS. Nothing else differs.

        configuration, certificates  a file and a directory of the host
        fingerprint                  of what kube-scheduler reads from them

        Raises ConfiguratorError where that cannot be done.
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
        """Whether ``--config`` is this very file of the host already, by whatever path."""
        given = self.flags.values.get(CONFIG)
        return given is not None and self.on_host(given) == configuration

    def _without_policy(self) -> YamlDocument:
        document = self.document
        present = [name for name in POLICY_FLAGS if name in self.flags.values]
        if present and self.flags.values.get("policy-configmap") != ORIGINAL_POLICY:
            raise ConfiguratorError(
                f"{document.name} tells kube-scheduler of a policy with --{present[0]}, which cannot be carried into a "
                "configuration file; write one with -f that says the same, take the flag away, and run again"
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
        """Of one of all words the list that it is in, and its index there."""
        return (self._list("command"), word) if word < self.commands else (self._list("args"), word - self.commands)

    def _list(self, key: str) -> YamlPath:
        return "spec", "containers", self.container, key

    def _with_mount(self, document: YamlDocument, name: str, inside: str, on_host: Path, kind: str) -> YamlDocument:
        mounts = document.get("spec", "containers", self.container, "volumeMounts") or []
        taken = next((each for each in mounts if posixpath.normpath(str(each.get("mountPath"))) == inside), None)
        volumes = document.get("spec", "volumes") or []
        index = next((place for place, each in enumerate(volumes) if each.get("name") == name), None)
        if taken is not None and taken.get("name") == name and index is not None:
            # It is ours, from another run: only the host's side moves.
            return document.with_value(("spec", "volumes", index, "hostPath", "path"), str(on_host))
        if taken is not None:
            raise ConfiguratorError(
                f"{document.name} mounts {_shown(taken.get('name'))} at {inside} already, where {on_host} has to be"
            )
        if index is not None:
            raise ConfiguratorError(
                f"{document.name} has a volume {name!r} for something else already; rename it, and run again"
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


def _host_mounts(name: str, spec: Mapping[str, Any], container: Mapping[str, Any]) -> list[Mount]:
    volumes = {}
    for volume in _list(name, spec.get("volumes") or [], "spec.volumes"):
        each = _mapping(name, volume, "an entry of spec.volumes")
        volumes[_volume_name(name, each)] = each
    mounts = []
    for entry in _list(name, container.get("volumeMounts") or [], "volumeMounts"):
        mount = _mapping(name, entry, "an entry of volumeMounts")
        volume = volumes.get(_volume_name(name, mount))
        if volume is None:
            raise NotAScheduler(
                name, f"mounts {_shown(mount['name'])}, which is not among its volumes: is it complete?"
            )
        host = volume.get("hostPath")
        inside = mount.get("mountPath")
        if not isinstance(host, Mapping) or not isinstance(host.get("path"), str) or not isinstance(inside, str):
            continue
        if mount.get("subPathExpr"):
            continue
        mounts.append(Mount(str(mount["name"]), inside, posixpath.join(host["path"], str(mount.get("subPath") or ""))))
    return mounts


def _volume_name(name: str, entry: Mapping[str, Any]) -> str:
    found = entry.get("name")
    if not isinstance(found, str):
        raise NotAScheduler(name, f"has {_shown(found)} where the name of a volume is expected: is it complete?")
    return found


def _refuse_lost_kubeconfig(name: str, flags: SchedulerFlags, container: Mapping[str, Any]) -> None:
    """A manifest that was cut off has lost the mounts, which stand at its end."""
    entries = _list(name, container.get("volumeMounts") or [], "volumeMounts")
    mounted = [str(_mapping(name, entry, "an entry of volumeMounts").get("mountPath")) for entry in entries]
    for flag in KUBECONFIG_FLAGS:
        given = flags.values.get(flag)
        if given is not None and not any(_is_within(given, path) for path in mounted):
            raise NotAScheduler(name, f"has --{flag}={given[:200]}, which it does not mount: is it complete?")


def _is_within(path: str, directory: str) -> bool:
    wanted, around = posixpath.normpath(path), posixpath.normpath(directory)
    return wanted == around or wanted.startswith(around.rstrip("/") + "/")


def _texts(name: str, container: Mapping[str, Any], index: int, key: str) -> list[str]:
    where = f"spec.containers.{index}.{key}"
    words = _list(name, container.get(key) or [], where)
    if not all(isinstance(word, str) for word in words):
        raise NotAScheduler(name, f"has something that is not text in {where}")
    return words


def _runs_as(spec: Mapping[str, Any], container: Mapping[str, Any]) -> Identity | None:
    """Of the container's security context, else the pod's, as kubeadm's rootless control plane sets them."""
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
