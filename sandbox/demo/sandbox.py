"""Run the sandbox of a demo: API server, scheduler, real extender, and nodes with or without a plugin."""

import asyncio
import os
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NoReturn

import aiohttp

from gas.daemon.flags import flags_in
from gas.extender.command_line import parse_flags
from gas.plugin.kubelet.plugin_socket import LONGEST_PATH
from sandbox.api.client import ApiClient, Mirror, Object
from sandbox.api.failure import ApiFailure
from sandbox.api.kinds import NAMESPACES, PODS, SHAREPODS
from sandbox.api.server import ApiServer
from sandbox.api.verbs import Api
from sandbox.demo.output import Output
from sandbox.demo.pod_history import InsidePod, inside_pod
from sandbox.hardware.described_node import Hardware
from sandbox.hardware.fake_sysfs import write_tree
from sandbox.kubelet.containers import Containers, KubeletPace
from sandbox.kubelet.kubelet import Kubelet
from sandbox.programs import RunningExtender, running_child, running_extender, write_kubeconfig
from sandbox.scheduler.extender_client import connected
from sandbox.scheduler.scheduler import Scheduler

_PREFIX = "gas-sandbox-"
_RANDOM = 8


LONGEST_SOCKET = "n999/device-plugins/gpu.intel.com-i915.sock"
"""The longest path of a node's socket, relative to the directory of the sandbox."""


def short_temporary_directory() -> TemporaryDirectory[str]:
    """Create a temporary directory, in /tmp if the usual place has a path too long for the nodes' sockets."""
    usual, longest = tempfile.gettempdir(), LONGEST_PATH - len(LONGEST_SOCKET) - len(_PREFIX) - _RANDOM - 2
    parent = usual if len(os.fsencode(usual)) <= longest else "/tmp"  # noqa: S108 -- it is short
    return TemporaryDirectory(prefix=_PREFIX, dir=parent)


async def _run_plugin_node(
    kubelet: Kubelet, name: str, hardware: Hardware, directory: Path, *, kubeconfig: Path, flags: Sequence[str]
) -> NoReturn:
    """Run a node with fake cards: a kubelet in this process, and the real device plugin as a process of its own.

    ``directory`` is for its cards, sockets and logs; its path must be short. Raises ProcessEnded in an ExceptionGroup
    when its plugin ends.
    """
    tree = directory / "tree"
    write_tree(tree, hardware.gpus)
    options = {
        "prefix": tree,
        "kubelet-dir": directory,
        "node-name": name,
        "shared-dev-num": hardware.shared_dev_num,
        "kubeConfig": kubeconfig,
        "metrics-address": "127.0.0.1",
        "metrics-port": 0,
    }
    arguments = [*(f"--{option}={value}" for option, value in options.items()), *flags]
    environment = {"GPU_MEMORY_OVERRIDE": str(hardware.memory_override or ""), "GPU_MEMORY_RESERVED": ""}
    log = directory / "plugin.log"
    async with (
        asyncio.TaskGroup() as tasks,
        running_child(f"the plugin of node {name}", "gas.plugin", arguments, log, environment=environment) as plugin,
    ):
        running = tasks.create_task(kubelet.run())
        try:
            await plugin.until_it_ends()
        finally:
            running.cancel()


@dataclass(frozen=True, slots=True)
class Sandbox:
    """A running sandbox, with what a demo needs of it. Programs find its API server by ``kubeconfig``."""

    api: Api
    extender: RunningExtender
    kubeconfig: Path
    output: Output
    nodes: dict[str, Object] = field(default_factory=dict)  # by name, as they are in the API
    containers: dict[str, Containers] = field(default_factory=dict)  # of the nodes with a plugin, by name
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    def submit(self, pod: Object) -> None:
        create_pod(self.api, pod)

    async def print_problems(self) -> None:
        """Print what the extender finds invalid on the nodes and on the bound pods."""
        books = await self._debug("books")
        for node, problems in books.get("problems", {}).items():
            for problem in problems:
                self.output.print_warning(f"node {node}: {problem}")
        for trouble in books.get("trouble", {}).values():
            self.output.print_warning(f"pod {trouble['pod']} on {trouble['node']}: {trouble['trouble']}")

    def pod_changed(self, before: Object | None, after: Object | None) -> str | None:
        """Pass a change to the output. Return the pod's UID if it waits for a new reason, else None."""
        self._changed.set()
        return self.output.pod_changed(before, after, self._inside if self.containers else None)

    def node_changed(self, before: Object | None, after: Object | None) -> None:
        self._changed.set()
        if after is not None:
            self.nodes[after["metadata"]["name"]] = after

    def _inside(self, pod: Object) -> InsidePod:
        return inside_pod(pod, self.containers[pod["spec"]["nodeName"]])

    async def print_waiting(self, uid: str) -> None:
        """Print why a pod waits, with what the extender says about single cards."""
        refusals = await self._debug("refusals")
        self.output.print_waiting(uid, refusals.get(uid, {}).get("details", {}))
        self._changed.set()

    async def until(self, done: Callable[[], bool], *, quiet: float = 0.0, patience: float) -> bool:
        """Wait for ``done`` and then ``quiet`` seconds without a change. Return False after ``patience`` seconds."""
        try:
            async with asyncio.timeout(patience):
                while True:
                    self._changed.clear()
                    try:
                        await asyncio.wait_for(self._changed.wait(), quiet if done() else None)
                    except TimeoutError:
                        return True
        except TimeoutError:
            return False

    async def _debug(self, page: str) -> dict[str, Any]:
        """Return a debug page of the extender, empty if it does not respond. Its end is reported elsewhere."""
        patience = aiohttp.ClientTimeout(total=10)
        try:
            async with (
                aiohttp.ClientSession(self.extender.plain_url, timeout=patience) as session,
                session.get(f"/debug/{page}") as answer,
            ):
                answer.raise_for_status()
                found: dict[str, Any] = await answer.json()
                return found
        except (aiohttp.ClientError, TimeoutError):
            return {}


@asynccontextmanager
async def running_sandbox(
    output: Output,
    set_up: Callable[[Api], None],  # creates the first nodes and pods
    flags: Sequence[str],  # of the extender
    *,
    # by node, its cards: these nodes get a kubelet and a device plugin, which run pods; on others pods are only bound
    hardware: Mapping[str, Hardware] | None = None,
    pace: KubeletPace | None = None,  # of those kubelets
) -> AsyncIterator[Sandbox]:
    """Run a sandbox as long as the block. Its extender is ready when the block begins.

    Raises ProcessEnded, in an ExceptionGroup once the block has begun.
    """
    with short_temporary_directory() as name:
        directory = Path(name)
        async with ApiServer() as server, ApiClient(server.url) as client:
            set_up(server.api)
            async with (
                running_extender(directory, server.url, flags) as extender,
                connected(extender.address) as extender_client,
                asyncio.TaskGroup() as tasks,
            ):
                kubeconfig = write_kubeconfig(directory / "kubeconfig", server.url)
                sandbox = Sandbox(server.api, extender, kubeconfig, output)
                running: list[asyncio.Task[Any]] = [tasks.create_task(extender.child.until_it_ends())]
                for number, (node, cards) in enumerate((hardware or {}).items()):
                    home = directory / f"n{number}"
                    home.mkdir()
                    containers = sandbox.containers[node] = Containers()
                    kubelet = Kubelet(client, node, home, containers=containers, pace=pace)
                    plugin_node = _run_plugin_node(
                        kubelet, node, cards, home, kubeconfig=kubeconfig, flags=_vocabulary_flags(flags)
                    )
                    running.append(tasks.create_task(plugin_node))

                def pod_changed(before: Object | None, after: Object | None) -> None:
                    if (uid := sandbox.pod_changed(before, after)) is not None:
                        tasks.create_task(sandbox.print_waiting(uid))

                running += [
                    tasks.create_task(Mirror(client, "/api/v1/pods", pod_changed).run()),
                    tasks.create_task(Mirror(client, "/api/v1/nodes", sandbox.node_changed).run()),
                    tasks.create_task(Scheduler(client, extender_client).run()),
                ]
                yield sandbox
                for task in running:
                    task.cancel()


def _vocabulary_flags(flags: Sequence[str]) -> list[str]:
    """Return a plugin's flags for the vocabularies of an extender with these flags."""
    parsed = parse_flags(flags)
    names = ",".join(each.name for each in parsed.vocabularies)
    of_vocabularies = [
        f"--{declared.name}={getattr(parsed.of(each.flags), declared.attribute)}"
        for each in parsed.vocabularies
        if each.flags is not None
        for declared in flags_in(each.flags)
    ]
    return [f"--vocabularies={names}", *of_vocabularies]


def create_pod(api: Api, pod: Object) -> None:
    """Create a pod or a SharePod and, if necessary, its namespace. Raises ApiFailure."""
    namespace = (pod.get("metadata") or {}).get("namespace") or "default"
    kind = SHAREPODS if pod.get("kind") == SHAREPODS.name else PODS
    try:
        api.create(kind, namespace, pod)
    except ApiFailure as failure:
        if failure.code != 404:
            raise
        api.create(NAMESPACES, None, {"metadata": {"name": namespace}})
        api.create(kind, namespace, pod)
