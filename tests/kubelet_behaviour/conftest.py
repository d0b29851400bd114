"""The kubelet under test: the sandbox's, or the one that the environment names.

GAS_KUBELET_API_URL    address of the API server of a real kubelet's node; everything below only matters with it
GAS_KUBELET_API_CA     file with the certificate of its authority
GAS_KUBELET_API_TOKEN  bearer token of a user who may do everything
GAS_KUBELET_RELEASE    its minor release of Kubernetes, such as 37
GAS_KUBELET_NODE       name of the node
GAS_KUBELET_DIRECTORY  kubelet's directory, with the sockets for plugins
GAS_KUBELET_CONTROL    unix socket that takes one JSON object a connection and answers one: {"do": "restart"}, and
                       {"do": "look", "pod": …, "container": …}, which answers env, devices and mounts
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from gas.sandbox.api.client import ApiClient
from gas.sandbox.api.server import ApiServer
from gas.sandbox.kubelet.containers import Containers, KubeletPace
from gas.sandbox.kubelet.kubelet import Kubelet
from tests.kubelet_behaviour.node import PATIENCE, Inside, Node
from tests.kubelet_behaviour.plugin import Plugin
from tests.kubelet_behaviour.pods import Object

_PACE = KubeletPace(init=0.1, stop=0.3, status=0.05, connecting=0.5, sources=0)
_AFTER_A_RESTART = replace(_PACE, sources=1)

MakePlugin = Callable[..., Awaitable[Plugin]]

RELEASE = int(os.environ.get("GAS_KUBELET_RELEASE", "34"))
"""The minor release of the kubelet under test. The sandbox's behaves as kubelet 1.34."""

before_1_37 = pytest.mark.skipif(RELEASE >= 37, reason="kubelet 1.37 distinguishes the plugins of one resource")
since_1_37 = pytest.mark.skipif(
    RELEASE < 37, reason="only kubelet 1.37 and later distinguish the plugins of one resource"
)


@pytest.fixture
async def node() -> AsyncIterator[Node]:
    real = "GAS_KUBELET_API_URL" in os.environ
    async with _real_node() if real else _sandbox_node() as node:
        yield node
        await node.clear()


@pytest.fixture
async def plugin(node: Node) -> AsyncIterator[MakePlugin]:
    """Make a plugin of the test's resource, registered and allocatable with all of its ids."""
    made: list[Plugin] = []

    async def make(*ids: str, **options: Any) -> Plugin:
        plugin = Plugin(node.plugins, node.resource, ids, **options)
        made.append(plugin)
        await plugin.serve()
        await plugin.register()
        await node.until_allocatable(len(ids))
        return plugin

    yield make
    for each in made:
        await each.stop()


@asynccontextmanager
async def _sandbox_node() -> AsyncIterator[Node]:
    with TemporaryDirectory(prefix="gas-") as name:
        async with ApiServer() as server, ApiClient(server.url) as client:
            root, containers = Path(name), Containers()
            tasks: list[asyncio.Task[None]] = []

            async def start(pace: KubeletPace) -> None:
                kubelet = Kubelet(client, "sandbox-node", root, containers=containers, pace=pace)
                tasks.append(asyncio.create_task(kubelet.run()))
                await asyncio.wait_for(kubelet.serving.wait(), PATIENCE)

            async def stop() -> None:
                running = tasks.pop()
                running.cancel()
                with suppress(asyncio.CancelledError):
                    await running

            async def restart() -> None:
                await stop()
                await start(_AFTER_A_RESTART)

            async def look_inside(pod: Object, container: str) -> Inside:
                found = containers.get(pod["metadata"]["uid"], container)
                assert found is not None
                given = found.devices
                return Inside(given.env, frozenset(given.device_nodes), given.mounts)

            await start(_PACE)
            yield Node(client=client, name="sandbox-node", directory=root, restart=restart, look_inside=look_inside)
            await stop()


@asynccontextmanager
async def _real_node() -> AsyncIterator[Node]:
    authority = Path(os.environ["GAS_KUBELET_API_CA"])
    token = os.environ["GAS_KUBELET_API_TOKEN"]

    async def restart() -> None:
        await _ask({"do": "restart"})

    async def look_inside(pod: Object, container: str) -> Inside:
        answer = await _ask({"do": "look", "pod": pod, "container": container})
        return Inside(answer["env"], frozenset(answer["devices"]), answer["mounts"])

    async with ApiClient(os.environ["GAS_KUBELET_API_URL"], token=token, authority=authority) as client:
        yield Node(
            client=client,
            name=os.environ["GAS_KUBELET_NODE"],
            directory=Path(os.environ["GAS_KUBELET_DIRECTORY"]),
            restart=restart,
            look_inside=look_inside,
        )


async def _ask(wish: Object) -> Object:
    reader, writer = await asyncio.open_unix_connection(os.environ["GAS_KUBELET_CONTROL"])
    writer.write(json.dumps(wish).encode())
    writer.write_eof()
    answer: Object = json.loads(await reader.read())
    writer.close()
    return answer
