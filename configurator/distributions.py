"""Recognise distributions that write kube-scheduler's manifest themselves, or run it in no pod, and say what to do."""

from collections.abc import Callable
from pathlib import Path

from configurator.errors import ConfiguratorError, FileTrouble
from configurator.scheduler_container import CONFIG
from configurator.scheduler_manifest import CERTIFICATES_IN_POD, PROGRAM, SchedulerManifest

RKE2_MANIFEST = Path("/var/lib/rancher/rke2/agent/pod-manifests/kube-scheduler.yaml")
K3S = Path("/var/lib/rancher/k3s/server")
_CHART = "its kube-scheduler is not a pod; use the chart with scheduler.enabled=true: docs/clusters.md"
_SIGNS = {
    RKE2_MANIFEST: f"RKE2 has it at {RKE2_MANIFEST}: name that with -m",
    K3S: f"this is k3s, {_CHART}",
    Path("/var/lib/k0s/bin"): f"this is k0s, {_CHART}",
    Path("/var/snap/microk8s"): f"this is MicroK8s, {_CHART}",
}
"""A file or directory of each distribution, and how its kube-scheduler can call the extender."""


def no_manifest(manifest: Path, exists: Callable[[Path], bool]) -> FileTrouble:
    usual = "run this on a control-plane node, or name kube-scheduler's static pod manifest with -m"
    advice = next((advice for sign, advice in _SIGNS.items() if exists(sign)), usual)
    return FileTrouble(manifest, f"does not exist; {advice}")


def is_generated(manifest: Path) -> bool:
    """Return whether RKE2 writes this manifest, which it does again at each start."""
    return manifest.parts[-4:] == RKE2_MANIFEST.parts[-4:]


def check_generated(manifest: Path, host: str, *, api_server: bool) -> None:
    """Refuse what a manifest that RKE2 writes cannot have. ``host`` is that of the extender's URL."""
    if api_server:
        raise ConfiguratorError(f"RKE2 writes the manifest beside {manifest} again: leave out --api-server")
    if host.endswith((".svc", ".cluster.local")):
        raise ConfiguratorError(
            f"RKE2's kube-scheduler cannot resolve {host}: name the Service's address, --url=https://ADDRESS:9001; "
            "kubectl get service gas-service --output=jsonpath={.spec.clusterIP} shows it"
        )


def settings(manifest: SchedulerManifest, *, configuration: Path, certificates: Path) -> str:
    """Return the lines with which RKE2 writes the manifest that is needed; empty if it has written it."""
    lines = []
    if manifest.configuration is None or manifest.pod.on_host(manifest.configuration) != configuration:
        lines += [f"{PROGRAM}-arg:", f"  - {CONFIG}={configuration}"]
    if manifest.certificates() != certificates:
        lines += [f"{PROGRAM}-extra-mount:", f"  - {certificates}:{CERTIFICATES_IN_POD}:ro"]
    return "\n".join(lines)
