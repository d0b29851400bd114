"""containerd in a cell: it runs the containers of a real kubelet and shows how it created them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.e2e.cell import Cell
from tests.e2e.images import PAUSE, write_images
from tests.e2e.programs import ProgramError
from tests.e2e.waiting import wait_for

SOCKET = "/run/containerd/containerd.sock"

_CONFIGURATION = """\
version = 2
root = "{directory}/containerd"
state = "/run/containerd"
[grpc]
  address = "{socket}"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{pause}"
  # Without CAP_SYS_RESOURCE, as in many machines inside machines, no other value can be set.
  restrict_oom_score_adj = true
  netns_mounts_under_state_dir = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "{directory}/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        SystemdCgroup = false
"""

_NETWORK = {"cniVersion": "0.4.0", "name": "e2e", "plugins": [{"type": "loopback"}]}
"""A network that makes the node ready and changes nothing on the machine. Pods must use the host's network."""


class Containerd:
    """containerd; call `start` in a cell that runs. It ends with the cell."""

    def __init__(self, cell: Cell) -> None:
        self._cell = cell
        configuration = cell.directory / "containerd.toml"
        configuration.write_text(_CONFIGURATION.format(directory=cell.directory, socket=SOCKET, pause=PAUSE.name))
        networks = cell.directory / "cni"
        networks.mkdir(exist_ok=True)
        (networks / "10-e2e.conflist").write_text(json.dumps(_NETWORK))
        self.program = cell.program("containerd", ["containerd", "--config", str(configuration)])

    def start(self) -> None:
        """Start, and return when it responds and has the images."""
        self.program.start()
        wait_for("containerd", self._answers, seconds=20, every=0.05)
        for archive in write_images(self._cell.directory):
            self.import_image(archive)

    def import_image(self, archive: Path) -> None:
        """Import an archive in the form of ``docker save``. Pods use its name with ``imagePullPolicy: Never``."""
        self._ctr("images", "import", str(archive))

    def tag_image(self, name: str, other: str) -> None:
        """Give an image a second name, in full: ``docker.io/library/busybox:1.37`` is what pods call busybox:1.37."""
        self._ctr("images", "tag", name, other)

    def specification(self, container_id: str) -> dict[str, Any]:
        """Return the OCI runtime specification of a container, running or ended."""
        specification: dict[str, Any] = json.loads(self._ctr("containers", "info", container_id))["Spec"]
        return specification

    def execute(self, container_id: str, *command: str) -> str:
        """Return the output of a command with the files and the devices of a running container.

        Raises ProgramError if the command fails. ``ctr tasks exec`` is not used, because containerd 1.6 sometimes loses
        the output of a short command.
        """
        pid = self.pid(container_id)
        cgroups = [line.split(":", 2) for line in self._cell.run("cat", f"/proc/{pid}/cgroup").splitlines()]
        # The rules for devices are those of a hierarchy of their own, or, with version 2 alone, of the only one.
        path = next((path for _, names, path in cgroups if names == "devices"), None)
        if path is not None:
            processes = f"/sys/fs/cgroup/devices{path}/cgroup.procs"
        else:
            processes = f"/sys/fs/cgroup{cgroups[0][2]}/cgroup.procs"
        enter = ["nsenter", f"--target={pid}", "--mount", "--", *command]
        return self._cell.run("sh", "-c", 'echo $$ >"$0" && exec "$@"', processes, *enter)

    def kill(self, container_id: str) -> None:
        """Send SIGKILL to the first process of a running container. Raises ProgramError if it does not run."""
        self._cell.run("kill", "-9", str(self.pid(container_id)))

    def pid(self, container_id: str) -> int:
        """Return the process id, in the cell, of a running container. Raises ProgramError if it does not run."""
        for line in self._ctr("tasks", "list").splitlines()[1:]:
            found, pid, state = line.split()[:3]
            if found == container_id and state == "RUNNING":
                return int(pid)
        raise ProgramError(f"no container {container_id} is running")

    def _answers(self) -> bool:
        if not self.program.is_running:
            raise ProgramError(f"containerd ended instead of answering\n{self.program.log_tail()}")
        try:
            self._ctr("version")
        except ProgramError:
            return False
        return True

    def _ctr(self, *arguments: str) -> str:
        return self._cell.run("ctr", "--address", SOCKET, "--namespace", "k8s.io", *arguments)
