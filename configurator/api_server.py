"""Let kube-apiserver present a client certificate to the admission webhooks.

kube-apiserver reads such certificates from the kubeconfig of its admission plugins, which the file of
``--admission-control-config-file`` names. It loads renewed certificates itself, and the rest only when it starts.
"""

import json
import posixpath
from collections.abc import Sequence
from pathlib import Path

from configurator.errors import FileTrouble
from configurator.files import WantedFile, fingerprint
from configurator.scheduler_container import is_within
from configurator.static_pod import StaticPod

PROGRAM = "kube-apiserver"
CONFIGURATION_FLAG = "admission-control-config-file"

CONFIGURATION = "admission.yaml"
KUBECONFIG = "admission-kubeconfig.yaml"
CERTIFICATE = "api-server.crt"
KEY = "api-server.key"
"""Files in the directory of the configurator's authority."""

_PLUGINS = ("ValidatingAdmissionWebhook", "MutatingAdmissionWebhook")


def uses(pod: StaticPod, directory: Path) -> bool:
    """Return whether this kube-apiserver already reads the configuration in the directory, by an earlier run."""
    configuration = pod.flags.values.get(CONFIGURATION_FLAG)
    return configuration is not None and pod.on_host(configuration) == directory / CONFIGURATION


def present_certificate(pod: StaticPod, directory: Path, names: Sequence[str]) -> list[WantedFile]:
    """Add the flag to kube-apiserver's manifest, and return the configuration and the kubeconfig that it leads to.

    directory  of the host, for the two files
    names      host names at which the API server calls webhooks with the certificate; at others it does not

    Raises FileTrouble if kube-apiserver has another configuration of its admission plugins, or does not see the
    directory.
    """
    inside = _inside(pod, directory)
    configuration, kubeconfig = _admission_configuration(inside), _webhook_kubeconfig(inside, names)
    if not uses(pod, directory):
        if (present := pod.flags.values.get(CONFIGURATION_FLAG)) is not None:
            raise FileTrouble(
                pod.name,
                f"has --{CONFIGURATION_FLAG}={present} already; name the certificate in that file's kubeconfig as "
                "docs/admission.md says, and run this without --api-server",
            )
        pod.set_flag(CONFIGURATION_FLAG, posixpath.join(inside, CONFIGURATION))
    pod.set_fingerprint(fingerprint([configuration, kubeconfig]))
    return [
        WantedFile(path=directory / KUBECONFIG, content=kubeconfig),
        WantedFile(path=directory / CONFIGURATION, content=configuration),
    ]


def _inside(pod: StaticPod, directory: Path) -> str:
    """Return the container's path to a directory of the host. Raises FileTrouble if there is none."""
    for mount in pod.mounts.all:
        if mount.host_path is not None and is_within(str(directory), mount.host_path):
            below = posixpath.relpath(str(directory), posixpath.normpath(mount.host_path))
            path = posixpath.normpath(posixpath.join(mount.path, below))
            if pod.on_host(path) == directory:
                return path
    raise FileTrouble(
        pod.name,
        f"does not mount {directory}, where the certificate for the API server is; name a directory that it mounts "
        "with --pki-dir, such as /etc/kubernetes/pki/gas",
    )


def _admission_configuration(directory: str) -> bytes:
    """Return the configuration of the webhook plugins, for a kubeconfig in this directory of the container."""
    lines = ["apiVersion: apiserver.config.k8s.io/v1", "kind: AdmissionConfiguration", "plugins:"]
    for plugin in _PLUGINS:
        lines += [
            f"- name: {plugin}",
            "  configuration:",
            "    apiVersion: apiserver.config.k8s.io/v1",
            "    kind: WebhookAdmissionConfiguration",
            f"    kubeConfigFile: {json.dumps(posixpath.join(directory, KUBECONFIG), ensure_ascii=False)}",
        ]
    return ("\n".join(lines) + "\n").encode()


def _webhook_kubeconfig(directory: str, names: Sequence[str]) -> bytes:
    lines = ["apiVersion: v1", "kind: Config", "users:"]
    for name in names:
        lines += [
            f'- name: "{name}"',
            "  user:",
            f"    client-certificate: {json.dumps(posixpath.join(directory, CERTIFICATE), ensure_ascii=False)}",
            f"    client-key: {json.dumps(posixpath.join(directory, KEY), ensure_ascii=False)}",
        ]
    return ("\n".join(lines) + "\n").encode()
