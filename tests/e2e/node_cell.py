"""A real node: kubelet and containerd in a cell, joined to the control plane of the tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.e2e.cell import Cell, CellProgram
from tests.e2e.cgroups import CgroupRoot
from tests.e2e.containerd import Containerd
from tests.e2e.kube_api import KubeApi, Object
from tests.e2e.kubelet import Kubelet
from tests.e2e.programs import Program

KUBELET_DIRECTORY = Path("/var/lib/kubelet")
"""As programs in the cell see it, and containers that mount it from the host."""


class NodeCell:
    """`start` once, `stop` at the end; kubelet and containerd may go and come back between.

    Pods for it: ``hostNetwork: true``, the image `images.BUSYBOX` and ``imagePullPolicy: Never``.
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
        """Where plugins put their sockets, as seen from outside of the cell."""
        return self.kubelet.device_plugins

    @property
    def pod_resources(self) -> Path:
        """The socket of kubelet's PodResources API, as seen from outside of the cell."""
        return self.kubelet.pod_resources

    def start(self) -> None:
        """Until the node is ready."""
        self.cgroups.make()
        self._cell.start()
        self.containerd = Containerd(self._cell)
        self._started.append(self.containerd.program)
        self.containerd.start()
        self.kubelet = Kubelet(self._cell, self._binaries, self._api, self.cgroups, node=self.name)
        self._started.append(self.kubelet.program)
        self.kubelet.start()

    def stop(self) -> None:
        """At once, with every container."""
        for program in reversed(self._started):
            program.kill()
        self._cell.stop()
        self.cgroups.remove()

    def restart_kubelet(self) -> None:
        """Killed and started; the containers run on. Until the node is ready and plugins can register."""
        self.kubelet.program.kill()
        self.kubelet.start()

    def program(self, name: str, command: Sequence[str], *, env: Mapping[str, str] | None = None) -> CellProgram:
        """A program of the tests that shall see the node's paths; it ends with the node. Not started yet."""
        program = self._cell.program(name, command, env=env)
        self._started.append(program)
        return program

    def log(self, pod: Object, container: str, *, restarts: int = 0) -> str:
        """What a container has printed so far."""
        metadata = pod["metadata"]
        directory = f"{metadata['namespace']}_{metadata['name']}_{metadata['uid']}"
        file = self._cell.pod_logs / directory / container / f"{restarts}.log"
        if not file.exists():
            return ""
        # Each line begins with its time, the stream and F or P: whether the line ends here.
        parts = [line.split(" ", 3) for line in file.read_text().splitlines()]
        return "".join(text + ("\n" if flag == "F" else "") for _, _, flag, text in parts)

    def environment(self, pod: Object, container: str) -> dict[str, str]:
        """Of a container, running or ended: what it was started with."""
        given = self._specification(pod, container)["process"]["env"]
        return dict(entry.split("=", 1) for entry in given)

    def devices(self, pod: Object, container: str) -> list[str]:
        """The paths of the device nodes that a container, running or ended, got besides the ordinary ones; sorted."""
        return sorted(device["path"] for device in self._specification(pod, container)["linux"].get("devices", ()))

    def mounts(self, pod: Object, container: str) -> dict[str, str]:
        """Path in a container, running or ended, and what of the host is there."""
        return {mount["destination"]: mount["source"] for mount in self._specification(pod, container)["mounts"]}

    def execute(self, pod: Object, container: str, *command: str) -> str:
        """What a command prints in a running container, without its environment. Raises ProgramError when it fails."""
        return self.containerd.execute(container_id(pod, container), *command)

    def kill(self, pod: Object, container: str) -> None:
        """End a running container without a word; kubelet starts it again if its pod says so."""
        self.containerd.kill(container_id(pod, container))

    def _specification(self, pod: Object, container: str) -> dict[str, Any]:
        return self.containerd.specification(container_id(pod, container))


def container_id(pod: Object, container: str) -> str:
    """Of the last start of a container, as containerd knows it. Raises KeyError while it was never created."""
    status = pod["status"]
    for found in (*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ())):
        if found["name"] == container and found.get("containerID"):
            return str(found["containerID"]).removeprefix("containerd://")
    raise KeyError(f"pod {pod['metadata']['name']} has no created container {container}")
