"""A control-plane node's files in a temporary directory, and the configurator at work on them."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from configurator.flags import parse_flags
from configurator.program import run

KUBEADM = Path(__file__).with_name("kubeadm")
RELEASES = tuple(sorted((path.name for path in KUBEADM.iterdir() if path.is_dir()), key=lambda name: int(name[2:])))
"""Minor releases of which there is a manifest that real kubeadm wrote."""

NEWEST = RELEASES[-1]
NOW = datetime(2026, 5, 4, 12, 0, 0, tzinfo=UTC)

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
