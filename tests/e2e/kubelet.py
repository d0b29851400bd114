"""A real kubelet in a cell. It registers its node, and can be stopped and started again."""

from __future__ import annotations

import json
from pathlib import Path

from tests.e2e.cell import Cell
from tests.e2e.cgroups import CgroupRoot
from tests.e2e.containerd import SOCKET
from tests.e2e.kube_api import KubeApi, write_kubeconfig
from tests.e2e.ports import free_port
from tests.e2e.programs import ProgramError
from tests.e2e.waiting import wait_for

_NOTHING_LEFT = "0%"


class Kubelet:
    """kubelet; call `start` when containerd runs. It ends with the cell."""

    def __init__(self, cell: Cell, binaries: Path, api: KubeApi, cgroups: CgroupRoot, *, node: str) -> None:
        self.device_plugins = cell.kubelet_directory / "device-plugins"
        self.pod_resources = cell.kubelet_directory / "pod-resources" / "kubelet.sock"
        self._api = api
        self._node = node
        # With a user of its own the API server's authorizer of nodes would refuse the first statuses of pods that
        # the tests create on the node: it learns of such a pod only after kubelet does.
        kubeconfig = write_kubeconfig(cell.directory / "kubelet.kubeconfig", api)
        self._configuration = cell.directory / "kubelet.json"
        self._configuration.write_text(json.dumps(_configuration(cell, cgroups), indent=1))
        options = {
            "config": str(self._configuration),
            "kubeconfig": str(kubeconfig),
            "hostname-override": node,
            "cert-dir": str(cell.directory / "kubelet-pki"),
        }
        command = [str(binaries / "kubelet"), *(f"--{name}={value}" for name, value in options.items())]
        self._command = command
        self._cell = cell
        self.program = cell.program("kubelet", command)

    def start(self, *, seconds: float = 60) -> None:
        """Start, and return when its node is ready and plugins can register."""
        before = self.registration_socket()
        self.program.start()
        try:
            wait_for("kubelet's socket", lambda: self._changed(before), seconds=seconds, every=0.05)
            wait_for(f"the node {self._node} ready", self._is_ready, seconds=seconds, every=0.05)
        except TimeoutError as error:
            raise ProgramError(f"{error}\n{self.program.log_tail()}") from None

    def use_runtime(self, socket: str) -> None:
        """Use another socket of the container runtime, given as seen in the cell, from the next start on."""
        self.configure(containerRuntimeEndpoint=f"unix://{socket}")

    def use_root(self, directory: Path) -> None:
        """Use another ``--root-dir`` from the next start on. The directory of device plugins stays where it is."""
        self.pod_resources = directory / "pod-resources" / "kubelet.sock"
        self.program = self._cell.program("kubelet", [*self._command, f"--root-dir={directory}"])

    def configure(self, **settings: object) -> None:
        """Change fields of KubeletConfiguration from the next start on."""
        configuration = json.loads(self._configuration.read_text()) | settings
        self._configuration.write_text(json.dumps(configuration, indent=1))

    def registration_socket(self) -> tuple[int, int] | None:
        """Return inode and time of the socket at which plugins register; file systems reuse inode numbers.

        None if there is none. The socket remains when the kubelet that created it ends.
        """
        socket = self.device_plugins / "kubelet.sock"
        if not socket.exists():
            return None
        found = socket.stat()
        return found.st_ino, found.st_ctime_ns

    def _changed(self, before: tuple[int, int] | None) -> bool:
        if not self.program.is_running:
            raise ProgramError(f"kubelet ended instead of serving\n{self.program.log_tail()}")
        return self.registration_socket() not in (None, before)

    def _is_ready(self) -> bool:
        try:
            node = self._api.find(f"/api/v1/nodes/{self._node}")
        except OSError:  # a kube-apiserver that this kubelet runs is not up yet
            return False
        if node is None:
            return False
        return any(c["type"] == "Ready" and c["status"] == "True" for c in node["status"].get("conditions", ()))


def _configuration(cell: Cell, cgroups: CgroupRoot) -> dict[str, object]:
    resolver = cell.directory / "resolv.conf"
    resolver.write_text("nameserver 127.0.0.1\n")
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        # No test calls kubelet's HTTP server: container logs are files, and the sockets for plugins work without it.
        "enableServer": False,
        "healthzBindAddress": "127.0.0.1",
        "healthzPort": free_port(),
        "authentication": {"anonymous": {"enabled": False}, "webhook": {"enabled": False}},
        "authorization": {"mode": "AlwaysAllow"},
        "containerRuntimeEndpoint": f"unix://{SOCKET}",
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{cgroups.name}",
        "failSwapOn": False,
        "failCgroupV1": False,
        # Otherwise it writes chains into the machine's iptables.
        "makeIPTablesUtilChains": False,
        "enableControllerAttachDetach": False,
        "resolvConf": str(resolver),
        "evictionHard": {
            "memory.available": _NOTHING_LEFT,
            "nodefs.available": _NOTHING_LEFT,
            "nodefs.inodesFree": _NOTHING_LEFT,
            "imagefs.available": _NOTHING_LEFT,
            "imagefs.inodesFree": _NOTHING_LEFT,
        },
        "imageGCHighThresholdPercent": 100,
        "imageGCLowThresholdPercent": 99,
        "nodeStatusUpdateFrequency": "1s",
        "logging": {"verbosity": 3},
    }
