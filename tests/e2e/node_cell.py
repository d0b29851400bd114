"""A real node: kubelet and containerd in a cell, joined to the control plane of the tests."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.cell import Cell, CellProgram, missing_for_cells
from tests.e2e.cgroups import CgroupRoot
from tests.e2e.containerd import Containerd
from tests.e2e.kube_api import KubeApi, Object
from tests.e2e.kubelet import Kubelet
from tests.e2e.programs import Program

KUBELET_DIRECTORY = Path("/var/lib/kubelet")
"""kubelet's directory as programs in the cell see it, and containers that mount it from the host."""


_NETWORK = """\
#!/bin/sh
cat >/dev/null
case "$CNI_COMMAND" in
ADD) echo '{"cniVersion": "0.4.0", "interfaces": [{"name": "'"$CNI_IFNAME"'", "sandbox": "'"$CNI_NETNS"'"}],' \\
    '"ips": [{"version": "4", "address": "192.0.2.2/32", "interface": 0}]}' ;;
VERSION) echo '{"cniVersion": "0.4.0", "supportedVersions": ["0.4.0"]}' ;;
esac
"""


class NodeCell:
    """A real node. Call `start` once, `stop` at the end; kubelet and containerd can be restarted meanwhile.

    Pods for it: ``hostNetwork: true`` unless there is a network (`add_network`), the image `images.BUSYBOX` and
    ``imagePullPolicy: Never``.
    """

    def __init__(self, directory: Path, binaries: Path, api: KubeApi, *, name: str = "real-node") -> None:
        self.name = name
        self.directory = directory
        self._api = api
        self._binaries = binaries
        self.cgroups = CgroupRoot()
        self._cell = Cell(directory)
        self._started: list[Program] = []

    @property
    def programs(self) -> list[Program]:
        return list(self._started)

    @property
    def device_plugins(self) -> Path:
        """The directory of the plugins' sockets, as seen from outside of the cell."""
        return self.kubelet.device_plugins

    @property
    def pod_resources(self) -> Path:
        """The socket of kubelet's PodResources API, as seen from outside of the cell."""
        return self.kubelet.pod_resources

    def start(self) -> None:
        """Start, and return when the node is ready."""
        self.cgroups.make()
        self._boot()

    def reboot(self) -> None:
        """Kill all processes of the node, start it again with the same files, and return when the node is ready."""
        self._end()
        # A machine that boots has no cgroups; kubelet would wait 3 s for each container of before.
        self.cgroups.remove()
        self.cgroups.make()
        self._started.clear()
        self._cell = Cell(self.directory)
        self._boot()

    def _boot(self) -> None:
        self._cell.start()
        self.containerd = Containerd(self._cell)
        self._started.append(self.containerd.program)
        self.containerd.start()
        self.kubelet = Kubelet(self._cell, self._binaries, self._api, self.cgroups, node=self.name)
        self._started.append(self.kubelet.program)
        self.kubelet.start()

    def stop(self) -> None:
        """Kill the node with all its containers."""
        self._end()
        self.cgroups.remove()

    def _end(self) -> None:
        for program in reversed(self._started):
            program.kill()
        self._cell.stop()

    def restart_kubelet(self) -> None:
        """Kill kubelet and start it again; the containers keep running. Return when plugins can register."""
        self.kubelet.program.kill()
        self.kubelet.start()

    def program(self, name: str, command: Sequence[str], *, env: Mapping[str, str] | None = None) -> CellProgram:
        """Return a program of the tests that sees the node's paths and ends with the node. It is not started yet."""
        program = self._cell.program(name, command, env=env)
        self._started.append(program)
        return program

    def mount(self, source: Path, target: str) -> None:
        """Mount a directory over another one, for programs of the node that start later."""
        self._cell.run("mount", "--bind", str(source), target)

    def add_network(self) -> None:
        """Let pods have a network of their own, with an address that leads nowhere."""
        plugins = self.directory / "cni-plugins"
        plugins.mkdir()
        shutil.copy("/usr/lib/cni/loopback", plugins)
        (plugins / "leads-nowhere").write_text(_NETWORK)
        (plugins / "leads-nowhere").chmod(0o755)
        self.mount(plugins, "/usr/lib/cni")
        network = {"cniVersion": "0.4.0", "name": "nowhere", "plugins": [{"type": "leads-nowhere"}]}
        (self.directory / "cni/05-nowhere.conflist").write_text(json.dumps(network))

    def log(self, pod: Object, container: str, *, restarts: int = 0) -> str:
        """Return the output of a container so far."""
        metadata = pod["metadata"]
        directory = f"{metadata['namespace']}_{metadata['name']}_{metadata['uid']}"
        file = self._cell.pod_logs / directory / container / f"{restarts}.log"
        if not file.exists():
            return ""
        # Each line begins with its time, the stream and F or P: whether the line ends here.
        parts = [line.split(" ", 3) for line in file.read_text().splitlines()]
        return "".join(text + ("\n" if flag == "F" else "") for _, _, flag, text in parts)

    def environment(self, pod: Object, container: str) -> dict[str, str]:
        """Return the environment that a container, running or ended, was started with."""
        given = self._specification(pod, container)["process"]["env"]
        return dict(entry.split("=", 1) for entry in given)

    def devices(self, pod: Object, container: str) -> list[str]:
        """Return the sorted paths of the extra device nodes of a container, running or ended."""
        return sorted(device["path"] for device in self._specification(pod, container)["linux"].get("devices", ()))

    def mounts(self, pod: Object, container: str) -> dict[str, str]:
        """Return path in a container, running or ended -> the host's path that is mounted there."""
        return {mount["destination"]: mount["source"] for mount in self._specification(pod, container)["mounts"]}

    def execute(self, pod: Object, container: str, *command: str) -> str:
        """Return the output of a command in a running container. Raises ProgramError if it fails."""
        return self.containerd.execute(container_id(pod, container), *command)

    def pid(self, pod: Object, container: str) -> int:
        """Return the process id, in the cell, of a running container."""
        return self.containerd.pid(container_id(pod, container))

    def run(self, *command: str) -> str:
        """Run a command in the cell and return its output. Raises ProgramError if it fails."""
        return self._cell.run(*command)

    def kill(self, pod: Object, container: str) -> None:
        """Kill a running container. kubelet starts it again if its pod's restart policy says so."""
        self.containerd.kill(container_id(pod, container))

    def _specification(self, pod: Object, container: str) -> dict[str, Any]:
        return self.containerd.specification(container_id(pod, container))


@contextmanager
def running_node(binaries: Path, api: KubeApi) -> Iterator[NodeCell]:
    """Run a node. Skip the test if this machine allows none, and fail if kubelet was not built."""
    if (reason := missing_for_cells()) is not None:
        pytest.skip(reason)
    if not (binaries / "kubelet").exists():
        pytest.fail(f"{binaries} does not hold kubelet; run tests/e2e/set-up.sh first")
    # Short, since kubelet's sockets are in it.
    with tempfile.TemporaryDirectory(prefix="gas-node-") as directory:
        node = NodeCell(Path(directory), binaries, api)
        try:
            node.start()
            yield node
        finally:
            node.stop()


def container_id(pod: Object, container: str) -> str:
    """Return containerd's id of the last start of a container. Raises KeyError if it was never created."""
    status = pod["status"]
    for found in (*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ())):
        if found["name"] == container and found.get("containerID"):
            return str(found["containerID"]).removeprefix("containerd://")
    raise KeyError(f"pod {pod['metadata']['name']} has no created container {container}")
