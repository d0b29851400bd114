"""kube-controller-manager with the few controllers that a test needs. What the others do, the tests do themselves."""

from __future__ import annotations

from pathlib import Path

from sandbox.certificates import Authority
from tests.e2e.kube_api import KubeApi, write_kubeconfig
from tests.e2e.ports import free_port
from tests.e2e.programs import Program
from tests.e2e.scheduler import is_ready, serving_flags


class ControllerManager:
    """One kube-controller-manager, with all permissions."""

    def __init__(self, directory: Path, binaries: Path, authority: Authority, api: KubeApi) -> None:
        name = "kube-controller-manager"
        self._authority = authority
        self._port = free_port()
        command = [
            str(binaries / name),
            f"--kubeconfig={write_kubeconfig(directory / f'{name}.kubeconfig', api)}",
            "--leader-elect=false",
            *serving_flags(name, authority, self._port),
        ]
        self.program = Program(name, command, log=directory / f"{name}.log")

    def start(self, *controllers: str) -> None:
        """Start it with these controllers only, such as ``persistentvolume-binder-controller``."""
        self.program.start(f"--controllers={','.join(controllers)}")
        self.program.wait_until_healthy(self._port, lambda: is_ready(self._port, self._authority, "/healthz"))
