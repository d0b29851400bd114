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
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from sandbox.api.client import ApiClient
from sandbox.api.server import ApiServer
from sandbox.kubelet.containers import Containers, KubeletPace
from sandbox.kubelet.device_plugins import NEWEST
from sandbox.kubelet.kubelet import Kubelet
from tests.kubelet_behaviour.node import PATIENCE, Inside, Node
from tests.kubelet_behaviour.plugin import Plugin
from tests.kubelet_behaviour.pods import Object

_PACE = KubeletPace(init=0.1, stop=0.3, status=0.05, connecting=0.5, sources=0)
_AFTER_A_RESTART = replace(_PACE, sources=1)

MakePlugin = Callable[..., Awaitable[Plugin]]

RELEASES = [int(os.environ["GAS_KUBELET_RELEASE"])] if "GAS_KUBELET_RELEASE" in os.environ else [35, NEWEST]
"""The minor releases of the kubelets under test. The sandbox's kubelet behaves as any of them."""


def _only(releases: Sequence[int]) -> pytest.MarkDecorator:
    """Return a mark that limits a test to these releases."""
    others = pytest.param(RELEASES[0], marks=pytest.mark.skip(reason=f"kubelet 1.{RELEASES[0]} behaves otherwise"))
    return pytest.mark.parametrize("node", list(releases) or [others], indirect=True)


before_1_37 = _only([release for release in RELEASES if release < 37])
since_1_37 = _only([release for release in RELEASES if release >= 37])


@pytest.fixture(params=RELEASES)
async def node(request: pytest.FixtureRequest) -> AsyncIterator[Node]:
    real = "GAS_KUBELET_API_URL" in os.environ
    async with _real_node() if real else _sandbox_node(request.param) as node:
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
async def _sandbox_node(release: int) -> AsyncIterator[Node]:
    with TemporaryDirectory(prefix="gas-") as name:
        async with ApiServer() as server, ApiClient(server.url) as client:
            root, containers = Path(name), Containers()
            tasks: list[asyncio.Task[None]] = []

            async def start(pace: KubeletPace) -> None:
                kubelet = Kubelet(client, "sandbox-node", root, release=release, containers=containers, pace=pace)
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
