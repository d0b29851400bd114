"""Read kube-scheduler's static pod manifest, and add what the extender needs."""

from __future__ import annotations

import posixpath
from dataclasses import dataclass
from pathlib import Path

from configurator.errors import ConfiguratorError, NotAScheduler
from configurator.kubernetes_version import KubernetesVersion
from configurator.scheduler_container import CONFIG, is_within
from configurator.static_pod import StaticPod
from configurator.yaml_document import YamlDocument

PROGRAM = "kube-scheduler"
CERTIFICATES_IN_POD = "/host/certs"
CONFIG_VOLUME = "schedulerconfig"
CERTIFICATES_VOLUME = "certdir"
DNS_POLICY = "ClusterFirstWithHostNet"  # lets a pod in the host's network resolve the name of the extender's Service

KUBECONFIG_FLAGS = ("kubeconfig", "authentication-kubeconfig", "authorization-kubeconfig")
"""Flags that name files without which kube-scheduler does not start."""


@dataclass(frozen=True, slots=True)
class SchedulerManifest:
    pod: StaticPod
    version: KubernetesVersion

    @classmethod
    def read(cls, document: YamlDocument, version: KubernetesVersion | None = None) -> SchedulerManifest:
        """Read a manifest. Raises NotAScheduler, and ConfiguratorError if neither image nor caller has a version."""
        pod = StaticPod.read(document, PROGRAM, NotAScheduler)
        if pod.container.image is None:
            raise NotAScheduler(pod.name, "names no image for kube-scheduler: is it complete?")
        if not pod.spec.host_network:
            raise NotAScheduler(pod.name, "does not say hostNetwork: true, as a control plane's does: is it complete?")
        _refuse_missing_mounts(pod)
        return cls(pod, version or KubernetesVersion.of_image(pod.container.image, name=pod.name))

    @property
    def configuration(self) -> str | None:
        """The value of ``--config``, a path in the container."""
        return self.pod.flags.values.get(CONFIG)

    def certificates(self, volume: str | None = None) -> Path | None:
        """Return the host's directory that is mounted where the extender's configuration looks for certificates.

        volume  the name that the volume must have; None for any
        """
        for mount in self.pod.mounts.all:
            is_wanted = mount.path == CERTIFICATES_IN_POD and volume in (None, mount.volume.name)
            if is_wanted and mount.host_path is not None:
                return Path(mount.host_path)
        return None

    @property
    def has_own_configuration(self) -> bool:
        """True if ``--config`` names a file that neither the configurator nor the original has mounted."""
        if self.configuration is None:
            return False
        wanted = posixpath.normpath(self.configuration)
        return not any(
            each.volume.name == CONFIG_VOLUME and each.path == wanted and each.host_path is not None
            for each in self.pod.mounts.all
        )

    def add_extender(self, *, configuration: Path, certificates: Path, fingerprint: str) -> None:
        """Add configuration file, certificates and DNS policy to the document, and change nothing else.

        configuration, certificates  a file and a directory of the host
        fingerprint                  digest of what kube-scheduler reads from them

        Raises ConfiguratorError if that cannot be done.
        """
        if self.configuration is None or self.pod.on_host(self.configuration) != configuration:
            self.pod.set_flag(CONFIG, str(configuration))
            if self.pod.on_host(str(configuration)) != configuration:
                self._mount(CONFIG_VOLUME, str(configuration), configuration, "File")
        if self.certificates() != certificates:
            self._mount(CERTIFICATES_VOLUME, CERTIFICATES_IN_POD, certificates, "Directory")
        self.pod.document.set(("spec", "dnsPolicy"), DNS_POLICY)
        self.pod.set_fingerprint(fingerprint)

    def _mount(self, name: str, inside: str, on_host: Path, kind: str) -> None:
        document = self.pod.document
        taken = next((each for each in self.pod.volume_mounts if posixpath.normpath(each.mount_path) == inside), None)
        index = next((place for place, each in enumerate(self.pod.volumes) if each.name == name), None)
        if taken is not None and taken.name == name and index is not None:
            # An earlier run added it: only the path on the host changes.
            document.set(("spec", "volumes", index, "hostPath", "path"), str(on_host))
            return
        if taken is not None:
            raise ConfiguratorError(
                f"{document.name} mounts {taken.name!r} at {inside}, where {on_host} must be mounted"
            )
        if index is not None:
            raise ConfiguratorError(
                f"{document.name} uses the volume name {name!r} for something else; rename it, and run again"
            )
        document.append(self.pod.path_to("volumeMounts"), {"mountPath": inside, "name": name, "readOnly": True})
        document.append(("spec", "volumes"), {"hostPath": {"path": str(on_host), "type": kind}, "name": name})


def _refuse_missing_mounts(pod: StaticPod) -> None:
    """Raise NotAScheduler for a manifest that lacks volumes or its kubeconfig's mount, since it may be cut off."""
    names = {volume.name for volume in pod.volumes}
    for mount in pod.volume_mounts:
        if mount.name not in names:
            raise NotAScheduler(pod.name, f"mounts {mount.name!r}, which is not among its volumes: is it complete?")
    for flag in KUBECONFIG_FLAGS:
        given = pod.flags.values.get(flag)
        if given is not None and not any(is_within(given, mount.mount_path) for mount in pod.volume_mounts):
            raise NotAScheduler(pod.name, f"has --{flag}={given[:200]}, which it does not mount: is it complete?")
