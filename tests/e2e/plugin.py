"""The device plugin as a process on a real node, started as its DaemonSet starts it, with fake cards."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from pathlib import Path

from sandbox.hardware.fake_sysfs import FakeGpu, write_tree
from tests.e2e.kube_api import KubeApi, write_kubeconfig
from tests.e2e.node_cell import KUBELET_DIRECTORY, NodeCell
from tests.e2e.plain_port import PlainPort
from tests.e2e.ports import free_port
from tests.e2e.waiting import wait_for

_GIVEN = re.compile(r' resource=\S+ ids=(?P<ids>\S+) .*?(?:because="(?P<because>[^"]*)")?$')


class Plugin:
    """One node's plugin. It can be stopped and started again.

    tree  the root of the fake cards
    port  the plain port

    module, environment  of the process
    """

    def __init__(
        self,
        node: NodeCell,
        account: KubeApi,
        gpus: tuple[FakeGpu, ...],
        *flags: str,
        module: str = "gas.plugin",
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.tree = node.directory / "tree"
        write_tree(self.tree, gpus, character_devices=True)
        self.port = free_port()
        self._plain = PlainPort(self.port)
        options = {
            "kubeConfig": write_kubeconfig(node.directory / "plugin.kubeconfig", account),
            "node-name": node.name,
            "kubelet-dir": KUBELET_DIRECTORY,
            "prefix": self.tree,
            "metrics-address": "127.0.0.1",
            "metrics-port": self.port,
            "v": 4,
        }
        command = [
            sys.executable,
            "-m",
            module,
            *(f"--{name}={value}" for name, value in options.items()),
            *flags,
        ]
        repository = str(Path(__file__).parents[2])
        self.program = node.program(
            "plugin", command, env={"PYTHONUNBUFFERED": "1", "PYTHONPATH": repository, **(environment or {})}
        )
        self._log_start = self.program.log.stat().st_size if self.program.log.exists() else 0

    def start(self, *, seconds: float = 120) -> None:
        """Start, and return when kubelet watches the plugin's devices."""
        self.program.start()
        wait_for("the plugin ready", self.is_ready, seconds=seconds, every=0.05)

    def is_ready(self) -> bool:
        return self._plain.is_ready()

    def metric(self, sample: str) -> float:
        """Return the value of a sample, named with its labels as ``/metrics`` writes it; 0 while there is none."""
        return self._plain.samples().get(sample, 0)

    def causes(self) -> dict[frozenset[str], str]:
        """Return the ids of each Allocate -> why they were a guess or differ from the decision; empty if neither.

        From the log of all starts since this object was created. Of ids allocated again the last time counts.
        """
        with self.program.log.open("rb") as log:
            log.seek(self._log_start)
            lines = log.read().decode(errors="replace").splitlines()
        given = [match for line in lines if (match := _GIVEN.search(line))]
        return {frozenset(match["ids"].split(",")): match["because"] or "" for match in given}

    def plain(self, path: str) -> tuple[int, str]:
        """Return status and text of a GET on the plain port. Raises OSError if the plugin cannot be reached."""
        return self._plain.get(path)
