"""Let kube-apiserver present a client certificate to the admission webhooks. Text to text.

kube-apiserver reads such certificates from the kubeconfig of its admission plugins, which the file of
``--admission-control-config-file`` names. It loads renewed certificates itself, and the rest only when it starts.
"""

from __future__ import annotations

import hashlib
import posixpath
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from configurator.errors import NotAnApiServer
from configurator.scheduler_container import Mounts, SchedulerFlags, is_within
from configurator.scheduler_manifest import FINGERPRINT, Identity, identity_of
from configurator.yaml_document import YamlDocument, json_form
from gas.objects.stored import Volume, VolumeMount

PROGRAM = "kube-apiserver"
CONFIGURATION_FLAG = "admission-control-config-file"

CONFIGURATION = "admission.yaml"
KUBECONFIG = "admission-kubeconfig.yaml"
CERTIFICATE = "api-server.crt"
KEY = "api-server.key"
"""Files in the directory of the configurator's authority."""

_PLUGINS = ("ValidatingAdmissionWebhook", "MutatingAdmissionWebhook")


@dataclass(frozen=True, slots=True)
class ApiServerManifest:
    """The static pod manifest of a kube-apiserver.

    container  index among the pod's containers
    words      ``command``, then ``args``
    has_args   whether flags stand in ``args``
    runs_as    user and group of the container; None for root
    """

    document: YamlDocument
    container: int
    words: tuple[str, ...]
    has_args: bool
    mounts: Mounts
    runs_as: Identity | None

    @classmethod
    def read(cls, document: YamlDocument) -> ApiServerManifest:
        """Read a manifest. Raises NotAnApiServer."""
        spec = document.get("spec")
        containers = spec.get("containers") if isinstance(spec, Mapping) else None
        if document.get("kind") != "Pod" or not isinstance(containers, list):
            raise NotAnApiServer(document.name, "is not a Pod with containers")
        found = [index for index, each in enumerate(containers) if _runs_api_server(each)]
        if len(found) != 1:
            raise NotAnApiServer(document.name, f"has {len(found)} containers that run {PROGRAM}")
        container = containers[found[0]]
        args = container.get("args") or []
        try:
            volumes = msgspec.convert(spec.get("volumes") or [], list[Volume])
            mounts = msgspec.convert(container.get("volumeMounts") or [], list[VolumeMount])
            words = msgspec.convert([*container["command"], *args], list[str])
        except msgspec.ValidationError as error:
            raise NotAnApiServer(document.name, f"has volumes, mounts or words that are invalid: {error}") from None
        return cls(
            document=document,
            container=found[0],
            words=tuple(words),
            has_args=bool(args),
            mounts=Mounts.of(volumes, mounts),
            runs_as=identity_of(spec, container),
        )

    @property
    def configuration(self) -> str | None:
        """The value of --admission-control-config-file, a path in the container; None without the flag."""
        return SchedulerFlags.read(self.words).values.get(CONFIGURATION_FLAG)

    def inside(self, directory: Path) -> str:
        """Return the path at which the container sees a directory of the host. Raises NotAnApiServer if it does not."""
        for mount in self.mounts.all:
            if mount.host_path is not None and is_within(str(directory), mount.host_path):
                below = posixpath.relpath(str(directory), posixpath.normpath(mount.host_path))
                path = posixpath.normpath(posixpath.join(mount.path, below))
                if self.mounts.host_path(path) == str(directory):
                    return path
        raise NotAnApiServer(
            self.document.name,
            f"does not mount {directory}, where the certificate for the API server is; name a directory that it mounts "
            "with --pki-dir, such as /etc/kubernetes/pki/gas",
        )

    def uses(self, directory: Path) -> bool:
        """Return whether an earlier run has let this kube-apiserver read the configuration in the directory."""
        given = self.configuration
        return given is not None and self.mounts.host_path(given) == str(directory / CONFIGURATION)

    def wired(self, directory: Path, contents: Iterable[bytes]) -> YamlDocument:
        """Return the manifest with the flag, and with a digest of what kube-apiserver reads only when it starts.

        directory  of the host, with the configuration
        contents   of the configuration and the kubeconfig

        Raises NotAnApiServer if it has another configuration of its admission plugins.
        """
        document = self.document
        if not self.uses(directory):
            if (given := self.configuration) is not None:
                raise NotAnApiServer(
                    document.name,
                    f"has --{CONFIGURATION_FLAG}={given} already; name the certificate in that file's kubeconfig as "
                    "docs/admission.md says, and run this without --api-server",
                )
            flag = f"--{CONFIGURATION_FLAG}={posixpath.join(self.inside(directory), CONFIGURATION)}"
            key = "args" if self.has_args else "command"
            document = document.with_item(("spec", "containers", self.container, key), flag)
        return document.with_value(("metadata", "annotations", FINGERPRINT), _fingerprint(contents))


def _runs_api_server(container: object) -> bool:
    command: Any = container.get("command") if isinstance(container, Mapping) else None
    return isinstance(command, list) and bool(command) and posixpath.basename(str(command[0])) == PROGRAM


def admission_configuration(directory: str) -> bytes:
    """Return the configuration of the webhook plugins. ``directory`` is the container's path to the kubeconfig."""
    lines = ["apiVersion: apiserver.config.k8s.io/v1", "kind: AdmissionConfiguration", "plugins:"]
    for plugin in _PLUGINS:
        lines += [
            f"- name: {plugin}",
            "  configuration:",
            "    apiVersion: apiserver.config.k8s.io/v1",
            "    kind: WebhookAdmissionConfiguration",
            f"    kubeConfigFile: {json_form(posixpath.join(directory, KUBECONFIG))}",
        ]
    return ("\n".join(lines) + "\n").encode()


def webhook_kubeconfig(directory: str, names: Sequence[str]) -> bytes:
    """Return the kubeconfig with which the API server calls webhooks at these host names, and at no others."""
    lines = ["apiVersion: v1", "kind: Config", "users:"]
    for name in names:
        lines += [
            f"- name: {json_form(name)}",
            "  user:",
            f"    client-certificate: {json_form(posixpath.join(directory, CERTIFICATE))}",
            f"    client-key: {json_form(posixpath.join(directory, KEY))}",
        ]
    return ("\n".join(lines) + "\n").encode()


def _fingerprint(contents: Iterable[bytes]) -> str:
    digest = hashlib.sha256()
    for content in contents:
        digest.update(hashlib.sha256(content).digest())
    return digest.hexdigest()[:16]
