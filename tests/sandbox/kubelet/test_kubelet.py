"""Behaviour of the sandbox's kubelet alone. Behaviour that it shares with kubelet is in tests/kubelet_behaviour."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from gas.plugin.kubelet.pod_resources import Listing, PodResources
from sandbox.api.client import ApiClient
from sandbox.api.server import ApiServer
from sandbox.hardware.fake_sysfs import FLEX_170, fake_gpus
from sandbox.kubelet.containers import RUN_SECONDS, Containers, KubeletPace
from sandbox.kubelet.kubelet import Kubelet, NodeStatusWriter
from tests.builders import container, pod_json
from tests.kubelet_behaviour.plugin import Plugin
from tests.plugin.node_of_sandbox import sandbox_node
from tests.plugin.pods_for_plugin import decided
from tests.sandbox.objects import PATIENCE, PODS, node, phase, pod, until, until_true

I915 = "gpu.intel.com/i915"
_PACE = KubeletPace(init=0.05, stop=0.1, status=0.05, sources=0.1, teardown=0.05, removal=0.05)


@pytest.fixture
def root() -> Any:
    with TemporaryDirectory(prefix="gas-") as name:
        yield Path(name)


@asynccontextmanager
async def running(kubelet: Kubelet) -> AsyncIterator[Kubelet]:
    task = asyncio.create_task(kubelet.run())
    await asyncio.wait_for(kubelet.serving.wait(), PATIENCE)
    yield kubelet
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


@asynccontextmanager
async def registered(kubelet: Kubelet, *ids: str) -> AsyncIterator[Plugin]:
    async with Plugin(kubelet.device_plugins, I915, ids) as plugin:
        await plugin.register()
        yield plugin


async def until_allocatable(client: ApiClient, name: str, amount: str) -> None:
    async def look() -> dict[str, Any]:
        return await client.get("/api/v1/nodes", fieldSelector=f"metadata.name={name}")

    await until_true(
        look, lambda found: any(item["status"].get("allocatable", {}).get(I915) == amount for item in found["items"])
    )


async def test_kubelet_takes_over_an_existing_node(client: ApiClient, root: Path) -> None:
    await client.post("/api/v1/nodes", node("n", labels="stay"))
    kubelet = Kubelet(client, "n", root, pace=_PACE)
    async with running(kubelet), registered(kubelet, "card0", "card1"):
        await until_allocatable(client, "n", "2")
    assert (await client.get("/api/v1/nodes/n"))["metadata"]["labels"] == {"labels": "stay"}


async def test_amounts_removed_while_kubelet_writes_the_status_are_not_written_again(
    client: ApiClient, server: ApiServer
) -> None:
    await NodeStatusWriter(client, "n").register()
    status = "/api/v1/nodes/n/status"
    await client.patch(status, {"status": {"capacity": {"x.com/y": "1"}, "allocatable": {"x.com/y": "1"}}})

    class Late(ApiClient):
        async def get(self, path: str, **query: str) -> Any:
            found = await super().get(path, **query)
            await self.patch(status, {"status": {"capacity": {"x.com/y": None}, "allocatable": {"x.com/y": None}}})
            return found

    async with Late(server.url) as late:
        await NodeStatusWriter(late, "n").update({I915: 1}, {I915: 1})
    assert {I915} == (await client.get("/api/v1/nodes/n"))["status"]["allocatable"].keys() & {I915, "x.com/y"}


async def test_the_devices_of_a_container_can_be_inspected(client: ApiClient, root: Path) -> None:
    kubelet = Kubelet(client, "n", root, pace=_PACE)
    async with running(kubelet), registered(kubelet, "card0") as plugin:
        plugin.answer.envs["CARDS"] = "0"
        plugin.answer.devices.add(host_path="/tmp/card0", container_path="/dev/dri/card0", permissions="rw")
        plugin.answer.cdi_devices.add(name="gpu=card0")
        await until_allocatable(client, "n", "1")
        created = await client.post(PODS, pod("p", nodeName="n"))
        await until(client, "p", lambda value: phase(value) == "Running")
        container = kubelet.containers.get(created["metadata"]["uid"], "c")
        assert container is not None
        assert container.devices.env == {"CARDS": "0"}
        assert container.devices.device_nodes == {"/dev/dri/card0": "/tmp/card0"}
        assert container.devices.cdi_devices == ("gpu=card0",)


async def test_pods_with_devices_fail_after_a_reboot(client: ApiClient, root: Path) -> None:
    containers = Containers()
    kubelet = Kubelet(client, "n", root, containers=containers, pace=_PACE)
    async with running(kubelet), registered(kubelet, "card0"):
        await until_allocatable(client, "n", "1")
        await client.post(PODS, pod("with", nodeName="n", restartPolicy="Always"))
        await client.post(PODS, pod("without", cards=0, nodeName="n", restartPolicy="Always"))
        for name in ("with", "without"):
            await until(client, name, lambda value: phase(value) == "Running")
    containers.reboot()
    async with running(Kubelet(client, "n", root, containers=containers, pace=_PACE)):
        failed = await until(client, "with", lambda value: phase(value) == "Failed")
        assert failed["status"]["reason"] == "UnexpectedAdmissionError"
        again = await until(client, "without", _was_restarted)
        assert phase(again) == "Running"


async def test_pods_end_and_are_removed_although_the_api_server_was_away(
    server: ApiServer, client: ApiClient, root: Path
) -> None:
    async with running(Kubelet(client, "n", root, pace=_PACE)):
        await client.post(PODS, pod("p", cards=0, nodeName="n", annotations={RUN_SECONDS: "0.2"}))
        await until(client, "p", lambda value: phase(value) == "Running")
        await server.pause()
        await asyncio.sleep(0.5)
        await server.resume()
        await until(client, "p", lambda value: phase(value) == "Succeeded")


async def test_a_pod_that_is_deleted_before_kubelet_learns_of_it_is_removed(client: ApiClient, root: Path) -> None:
    await client.post(PODS, pod("p", cards=0, nodeName="n"))
    await client.delete(f"{PODS}/p")
    async with running(Kubelet(client, "n", root, pace=_PACE)):

        async def look() -> dict[str, Any]:
            return await client.get(PODS, fieldSelector="metadata.name=p")

        await until_true(look, lambda listed: not listed["items"])


def _was_restarted(value: dict[str, Any]) -> bool:
    return any(each["restartCount"] == 1 for each in value["status"].get("containerStatuses", ()))


NAMES = ("first", "second", "third")


async def test_running_pods_keep_their_devices_through_a_restart_of_kubelet() -> None:
    async with sandbox_node(*fake_gpus(FLEX_170, 3)) as node, node.running_plugin():
        for card, name in enumerate(NAMES):
            pod = pod_json(container(i915=1), name=name, annotations=decided(f"card{card}", ts=card))
            await node.got(node.create(pod))
        await node.stop_kubelet()
        await node.start_kubelet()
        resources = PodResources(node.kubelet_dir / "pod-resources/kubelet.sock", ["gpu.intel.com/i915"])
        listing: Listing | None = None
        try:
            for _ in range(250):
                listing = await resources.pods()
                if listing is not None and len(listing) == len(NAMES):
                    break
                await asyncio.sleep(0.02)
        finally:
            await resources.close()
        assert listing is not None
        listed = {
            key: {str(id_) for ids in containers["main"].values() for id_ in ids} for key, containers in listing.items()
        }
        assert listed == {f"default/{name}": {f"card{card}-0"} for card, name in enumerate(NAMES)}
