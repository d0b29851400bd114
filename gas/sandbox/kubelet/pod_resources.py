"""Kubelet's PodResources API: which containers have which devices, as far as kubelet tells."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

import grpc
from grpc import aio

from gas.plugin.kubelet.plugin_socket import PluginSocket
from gas.plugin.kubelet_api import podresources_v1_pb2 as api
from gas.plugin.kubelet_api.podresources_v1_pb2_grpc import (
    PodResourcesListerServicer,
    add_PodResourcesListerServicer_to_server,
)
from gas.sandbox.kubelet.device_manager import DeviceBooks

Object = dict[str, Any]

AT_ONCE = 10
PER_SECOND = 100
"""How many questions kubelet answers; those above are refused."""

_Request = TypeVar("_Request")
_Answer = TypeVar("_Answer")


def pod_resources(pods: Iterable[Object], books: DeviceBooks) -> api.ListPodResourcesResponse:
    """Sidecars and app containers of each pod, with devices or without. Ordinary init containers never show."""
    return api.ListPodResourcesResponse(
        pod_resources=[
            api.PodResources(
                name=pod["metadata"]["name"],
                namespace=pod["metadata"]["namespace"],
                containers=[_container(pod, container, books) for container in _shown(pod)],
            )
            for pod in pods
        ]
    )


def allocatable_resources(books: DeviceBooks) -> api.AllocatableResourcesResponse:
    """All healthy ids, whether containers have them or not."""
    return api.AllocatableResourcesResponse(
        devices=[
            part
            for resource in sorted(books.resources)
            for part in _devices(resource, books.healthy(resource) or (), books)
        ]
    )


class PodResourcesServer:
    """Serves the API at one socket.

    asked        makes the answer to ``List``
    allocatable  makes that to ``GetAllocatableResources``
    """

    def __init__(
        self,
        socket: Path,
        asked: Callable[[], api.ListPodResourcesResponse],
        allocatable: Callable[[], api.AllocatableResourcesResponse],
    ) -> None:
        self._socket = socket
        self._asked = asked
        self._allocatable = allocatable

    async def serve(self) -> None:
        """Until cancelled; the socket stays when it ends."""
        self._socket.parent.mkdir(parents=True, exist_ok=True)
        server = aio.server()
        add_PodResourcesListerServicer_to_server(_Lister(self._asked, self._allocatable), server)
        await PluginSocket.listen(server, self._socket)
        try:
            await asyncio.Event().wait()
        finally:
            await server.stop(None)


class _Lister(PodResourcesListerServicer):
    """The methods as gRPC wants them."""

    def __init__(
        self,
        asked: Callable[[], api.ListPodResourcesResponse],
        allocatable: Callable[[], api.AllocatableResourcesResponse],
    ) -> None:
        self._asked = asked
        self._allocatable = allocatable
        self._limit = _Limit(asyncio.get_running_loop().time)

    async def List(  # noqa: N802 -- kubelet's name
        self,
        request: api.ListPodResourcesRequest,
        context: aio.ServicerContext[api.ListPodResourcesRequest, api.ListPodResourcesResponse],
    ) -> api.ListPodResourcesResponse:
        await self._limit.take(context)
        return self._asked()

    async def Get(  # noqa: N802 -- kubelet's name
        self,
        request: api.GetPodResourcesRequest,
        context: aio.ServicerContext[api.GetPodResourcesRequest, api.GetPodResourcesResponse],
    ) -> api.GetPodResourcesResponse:
        await self._limit.take(context)
        for pod in self._asked().pod_resources:
            if (pod.namespace, pod.name) == (request.pod_namespace, request.pod_name):
                return api.GetPodResourcesResponse(pod_resources=pod)
        sentence = f"pod {request.pod_name} in namespace {request.pod_namespace} not found"
        await context.abort(grpc.StatusCode.UNKNOWN, sentence)
        raise AssertionError(sentence)  # never reached: abort raises

    async def GetAllocatableResources(  # noqa: N802 -- kubelet's name
        self,
        request: api.AllocatableResourcesRequest,
        context: aio.ServicerContext[api.AllocatableResourcesRequest, api.AllocatableResourcesResponse],
    ) -> api.AllocatableResourcesResponse:
        await self._limit.take(context)
        return self._allocatable()


class _Limit:
    """Kubelet's on all questions of all who ask: `AT_ONCE` after a pause, then `PER_SECOND`."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._left = float(AT_ONCE)
        self._at = clock()

    async def take(self, context: aio.ServicerContext[_Request, _Answer]) -> None:
        """Let a question in, or refuse it."""
        now = self._clock()
        self._left = min(self._left + (now - self._at) * PER_SECOND, AT_ONCE)
        self._at = now
        if self._left < 1:
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "rejected by rate limit")
        self._left -= 1


def _shown(pod: Object) -> list[Object]:
    init = pod["spec"].get("initContainers") or []
    sidecars = [container for container in init if container.get("restartPolicy") == "Always"]
    return [*sidecars, *pod["spec"]["containers"]]


def _container(pod: Object, container: Object, books: DeviceBooks) -> api.ContainerResources:
    allotments = books.allotments.get(pod["metadata"]["uid"], {}).get(container["name"], {})
    devices = [part for resource, allotment in allotments.items() for part in _devices(resource, allotment.ids, books)]
    return api.ContainerResources(name=container["name"], devices=devices)


def _devices(resource: str, ids: Iterable[str], books: DeviceBooks) -> list[api.ContainerDevices]:
    """One entry for each id, or for each NUMA node of it, in no order, as kubelet writes them."""
    return [
        api.ContainerDevices(resource_name=resource, device_ids=[id_], topology=topology)
        for id_ in ids
        for topology in _topologies(books.numa_nodes(resource, id_))
    ]


def _topologies(nodes: frozenset[int]) -> list[api.TopologyInfo | None]:
    return [api.TopologyInfo(nodes=[api.NUMANode(ID=node)]) for node in nodes] or [None]
