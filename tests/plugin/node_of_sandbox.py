"""A node inside the process: fake cards, the sandbox's kubelet and API server, and a plugin that comes and goes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from gas.cluster.connection import connect
from gas.cluster.objects import MERGE_PATCH
from gas.plugin.assembly import NodeInterfaces, Plugin
from gas.plugin.discovery.card_source import CardSource
from gas.plugin.flags import Environment, parse_flags
from gas.plugin.kubelet.registration import Phase
from gas.plugin.metrics import Metrics
from gas.plugin.parts import PARTS
from gas.vocabularies.protocol import Vocabulary
from sandbox.api.client import ApiClient
from sandbox.api.kinds import EVENTS, NODES, PODS
from sandbox.api.routes import Settings
from sandbox.api.server import ApiServer
from sandbox.hardware.fake_sysfs import FakeGpu, write_tree
from sandbox.kubelet.containers import ContainerDevices, Containers, KubeletPace
from sandbox.kubelet.kubelet import Kubelet
from sandbox.programs import write_kubeconfig
from tests.background import eventually

NODE = "node-1"
_PACE = KubeletPace(init=0.1, stop=0.2)


class SandboxNode:
    """Made by `sandbox_node`.

    tree     the root of the fake cards
    plugin   the running or last plugin
    metrics  of the running or last plugin
    """

    def __init__(self, directory: Path, server: ApiServer, client: ApiClient) -> None:
        self.directory = directory
        self.tree = directory / "tree"
        self.kubelet_dir = directory / "k"
        self.server = server
        self.containers = Containers()
        self._client = client
        self._kubelet: asyncio.Task[None] | None = None
        self._running: asyncio.Task[None] | None = None

    @asynccontextmanager
    async def running_plugin(
        self,
        *flags: str,
        environment: Environment | None = None,
        watched: bool = True,
        api_url: str | None = None,
        vocabularies: Sequence[Vocabulary] | None = None,
        sources: Sequence[CardSource] = (),
    ) -> AsyncIterator[Plugin]:
        """Run a plugin during the block; if ``watched``, the block begins when kubelet counts all that it offers.

        api_url       of another API server than this node's
        vocabularies  None: those of the flags
        sources       of cards; if empty, those of the program
        """
        options = [f"--prefix={self.tree}", f"--kubelet-dir={self.kubelet_dir}", f"--node-name={NODE}", *flags]
        parsed = parse_flags(options, environ={})
        if vocabularies is not None:
            parsed = replace(parsed, vocabularies=tuple(vocabularies))
        self.metrics = Metrics("1", [row for part in PARTS if part.runs_with(parsed) for row in part.metrics])
        kubeconfig = write_kubeconfig(self.directory / "kubeconfig", api_url or self.server.url, token="plugin")
        api = await connect(str(kubeconfig)) if parsed.resource_manager else None
        interfaces = NodeInterfaces(cards=lambda *_: sources) if sources else NodeInterfaces()
        async with AsyncExitStack() as stack:
            if api is not None:
                stack.push_async_callback(api.close)
            plugin = Plugin(api, parsed, environment or Environment(), self.metrics, interfaces=interfaces)
            task = asyncio.create_task(plugin.run())
            try:
                if watched:
                    await eventually(lambda: task.done() or plugin.readiness.why_not() is None)
                    await eventually(lambda: task.done() or self._counts_all(plugin))
                yield plugin
                assert not task.done(), task
            finally:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

    def _counts_all(self, plugin: Plugin) -> bool:
        """Return whether kubelet has written that the node has some of every resource that it was offered."""
        offered = [
            server.resource
            for server, registration in plugin.registrations.items()
            if registration.state is Phase.WATCHED
        ]
        counts = self.node()["status"].get("allocatable", {})
        return bool(offered) and all(counts.get(resource, "0") != "0" for resource in offered)

    async def start_kubelet(self) -> None:
        """Start kubelet and wait until plugins can register."""
        socket = self.kubelet_dir / "device-plugins/kubelet.sock"
        before = socket.stat().st_ctime_ns if socket.exists() else 0
        kubelet = Kubelet(self._client, NODE, self.kubelet_dir, containers=self.containers, pace=_PACE)
        self._kubelet = asyncio.create_task(kubelet.run())
        await eventually(lambda: socket.exists() and socket.stat().st_ctime_ns != before)

    async def stop_kubelet(self) -> None:
        if self._kubelet is not None:
            self._kubelet.cancel()
            with suppress(asyncio.CancelledError):
                await self._kubelet
            self._kubelet = None

    def node(self) -> dict[str, Any]:
        return dict(self.server.api.get(NODES, None, NODE).value)

    def allocatable(self) -> dict[str, str]:
        """Return the allocatable amounts of GPU resources, by name without prefix."""
        found = self.node()["status"].get("allocatable", {})
        return {
            name.removeprefix("gpu.intel.com/"): amount
            for name, amount in found.items()
            if name.startswith("gpu.intel.com/") and amount != "0"
        }

    def create(self, pod: dict[str, Any]) -> dict[str, Any]:
        """Create a pod, as `pod_json` builds it, on this node."""
        pod["metadata"].pop("uid", None)
        for each in (*pod["spec"].get("initContainers", ()), *pod["spec"]["containers"]):
            each.setdefault("image", "example/main:1")
        pod["spec"]["nodeName"] = NODE
        return dict(self.server.api.create(PODS, pod["metadata"]["namespace"], pod).value)

    def pod(self, name: str) -> dict[str, Any]:
        return dict(self.server.api.get(PODS, "default", name).value)

    def annotate(self, name: str, annotations: dict[str, str]) -> None:
        body = json.dumps({"metadata": {"annotations": annotations}}).encode()
        self.server.api.patch(PODS, "default", name, (MERGE_PATCH, body))

    def annotate_node(self, annotations: dict[str, str]) -> None:
        self._patch_node({"annotations": annotations})

    def label_node(self, labels: dict[str, str]) -> None:
        self._patch_node({"labels": labels})

    def _patch_node(self, metadata: dict[str, Any]) -> None:
        self.server.api.patch(NODES, None, NODE, (MERGE_PATCH, json.dumps({"metadata": metadata}).encode()))

    def delete(self, name: str) -> None:
        self.server.api.delete(PODS, "default", name, {"gracePeriodSeconds": 0})

    def annotations(self, name: str) -> dict[str, str]:
        return dict(self.pod(name)["metadata"].get("annotations") or {})

    def events(self, about: str) -> list[tuple[str, str]]:
        """Return reason and message of every event about an object of this name."""
        found = [stored.value for stored in self.server.api.storage.objects(EVENTS.plural)]
        return [(event["reason"], event["message"]) for event in found if event["involvedObject"]["name"] == about]

    def event_counts(self, reason: str) -> list[int]:
        """Return how often each event of a reason was posted."""
        found = [stored.value for stored in self.server.api.storage.objects(EVENTS.plural)]
        return [event["count"] for event in found if event["reason"] == reason]

    def given(self, pod: dict[str, Any], container: str = "main") -> ContainerDevices | None:
        """Return the devices that a container was started with; None before."""
        run = self.containers.get(pod["metadata"]["uid"], container)
        return run.devices if run is not None else None

    def cards(self, pod: dict[str, Any], container: str = "main") -> list[str] | None:
        """Return the cards whose device nodes a container was started with; None before."""
        given = self.given(pod, container)
        if given is None:
            return None
        names = (path.removeprefix("/dev/dri/") for path in given.device_nodes)
        return sorted(name for name in names if name.startswith("card"))

    async def got(self, pod: dict[str, Any], container: str = "main") -> list[str]:
        """Wait until the container has started, and return its cards."""
        await eventually(lambda: self.cards(pod, container) is not None)
        return self.cards(pod, container) or []

    def count(self, sample: str, **labels: str) -> float:
        """Return a metric of the running or last plugin, named without ``gas_plugin_``."""
        return self.metrics.registry.get_sample_value(f"gas_plugin_{sample}", labels) or 0.0


@asynccontextmanager
async def sandbox_node(*gpus: FakeGpu, kubelet: bool = True) -> AsyncIterator[SandboxNode]:
    """Run a node with these cards; ``kubelet``: whether it runs from the start."""
    with TemporaryDirectory(prefix="gas-") as name:
        tokens = {"kubelet": "kubelet", "plugin": "plugin"}
        async with ApiServer(Settings(tokens=tokens)) as server, ApiClient(server.url, token="kubelet") as client:
            node = SandboxNode(Path(name), server, client)
            write_tree(node.tree, gpus)
            (node.kubelet_dir / "device-plugins").mkdir(parents=True)
            try:
                if kubelet:
                    await node.start_kubelet()
                yield node
            finally:
                await node.stop_kubelet()
