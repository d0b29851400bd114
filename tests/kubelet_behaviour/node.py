"""The kubelet under test, with what the suite needs to see and to do on its node."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

import grpc
from grpc import aio

from gas.plugin.kubelet_api import podresources_v1_pb2 as api
from gas.plugin.kubelet_api.podresources_v1_pb2_grpc import PodResourcesListerStub
from sandbox.api.client import ApiClient, RefusedByApi
from tests.kubelet_behaviour.pods import Object, container, pod

T = TypeVar("T")

PATIENCE = 30.0
"""Seconds after which something that should have happened will not."""
PODS = "/api/v1/namespaces/default/pods"

Listed = dict[str, dict[str, frozenset[str]]]
"""What PodResources says: pod -> container -> ids of the test's resource."""


@dataclass(frozen=True, slots=True)
class Inside:
    """The devices that a container was created with. Device nodes and mounts map container paths to host paths."""

    env: Mapping[str, str]
    devices: frozenset[str]
    mounts: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One kubelet, and a resource of its own for one test.

    directory      kubelet's ``/var/lib/kubelet``
    restart        stop kubelet as if killed and start it again; returns when plugins can register
    look_inside    of a pod and one of its containers
    """

    client: ApiClient
    name: str
    directory: Path
    restart: Callable[[], Awaitable[None]]
    look_inside: Callable[[Object, str], Awaitable[Inside]]
    resource: str = field(default_factory=lambda: f"behaviour.example/{uuid4().hex[:8]}")
    created: list[str] = field(default_factory=list)

    @property
    def plugins(self) -> Path:
        return self.directory / "device-plugins"

    async def create(self, name: str, *containers: Object, resource: str | None = None, **parts: Any) -> Object:
        """Create a pod on this node; without ``containers`` it has one that requests one device."""
        full = f"{name}-{self.resource.partition('/')[2]}"
        written = pod(full, self.name, resource or self.resource, *(containers or (container(),)), **parts)
        # Before the request: kubelet may see the pod before its response is here.
        self.created.append(full)
        return await self.client.post(PODS, written)

    async def get(self, created: Object) -> Object:
        return await self.client.get(f"{PODS}/{created['metadata']['name']}")

    async def delete(self, created: Object, *, force: bool = False) -> None:
        """Delete the pod with its own grace period, or without any."""
        options = {"gracePeriodSeconds": 0} if force else None
        await self.client.delete(f"{PODS}/{created['metadata']['name']}", options)

    async def until_phase(self, created: Object, phase: str) -> Object:
        async def probe() -> Object | None:
            found = await self.get(created)
            return found if found["status"]["phase"] == phase else None

        return await until(probe)

    async def until_gone(self, created: Object) -> None:
        async def is_gone() -> bool:
            with suppress(RefusedByApi):
                await self.get(created)
                return False
            return True

        await until(is_gone)

    async def amounts(self) -> tuple[str | None, str | None]:
        """Return capacity and allocatable of the test's resource, as the API shows them."""
        status = (await self.client.get(f"/api/v1/nodes/{self.name}"))["status"]
        return status.get("capacity", {}).get(self.resource), status.get("allocatable", {}).get(self.resource)

    async def until_allocatable(self, count: int) -> None:
        async def probe() -> bool:
            return (await self.amounts())[1] == str(count)

        await until(probe)

    async def listed(self) -> Listed:
        """Return PodResources' entries of the pods of this test, by the names that the test gave them."""
        options = (("grpc.use_local_subchannel_pool", 1),)
        socket = self.directory / "pod-resources/kubelet.sock"
        async with aio.insecure_channel(f"unix:{socket}", options=options) as channel:
            lister = PodResourcesListerStub(channel)
            answer = await lister.List(api.ListPodResourcesRequest(), timeout=10, wait_for_ready=True)
        return {
            pod.name.rpartition("-")[0]: {each.name: self._ids(each) for each in pod.containers}
            for pod in answer.pod_resources
            if pod.name in self.created
        }

    async def refusals(self, questions: int) -> list[str]:
        """Call PodResources a number of times at once, and return the errors as code and sentence."""
        options = (("grpc.use_local_subchannel_pool", 1),)
        socket = self.directory / "pod-resources/kubelet.sock"
        async with aio.insecure_channel(f"unix:{socket}", options=options) as channel:
            ask = PodResourcesListerStub(channel).List
            calls = [ask(api.ListPodResourcesRequest(), timeout=10, wait_for_ready=True) for _ in range(questions)]
            answers = [(await call.code(), await call.details()) for call in calls]
        return [f"{code.name}: {sentence}" for code, sentence in answers if code is not grpc.StatusCode.OK]

    async def until_listed(self, wanted: Listed) -> None:
        async def probe() -> bool:
            return await self.listed() == wanted

        await until(probe)

    async def clear(self) -> None:
        for name in self.created:
            with suppress(RefusedByApi):
                await self.client.delete(f"{PODS}/{name}", {"gracePeriodSeconds": 0})

    def _ids(self, container: api.ContainerResources) -> frozenset[str]:
        return frozenset(
            id_ for each in container.devices if each.resource_name == self.resource for id_ in each.device_ids
        )


async def until(probe: Callable[[], Awaitable[T | None]]) -> T:
    """Return the result of ``probe`` once it is neither None nor false."""
    async with asyncio.timeout(PATIENCE):
        while True:
            if found := await probe():
                return found
            await asyncio.sleep(0.02)
