"""A node with everything on it: fake cards, a kubelet in this process, and the real device plugin as a process."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from gas.sandbox.api_client import ApiClient
from gas.sandbox.child_process import running_child
from gas.sandbox.containers import Containers
from gas.sandbox.fake_sysfs import write_tree
from gas.sandbox.inside_pod import InsidePod, inside_pod
from gas.sandbox.kubelet import Kubelet
from gas.sandbox.node_hardware import Hardware
from gas.sandbox.pod_time import KubeletPace

LONGEST_SOCKET = "n999/device-plugins/gpu.intel.com-i915.sock"
"""The longest path of a socket of such a node, from where its directory is."""


class PluginNode:
    """One node of the sandbox.

    directory   for its cards, sockets and logs; its path must be short
    kubeconfig  how its plugin finds the API server
    """

    def __init__(
        self,
        client: ApiClient,
        name: str,
        hardware: Hardware,
        pace: KubeletPace,
        *,
        directory: Path,
        kubeconfig: Path,
    ) -> None:
        self.name = name
        self._hardware = hardware
        self._directory = directory
        self._kubeconfig = kubeconfig
        self._containers = Containers()
        self._kubelet = Kubelet(client, name, directory, containers=self._containers, pace=pace)

    async def run(self) -> None:
        """Until cancelled. Raises ProcessEnded when its plugin ends, in an ExceptionGroup."""
        tree = self._directory / "tree"
        write_tree(tree, self._hardware.gpus)
        options = {
            "prefix": tree,
            "kubelet-dir": self._directory,
            "node-name": self.name,
            "shared-dev-num": self._hardware.shared_dev_num,
            "kubeConfig": self._kubeconfig,
            "metrics-address": "127.0.0.1",
            "metrics-port": 0,
        }
        arguments = [f"--{name}={value}" for name, value in options.items()]
        environment = {"GPU_MEMORY_OVERRIDE": str(self._hardware.memory_override or ""), "GPU_MEMORY_RESERVED": ""}
        called = f"the plugin of node {self.name}"
        async with (
            asyncio.TaskGroup() as tasks,
            running_child(
                called, "gas.plugin", arguments, self._directory / "plugin.log", environment=environment
            ) as plugin,
        ):
            kubelet = tasks.create_task(self._kubelet.run())
            try:
                await plugin.until_it_ends()
            finally:
                kubelet.cancel()

    def inside(self, pod: dict[str, Any]) -> InsidePod:
        """What the containers of a pod of this node were started with."""
        return inside_pod(pod, self._containers)
