from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeAlias

import grpc
import pytest
from grpc import aio

from gas.plugin.devices.device_ids import known_ids
from gas.plugin.kubelet import pod_resources
from gas.plugin.kubelet.pod_resources import PodResources
from gas.plugin.kubelet_api import podresources_v1_pb2 as api
from gas.plugin.kubelet_api.podresources_v1_pb2_grpc import (
    PodResourcesListerServicer,
    add_PodResourcesListerServicer_to_server,
)
from gas.vocabularies.known import DEFAULT
from tests.background import PATIENCE
from tests.plugin.pods_for_plugin import I915

Context: TypeAlias = aio.ServicerContext[Any, Any]


class Lister(PodResourcesListerServicer):
    """List the pods that the test sets; ``refuses`` makes every reply an error."""

    def __init__(self) -> None:
        self.pods: list[api.PodResources] = []
        self.devices: list[api.ContainerDevices] = []
        self.refuses = False
        self.gets: str | None = None
        """What ``Get`` answers as error; None: it answers."""
        self.asked = 0
        self.seconds = 0.0
        """How long a list takes."""
        self.too_often = 0
        """How many questions are refused because there were too many."""

    async def List(self, request: api.ListPodResourcesRequest, context: Context) -> api.ListPodResourcesResponse:
        await asyncio.sleep(self.seconds)
        if self.refuses:
            await context.abort(grpc.StatusCode.INTERNAL, "no luck")
        if self.too_often:
            self.too_often -= 1
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "rejected by rate limit")
        return api.ListPodResourcesResponse(pod_resources=self.pods)

    async def Get(self, request: api.GetPodResourcesRequest, context: Context) -> api.GetPodResourcesResponse:
        self.asked += 1
        if self.too_often:
            self.too_often -= 1
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "rejected by rate limit")
        for pod in self.pods if self.gets is None else ():
            if (pod.namespace, pod.name) == (request.pod_namespace, request.pod_name):
                return api.GetPodResourcesResponse(pod_resources=pod)
        await context.abort(grpc.StatusCode.UNKNOWN, self.gets or "pod not found")
        raise AssertionError

    async def GetAllocatableResources(
        self, request: api.AllocatableResourcesRequest, context: Context
    ) -> api.AllocatableResourcesResponse:
        return api.AllocatableResourcesResponse(devices=self.devices)


@asynccontextmanager
async def served(path: Path, lister: Lister) -> AsyncIterator[None]:
    server = aio.server()
    add_PodResourcesListerServicer_to_server(lister, server)
    server.add_insecure_port(f"unix:{path}")
    await server.start()
    try:
        yield
    finally:
        await server.stop(None)


@asynccontextmanager
async def asking(path: Path, timeout: float = PATIENCE) -> AsyncIterator[PodResources]:
    client = PodResources(path, DEFAULT.resources, timeout=timeout)
    try:
        yield client
    finally:
        await client.close()


@pytest.fixture
def lister() -> Lister:
    return Lister()


@pytest.fixture
async def kubelet(socket_directory: Path, lister: Lister) -> AsyncIterator[PodResources]:
    """The client of a kubelet that lists what the lister has."""
    path = socket_directory / "k.sock"
    async with served(path, lister), asking(path) as client:
        yield client


def devices(resource: str, *ids: str) -> api.ContainerDevices:
    return api.ContainerDevices(resource_name=resource, device_ids=ids)


async def test_pods_and_containers_are_decoded(lister: Lister, kubelet: PodResources) -> None:
    lister.pods = [
        api.PodResources(
            namespace="default",
            name="two",
            containers=[
                api.ContainerResources(
                    name="sidecar",
                    devices=[
                        devices("gpu.intel.com/i915", "card1-0"),
                        devices("gpu.intel.com/i915", "card0-0"),
                        devices("gpu.intel.com/monitoring", "all"),
                        devices("example.com/fpga", "card2-0"),
                    ],
                ),
                api.ContainerResources(name="without"),
            ],
        ),
        api.PodResources(namespace="other", name="none"),
    ]
    assert await kubelet.pods() == {
        "default/two": {"sidecar": {I915: frozenset(known_ids(["card0-0", "card1-0"]))}, "without": {}},
        "other/none": {},
    }


async def test_unchanged_entries_are_not_decoded_again(lister: Lister, kubelet: PodResources) -> None:
    """A node has hundreds of pods, and kubelet lists them every few seconds, in any order."""

    def pod(name: str, id_: str) -> api.PodResources:
        container = api.ContainerResources(name="c", devices=[devices("gpu.intel.com/i915", id_)])
        return api.PodResources(namespace="default", name=name, containers=[container])

    lister.pods = [pod("stays", "card0-0"), pod("changes", "card1-0"), pod("goes", "card2-0")]
    before = await kubelet.pods()
    assert before is not None
    known = dict(before)
    lister.pods = [pod("changes", "card3-0"), pod("comes", "card2-0"), pod("stays", "card0-0")]
    after = await kubelet.pods()
    assert after == {
        "default/stays": {"c": {I915: frozenset(known_ids(["card0-0"]))}},
        "default/changes": {"c": {I915: frozenset(known_ids(["card3-0"]))}},
        "default/comes": {"c": {I915: frozenset(known_ids(["card2-0"]))}},
    }
    assert after["default/stays"] is known["default/stays"]


async def test_allocatable_ids_are_gathered_by_resource(lister: Lister, kubelet: PodResources) -> None:
    lister.devices = [
        devices("gpu.intel.com/i915", "card0-0"),
        devices("gpu.intel.com/i915", "card1-0"),
        devices("gpu.intel.com/monitoring", "all"),
        devices("example.com/fpga", "f0"),
    ]
    assert await kubelet.allocatable() == {
        I915: frozenset({"card0-0", "card1-0"}),
        "gpu.intel.com/monitoring": frozenset({"all"}),
        "example.com/fpga": frozenset({"f0"}),
    }


async def test_a_call_that_fails_returns_none_and_is_logged_once(
    socket_directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with asking(socket_directory / "k.sock") as kubelet:
        assert await kubelet.pods() is None
        assert await kubelet.allocatable() is None
    (warning,) = [record.message for record in caplog.records if record.levelname == "WARNING"]
    assert warning.startswith("kubelet's PodResources API does not reply: UNAVAILABLE")


async def test_an_error_returns_none(lister: Lister, kubelet: PodResources) -> None:
    lister.refuses = True
    assert await kubelet.pods() is None
    lister.refuses = False
    assert await kubelet.pods() == {}


async def test_kubelet_is_found_again_after_its_restart(socket_directory: Path) -> None:
    path = socket_directory / "k.sock"
    async with asking(path) as kubelet:
        async with served(path, Lister()):
            assert await kubelet.pods() == {}
        assert await kubelet.pods() is None
        async with served(path, Lister()):
            async with asyncio.timeout(PATIENCE):
                while (answer := await kubelet.pods()) is None:  # noqa: ASYNC110 -- kubelet sends no event
                    await asyncio.sleep(0.05)
            assert answer == {}


async def test_replies_larger_than_grpcs_own_limit_are_read(lister: Lister, kubelet: PodResources) -> None:
    lister.pods = [api.PodResources(namespace="n" * 5_000_000, name="large")]
    answer = await kubelet.pods()
    assert answer is not None
    assert len(answer) == 1


async def test_one_pod_can_be_requested(lister: Lister, kubelet: PodResources) -> None:
    container = api.ContainerResources(name="c", devices=[devices("gpu.intel.com/i915", "card1-0")])
    lister.pods = [api.PodResources(namespace="default", name="one", containers=[container])]
    assert await kubelet.pod("default", "one") == {"c": {I915: frozenset(known_ids(["card1-0"]))}}
    assert await kubelet.pod("default", "other") is None
    assert await kubelet.pod("default", "one") is not None


async def test_a_kubelet_without_get_is_asked_once(lister: Lister, kubelet: PodResources) -> None:
    lister.gets = "PodResources API Get method disabled"
    assert await kubelet.pod("default", "one") is None
    assert await kubelet.pod("default", "one") is None
    assert lister.asked == 1


async def test_a_call_that_exceeds_the_rate_limit_is_repeated(lister: Lister, kubelet: PodResources) -> None:
    """It allows 10 questions at once and 100 a second, which starting pods can exceed."""
    lister.pods = [api.PodResources(namespace="default", name="one")]
    lister.too_often = 3
    assert await kubelet.pods() == {"default/one": {}}
    lister.too_often = 3
    assert await kubelet.pod("default", "one") is not None


@pytest.mark.parametrize(
    "trouble",
    [pytest.param({"seconds": 3600.0}, id="is-slow"), pytest.param({"too_often": 10**9}, id="refuses-every-call")],
)
async def test_a_kubelet_is_asked_no_longer_than_the_timeout_while_it(
    socket_directory: Path, lister: Lister, trouble: dict[str, Any]
) -> None:
    vars(lister).update(trouble)
    path = socket_directory / "k.sock"
    async with served(path, lister), asking(path, timeout=0.2) as client:
        assert await asyncio.wait_for(client.pods(), PATIENCE) is None


async def test_a_reply_that_is_too_large_is_not_requested_again(lister: Lister, kubelet: PodResources) -> None:
    container = api.ContainerResources(name="c" * (pod_resources.LARGEST_REPLY + 1))
    lister.pods = [api.PodResources(namespace="default", name="large", containers=[container])]
    assert await kubelet.pod("default", "large") is None
    assert lister.asked == 1
