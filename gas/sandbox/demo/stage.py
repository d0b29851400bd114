"""What the demo plays on: a sandbox with scheduler and real extender, and nodes, with or without kubelet and plugin."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import aiohttp

from gas.errors import GasError
from gas.plugin.kubelet.plugin_socket import LONGEST_PATH
from gas.sandbox.api.client import ApiClient, Mirror, Object
from gas.sandbox.api.failure import ApiFailure
from gas.sandbox.api.kinds import NAMESPACES, NODES, PODS
from gas.sandbox.api.server import ApiServer
from gas.sandbox.api.verbs import Api
from gas.sandbox.demo.manifests import NodeManifest, PodManifest
from gas.sandbox.demo.narration import Narration
from gas.sandbox.demo.pod_story import InsidePod, inside_pod
from gas.sandbox.hardware.described_node import Hardware, bare_node
from gas.sandbox.hardware.fake_sysfs import write_tree
from gas.sandbox.kubelet.containers import Containers, KubeletPace
from gas.sandbox.kubelet.kubelet import Kubelet
from gas.sandbox.programs import RunningExtender, running_child, running_extender, write_kubeconfig
from gas.sandbox.scheduler.scheduler import Scheduler

_PREFIX = "gas-sandbox-"
_RANDOM = 8
"""Characters that ``tempfile`` puts behind the prefix."""


class NoShortDirectory(GasError):
    """Nowhere to put the sockets."""

    def __init__(self, tried: list[Path], longest: int) -> None:
        super().__init__(
            f"the sandbox needs a directory for unix sockets whose path has at most {longest} bytes, and that it may "
            f"write to; tried {', '.join(map(str, tried))}. Let TMPDIR name one"
        )


def short_temporary_directory(longest_inside: str) -> TemporaryDirectory[str]:
    """A directory, to be used in ``with``: where temporary files belong, or elsewhere if that path is too long.

    longest_inside  the longest path of a socket in it, relative to it

    Raises NoShortDirectory.
    """
    longest = LONGEST_PATH - len(longest_inside) - len(_PREFIX) - _RANDOM - 2
    tried = [Path(tempfile.gettempdir()), Path("/tmp"), Path("/var/tmp"), Path("/dev/shm")]  # noqa: S108 -- where short
    for parent in tried:
        if len(os.fsencode(parent)) <= longest and os.access(parent, os.W_OK | os.X_OK):
            return TemporaryDirectory(prefix=_PREFIX, dir=parent)
    raise NoShortDirectory(tried, longest)


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


class Stage:
    """The running sandbox, as far as a demo acts on it."""

    def __init__(self, api: Api, extender: RunningExtender, narration: Narration) -> None:
        self.narration = narration
        self.nodes: dict[str, Object] = {}
        """By name, as the API has them."""
        self.plugin_nodes: dict[str, PluginNode] = {}
        self._api = api
        self._extender = extender
        self._news = asyncio.Event()

    def submit(self, pod: PodManifest) -> None:
        """Raises ApiFailure."""
        create_pod(self._api, pod)

    async def tell_troubles(self) -> None:
        """What the extender has against the nodes and the bound pods as they are."""
        books = await self._debug("books")
        for node, problems in books.get("problems", {}).items():
            for problem in problems:
                self.narration.warn(f"node {node}: {problem}")
        for trouble in books.get("trouble", {}).values():
            self.narration.warn(f"pod {trouble['pod']} on {trouble['node']}: {trouble['trouble']}")

    def pod_changed(self, before: Object | None, after: Object | None) -> str | None:
        """Tell it on. Answers the UID of a pod that waits for a reason that is new."""
        self._news.set()
        return self.narration.pod_changed(before, after)

    def node_changed(self, before: Object | None, after: Object | None) -> None:
        """Take it in."""
        self._news.set()
        if after is not None:
            self.nodes[after["metadata"]["name"]] = after

    def inside(self, pod: Object) -> InsidePod:
        """What the containers of a pod have, on one of the nodes with a plugin."""
        return self.plugin_nodes[pod["spec"]["nodeName"]].inside(pod)

    async def tell_refusal(self, uid: str) -> None:
        refusals = await self._debug("refusals")
        self.narration.waits(uid, refusals.get(uid, {}).get("details", {}))
        self._news.set()

    async def until(self, done: Callable[[], bool], *, quiet: float = 0.0, patience: float) -> bool:
        """Whether ``done``, and then no news for ``quiet`` seconds, came true within ``patience`` seconds."""
        try:
            async with asyncio.timeout(patience):
                while True:
                    self._news.clear()
                    try:
                        await asyncio.wait_for(self._news.wait(), quiet if done() else None)
                    except TimeoutError:
                        return True
        except TimeoutError:
            return False

    async def _debug(self, page: str) -> dict[str, Any]:
        """A page of the extender's plain port; empty while it does not answer, of which its end is told elsewhere."""
        patience = aiohttp.ClientTimeout(total=10)
        try:
            async with (
                aiohttp.ClientSession(self._extender.plain_url, timeout=patience) as session,
                session.get(f"/debug/{page}") as answer,
            ):
                answer.raise_for_status()
                found: dict[str, Any] = await answer.json()
                return found
        except (aiohttp.ClientError, TimeoutError):
            return {}


@asynccontextmanager
async def running_stage(
    narration: Narration,
    set_up: Callable[[Api], None],
    flags: Sequence[str],
    *,
    hardware: Mapping[str, Hardware] | None = None,
    pace: KubeletPace | None = None,
) -> AsyncIterator[Stage]:
    """A stage while the block runs; its extender is ready when the block begins.

    set_up    puts the first nodes and pods into the API
    flags     of the extender
    hardware  by node: these get a kubelet and a device plugin, which run the pods; on others pods only get their node
    pace      of those kubelets

    Raises NoShortDirectory, and ProcessEnded, in an ExceptionGroup once the block has begun.
    """
    with short_temporary_directory(LONGEST_SOCKET) as name:
        directory = Path(name)
        async with ApiServer() as server, ApiClient(server.url) as client:
            set_up(server.api)
            async with running_extender(directory, server.url, flags) as extender, asyncio.TaskGroup() as tasks:
                stage = Stage(server.api, extender, narration)
                kubeconfig = write_kubeconfig(directory, server.url)
                at_work: list[asyncio.Task[None]] = [tasks.create_task(extender.child.until_it_ends())]
                for number, (node, its) in enumerate((hardware or {}).items()):
                    own = directory / f"n{number}"
                    own.mkdir()
                    plugin_node = PluginNode(
                        client, node, its, pace or KubeletPace(), directory=own, kubeconfig=kubeconfig
                    )
                    stage.plugin_nodes[node] = plugin_node
                    at_work.append(tasks.create_task(plugin_node.run()))

                def pod_changed(before: Object | None, after: Object | None) -> None:
                    if (uid := stage.pod_changed(before, after)) is not None:
                        tasks.create_task(stage.tell_refusal(uid))

                at_work += [
                    tasks.create_task(Mirror(client, "/api/v1/pods", pod_changed).run()),
                    tasks.create_task(Mirror(client, "/api/v1/nodes", stage.node_changed).run()),
                    tasks.create_task(Scheduler(client, extender.address).run()),
                ]
                yield stage
                for task in at_work:
                    task.cancel()


def create_node(api: Api, node: NodeManifest) -> None:
    """Raises ApiFailure."""
    api.create(NODES, None, node.as_object())


def create_bare_node(api: Api, node: NodeManifest) -> None:
    """Without what its plugin and its kubelet will write on it. Raises ApiFailure."""
    api.create(NODES, None, bare_node(node.as_object()))


def create_pod(api: Api, pod: PodManifest) -> None:
    """Create it, and its namespace where there is none yet. Raises ApiFailure."""
    try:
        api.create(PODS, pod.namespace, pod.as_object())
    except ApiFailure as failure:
        if failure.code != 404:
            raise
        api.create(NAMESPACES, None, {"metadata": {"name": pod.namespace}})
        api.create(PODS, pod.namespace, pod.as_object())
