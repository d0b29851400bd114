"""A control-plane node's files in a temporary directory, and the configurator at work on them."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from configurator.certificates import Pair, read_pair
from configurator.flags import parse_flags
from configurator.program import run
from configurator.yaml_document import YamlDocument

KUBEADM = Path(__file__).with_name("kubeadm")
RELEASES = tuple(sorted((path.name for path in KUBEADM.iterdir() if path.is_dir()), key=lambda name: int(name[2:])))
"""Minor releases of which there is a manifest that real kubeadm wrote."""

NEWEST = RELEASES[-1]
NOW = datetime(2026, 5, 4, 12, 0, 0, tzinfo=UTC)

SERVICE = "gas-service.default.svc.cluster.local"
ORIGINAL_WITH_ANOTHER = """\
apiVersion: kubescheduler.config.k8s.io/XVERSIONX
kind: KubeSchedulerConfiguration
clientConnection:
  kubeconfig: /etc/kubernetes/scheduler.conf
extenders:
  - urlPrefix: "https://other-service.default.svc.cluster.local:9001"
    prioritizeVerb: "scheduler/prioritize"
    filterVerb: "scheduler/filter"
    weight: 1
    enableHTTPS: true
    managedResources:
      - name: "telemetry/scheduling"
        ignoredByScheduler: true
    ignorable: true
    tlsConfig:
      insecure: false
      certFile: "/host/certs/client.crt"
      keyFile: "/host/certs/client.key"
  - urlPrefix: "https://gas-service.default.svc.cluster.local:9001"
    filterVerb: "scheduler/filter"
    bindVerb: "scheduler/bind"
    weight: 1
    enableHTTPS: true
    managedResources:
      - name: "gpu.intel.com/i915"
        ignoredByScheduler: false
    ignorable: true
    tlsConfig:
      insecure: false
      certFile: "/host/certs/client.crt"
      keyFile: "/host/certs/client.key"
    nodeCacheCapable: true
"""
IN_USE = """\
# ours since 2021
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:            # two of them
- schedulerName: default-scheduler
- schedulerName: packing
  pluginConfig:
  - name: NodeResourcesFit
    args: {scoringStrategy: {type: MostAllocated}}
extenders:
- urlPrefix: http://127.0.0.1:8888/
  filterVerb: filter
  managedResources: [{name: example.com/disk}]
  nodeCacheCapable: true
parallelism: 8
"""


State = dict[str, tuple[str, int, int, int, bytes]]
"""Path -> kind, mode, owner, group, content."""


def kubeadm_manifest(release: str) -> str:
    return (KUBEADM / release / "kube-scheduler.yaml").read_text()


class ControlPlaneFiles:
    """``ROOT/etc/kubernetes`` and ``ROOT/etc/certs``; the manifest is kubeadm's until a test writes another."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.etc = root / "etc/kubernetes"
        self.manifests = self.etc / "manifests"
        self.manifest = self.manifests / "kube-scheduler.yaml"
        self.configuration = self.etc / "scheduler-config.yaml"
        self.certificates = root / "etc/certs"
        self.own = self.etc / "pki/gas"
        self.said: list[str] = []
        self.manifests.mkdir(parents=True)
        self.write_manifest(kubeadm_manifest(NEWEST))
        self.manifest.chmod(0o600)

    def write_manifest(self, text: str) -> None:
        self.manifest.write_bytes(text.encode())

    def run(
        self,
        *more: str,
        user: int = 0,
        now: datetime = NOW,
        coloured: bool = False,
        places: bool = True,
        said: list[str] | None = None,
    ) -> str:
        """Run the configurator with the default directories below ROOT and return its output. Raises what it raises.

        said  gets each piece of the output at once
        """
        said = [] if said is None else said
        named = [f"-m={self.manifest}", f"-b={self.etc}", f"--pki-dir={self.own}"]
        if places:
            named += [f"-d={self.etc}", f"-cert-dir={self.certificates}"]
        run(parse_flags([*named, *more]), user=user, now=now, say=said.append, coloured=coloured)
        return "\n".join(said)

    def state(self) -> State:
        """Everything below ROOT."""
        return {str(path.relative_to(self.root)): _state(path) for path in _below(self.root)}

    def settings(self) -> State:
        """Everything but the backups."""
        return {path: state for path, state in self.state().items() if "/backup_" not in path}

    def backups(self) -> list[Path]:
        return sorted(self.etc.glob("backup_*"))


def _below(root: Path) -> Iterator[Path]:
    yield from sorted(root.rglob("*"))


def _state(path: Path) -> tuple[str, int, int, int, bytes]:
    found = path.lstat()
    content = b""
    if stat.S_ISLNK(found.st_mode):
        content = os.fsencode(path.readlink())
    elif stat.S_ISREG(found.st_mode):
        content = path.read_bytes()
    return stat.filemode(found.st_mode)[0], stat.S_IMODE(found.st_mode), found.st_uid, found.st_gid, content


def with_words(*words: str, text: str | None = None) -> str:
    """kubeadm's manifest, or another, with further flags."""
    lines = "".join(f"    - {word}\n" for word in words)
    return (text or kubeadm_manifest(NEWEST)).replace("    image:", f"{lines}    image:", 1)


def configuration(files: ControlPlaneFiles) -> YamlDocument:
    return YamlDocument("configuration", files.configuration.read_bytes())


def use_configuration(files: ControlPlaneFiles, path: Path, *more: str, text: str = IN_USE) -> None:
    """Make kube-scheduler one that has a configuration already, and further flags."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    manifest = with_words(f"--config={path}", *more)
    manifest = manifest.replace(
        "    volumeMounts:\n", f"    volumeMounts:\n    - mountPath: {path}\n      name: mine\n"
    )
    manifest = manifest.replace("  volumes:\n", f"  volumes:\n  - hostPath:\n      path: {path}\n    name: mine\n")
    files.write_manifest(manifest)


def write_pair(directory: Path, name: str, pair: Pair) -> tuple[Path, Path]:
    directory.mkdir(parents=True, exist_ok=True)
    paths = directory / f"{name}.crt", directory / f"{name}.key"
    paths[0].write_bytes(pair.chain)
    paths[1].write_bytes(pair.key_text)
    return paths


def load(certificate: Path, key: Path) -> Pair:
    return read_pair(certificate, certificate.read_bytes(), key, key.read_bytes())


def added(before: str, after: str) -> list[str]:
    """Lines that are new; fails when any old line went or moved."""
    old = before.splitlines(keepends=True)
    new = []
    rest = iter(old)
    expected = next(rest, None)
    for line in after.splitlines(keepends=True):
        if line == expected:
            expected = next(rest, None)
        else:
            new.append(line)
    assert expected is None, f"{expected!r} is gone"
    return new
