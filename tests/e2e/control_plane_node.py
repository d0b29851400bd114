"""A control-plane node as kubeadm makes it, as far as kube-scheduler goes: a static pod that a real kubelet runs."""

from __future__ import annotations

import json
import stat
import sys
from pathlib import Path

from ruamel.yaml import YAML

from tests.e2e.admission_cluster import AdmissionCluster
from tests.e2e.cluster import Cluster
from tests.e2e.deployed import DeployedCluster
from tests.e2e.images import write_program_image
from tests.e2e.kube_api import write_kubeconfig
from tests.e2e.node_cell import NodeCell
from tests.e2e.ports import own_address
from tests.e2e.programs import ProgramError
from tests.e2e.waiting import wait_for

REPOSITORY = Path(__file__).parents[2]
STATIC_PODS = "/api/v1/namespaces/kube-system/pods"

_CLUSTER = """\
apiVersion: kubeadm.k8s.io/v1beta4
kind: InitConfiguration
localAPIEndpoint: {{advertiseAddress: 192.0.2.1}}
---
apiVersion: kubeadm.k8s.io/v1beta4
kind: ClusterConfiguration
scheduler:
  extraArgs:
  - name: bind-address
    value: {address}
"""

State = dict[str, tuple[int, int, int, int, bytes]]
"""Path below /etc -> kind and mode, owner, group, number of links, content."""


class ControlPlaneNode:
    """A control-plane node. Its ``/etc`` is a copy of the machine's, so nothing outside of it is written.

    Its kube-scheduler listens on ``address``. `start` it on a node that is ready. Commands run as an administrator of
    the node runs them: as root, in ``/``.
    """

    def __init__(self, cluster: Cluster | DeployedCluster | AdmissionCluster, node: NodeCell, binaries: Path) -> None:
        self._cluster = cluster
        self._node = node
        self._binaries = binaries
        self._runs = 0
        self.address = own_address()
        self.etc = node.directory / "etc"
        self.manifest = self.etc / "kubernetes/manifests/kube-scheduler.yaml"

    def start(self) -> None:
        """Start, and return when kubelet runs the kube-scheduler of the manifest that kubeadm wrote."""
        self._own_etc()
        write_kubeconfig(self.etc / "kubernetes/scheduler.conf", self._cluster.control_plane.scheduler)
        write_kubeconfig(self.etc / "kubernetes/admin.conf", self._cluster.api)
        self._write_manifest()
        self.import_program(self.manifest, "kube-scheduler")
        configuration = self._node.directory / "kubelet.json"
        options = {**json.loads(configuration.read_text()), "staticPodPath": "/etc/kubernetes/manifests"}
        configuration.write_text(json.dumps(options, indent=1))
        self._node.restart_kubelet()
        self.wait_for_scheduler("kubeadm's own", with_configuration=False)

    def run(self, *command: str, seconds: float = 120) -> str:
        """Run a command and return its output. Raises ProgramError if it fails, TimeoutError if it does not end."""
        self._runs += 1
        status = self._node.directory / f"command-{self._runs}.status"
        with_status = ["sh", "-c", '"$@"; echo $? >"$0"', str(status), *command]
        program = self._node.program(f"command-{self._runs}", with_status, env={"PYTHONPATH": str(REPOSITORY)})
        program.start()
        wait_for(f"the end of {command[0]}", lambda: not program.is_running, seconds=seconds, every=0.05)
        if status.read_text() != "0\n":
            raise ProgramError(f"{' '.join(command)} ended with {status.read_text()}{program.log_tail()}")
        return program.log_text()

    def configurator(self, *flags: str) -> str:
        return self.run(sys.executable, "-m", "configurator", *flags)

    def add_host(self, name: str) -> None:
        """Let a name resolve to this machine, also in pods with the host's network."""
        with (self.etc / "hosts").open("a") as hosts:
            hosts.write(f"127.0.0.1 {name}\n")

    def files(self) -> State:
        """Return the state of everything below /etc."""
        found = {}
        for path in sorted(self.etc.rglob("*")):
            status = path.lstat()
            content = path.read_bytes() if stat.S_ISREG(status.st_mode) else b""
            found[str(path.relative_to(self.etc))] = (
                status.st_mode,
                status.st_uid,
                status.st_gid,
                status.st_nlink if stat.S_ISREG(status.st_mode) else 1,
                content,
            )
        return found

    def wait_for_scheduler(self, sentence: str, *, with_configuration: bool) -> None:
        """Wait until the API server shows kube-scheduler's pod running, with a configuration file or without."""

        def runs() -> bool:
            pod = self._cluster.api.find(f"{STATIC_PODS}/kube-scheduler-{self._node.name}")
            if pod is None:
                return False
            has_flag = any(word.startswith("--config=") for word in pod["spec"]["containers"][0]["command"])
            states = pod["status"].get("containerStatuses", ())
            return has_flag == with_configuration and any("running" in each["state"] for each in states)

        try:
            wait_for(f"kube-scheduler, {sentence}", runs, seconds=90, every=0.2)
        except TimeoutError as error:
            raise ProgramError(f"{error}\n{self._scheduler_log()}") from None

    def _scheduler_log(self) -> str:
        """Return the last lines of the log of each start."""
        files = (self._node.directory / "log/pods").glob("kube-system_kube-scheduler-*/kube-scheduler/*.log")
        return "\n".join(f"{file.parent.parent.name}\n{file.read_text()[-3000:]}" for file in sorted(files))

    def _own_etc(self) -> None:
        self.run("cp", "--archive", "/etc", str(self.etc))
        self.run("rm", "-rf", str(self.etc / "kubernetes"), str(self.etc / "certs"))
        self.run("mount", "--bind", str(self.etc), "/etc")
        (self.etc / "kubernetes/manifests").mkdir(parents=True)

    def _write_manifest(self) -> None:
        """Let the kubeadm of the same release write the manifest, with an address of this run's own."""
        self.kubeadm(_CLUSTER.format(address=self.address), "control-plane scheduler")

    def kubeadm(self, configuration: str, *phases: str) -> None:
        """Run phases of ``kubeadm init`` of the same release."""
        program = str(self._binaries / "kubeadm")
        version = self.run(program, "version", "-o", "short").split()[-1]
        file = self._node.directory / "kubeadm.yaml"
        file.write_text(f"{configuration}kubernetesVersion: {version}\n")
        for phase in phases:
            self.run(program, "init", "phase", *phase.split(), "--config", str(file))

    def import_program(self, manifest: Path, name: str) -> None:
        """Import a built program as the image of a manifest."""
        image = YAML(typ="safe").load(manifest.read_text())["spec"]["containers"][0]["image"]
        archive = self._node.directory / f"{name}.tar"
        write_program_image(archive, image, self._binaries / name)
        self._node.containerd.import_image(archive)
