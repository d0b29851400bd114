"""Serve kubelet's PodResources API: which containers have which devices."""

import asyncio
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeAlias

import grpc
from grpc import aio

from gas.plugin.kubelet.plugin_socket import PluginSocket
from gas.plugin.kubelet_api import podresources_v1_pb2 as api
from gas.plugin.kubelet_api.podresources_v1_pb2_grpc import (
    PodResourcesListerServicer,
    add_PodResourcesListerServicer_to_server,
)
from sandbox.kubelet.device_manager import DeviceState

Object = dict[str, Any]

AT_ONCE = 10
PER_SECOND = 100
"""Kubelet's rate limit for all clients together; requests above it are refused."""

_Context: TypeAlias = aio.ServicerContext[Any, Any]


class PodResourcesServer(PodResourcesListerServicer):
    """Serve the API at one socket. ``active_pods`` returns the pods that have been admitted and have not ended."""

    def __init__(self, socket: Path, state: DeviceState, active_pods: Callable[[], Iterable[Object]]) -> None:
        self._socket = socket
        self._state = state
        self._active_pods = active_pods
        self._limit = _Limit(time.monotonic)

    async def serve(self) -> None:
        """Serve until cancelled. The socket stays at the end."""
        self._socket.parent.mkdir(parents=True, exist_ok=True)
        server = aio.server()
        add_PodResourcesListerServicer_to_server(self, server)
        await PluginSocket.listen(server, self._socket)
        try:
            await asyncio.Event().wait()
        finally:
            await server.stop(None)

    async def List(self, request: api.ListPodResourcesRequest, context: _Context) -> api.ListPodResourcesResponse:
        await self._limit.take(context)
        return api.ListPodResourcesResponse(pod_resources=self._pods())

    async def Get(self, request: api.GetPodResourcesRequest, context: _Context) -> api.GetPodResourcesResponse:
        await self._limit.take(context)
        for pod in self._pods():
            if (pod.namespace, pod.name) == (request.pod_namespace, request.pod_name):
                return api.GetPodResourcesResponse(pod_resources=pod)
        sentence = f"pod {request.pod_name} in namespace {request.pod_namespace} not found"
        await context.abort(grpc.StatusCode.UNKNOWN, sentence)
        raise AssertionError(sentence)  # never reached: abort raises

    async def GetAllocatableResources(
        self, request: api.AllocatableResourcesRequest, context: _Context
    ) -> api.AllocatableResourcesResponse:
        await self._limit.take(context)
        healthy = {resource: self._state.healthy(resource) or () for resource in sorted(self._state.resources)}
        devices = [part for resource, ids in healthy.items() for part in _devices(resource, ids, self._state)]
        return api.AllocatableResourcesResponse(devices=devices)

    def _pods(self) -> list[api.PodResources]:
        return [
            api.PodResources(
                name=pod["metadata"]["name"],
                namespace=pod["metadata"]["namespace"],
                containers=[_container(pod, container, self._state) for container in shown_containers(pod)],
            )
            for pod in self._active_pods()
        ]


class _Limit:
    """Kubelet's rate limit: bursts of `AT_ONCE`, then `PER_SECOND`."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._left = float(AT_ONCE)
        self._at = clock()

    async def take(self, context: _Context) -> None:
        now = self._clock()
        self._left = min(self._left + (now - self._at) * PER_SECOND, AT_ONCE)
        self._at = now
        if self._left < 1:
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "rejected by rate limit")
        self._left -= 1


def shown_containers(pod: Object) -> list[Object]:
    """Return the containers of a pod that kubelet lists: its sidecars and app containers."""
    init = pod["spec"].get("initContainers") or []
    sidecars = [container for container in init if container.get("restartPolicy") == "Always"]
    return [*sidecars, *pod["spec"]["containers"]]


def _container(pod: Object, container: Object, state: DeviceState) -> api.ContainerResources:
    allocations = state.allocations_of(pod["metadata"]["uid"], container["name"])
    devices = [
        part for resource, allocation in allocations.items() for part in _devices(resource, allocation.ids, state)
    ]
    return api.ContainerResources(name=container["name"], devices=devices)


def _devices(resource: str, ids: Iterable[str], state: DeviceState) -> list[api.ContainerDevices]:
    """Return one entry per id, or one per NUMA node of an id, in no particular order, as kubelet does."""
    return [
        api.ContainerDevices(resource_name=resource, device_ids=[id_], topology=topology)
        for id_ in ids
        for topology in _topologies(state.numa_nodes(resource, id_))
    ]


def _topologies(nodes: frozenset[int]) -> list[api.TopologyInfo | None]:
    return [api.TopologyInfo(nodes=[api.NUMANode(ID=node)]) for node in nodes] or [None]
