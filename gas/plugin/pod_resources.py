"""Asks kubelet which containers have which devices: its PodResources API."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import grpc
from grpc import aio

from gas.intel.names import PREFIX
from gas.plugin.device_ids import DeviceId, known_ids
from gas.plugin.kubelet_api import podresources_v1_pb2 as api
from gas.plugin.kubelet_api.podresources_v1_pb2_grpc import PodResourcesListerStub

logger = logging.getLogger(__name__)

LARGEST_ANSWER = 16 * 2**20
"""Bytes; kubelet itself sends no more."""

_OPTIONS = (
    ("grpc.max_receive_message_length", LARGEST_ANSWER),
    # After kubelet's restart it should be found at once, not after gRPC's usual minutes.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.use_local_subchannel_pool", 1),
)

_Answer = TypeVar("_Answer")


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerDevices:
    """What one container has.

    ids  resource without prefix -> its ids; resources of which it has none, and monitoring, are left out
    """

    name: str
    ids: Mapping[str, frozenset[DeviceId]]


@dataclass(frozen=True, slots=True, kw_only=True)
class PodDevices:
    """What the containers of one pod have.

    containers  sidecars, then app containers, in the order of the spec, also those without devices; ordinary init
                containers never show
    """

    namespace: str
    name: str
    containers: tuple[ContainerDevices, ...]


class PodResources:
    """A connection to kubelet that is made when needed. To be closed.

    socket   normally /var/lib/kubelet/pod-resources/kubelet.sock
    timeout  seconds for one answer
    """

    def __init__(self, socket: Path, *, timeout: float = 0.5) -> None:
        self._timeout = timeout
        self._channel = aio.insecure_channel(f"unix:{socket}", options=_OPTIONS)
        self._kubelet = PodResourcesListerStub(self._channel)
        self._away: str | None = None
        self._tells_single_pods = True

    async def pods(self) -> tuple[PodDevices, ...] | None:
        """All pods that kubelet knows of, in its order; None when it does not answer.

        For about a second after its own start kubelet answers, truthfully or not, that there are none.
        """
        answer = await self._asked(self._kubelet.List(api.ListPodResourcesRequest(), timeout=self._timeout))
        return None if answer is None else tuple(map(_pod_devices, answer.pod_resources))

    async def pod(self, namespace: str, name: str) -> PodDevices | None:
        """One pod that kubelet knows of; None when it knows none of that name or does not answer.

        Much less work than `pods` where there are many. A kubelet before 1.34 may not offer it.
        """
        if not self._tells_single_pods:
            return None
        request = api.GetPodResourcesRequest(pod_namespace=namespace, pod_name=name)
        try:
            answer = await self._kubelet.Get(request, timeout=self._timeout)
        except aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.UNIMPLEMENTED or "disabled" in (error.details() or ""):
                self._tells_single_pods = False
            return None
        return _pod_devices(answer.pod_resources)

    async def allocatable(self) -> Mapping[str, frozenset[str]] | None:
        """Resource without prefix -> the ids that kubelet counts as healthy; None when it does not answer."""
        answer = await self._asked(
            self._kubelet.GetAllocatableResources(api.AllocatableResourcesRequest(), timeout=self._timeout)
        )
        return None if answer is None else _by_resource(answer.devices)

    async def close(self) -> None:
        """End the connection."""
        await self._channel.close()

    async def _asked(self, call: Awaitable[_Answer]) -> _Answer | None:
        try:
            answer = await call
        except aio.AioRpcError as error:
            why = f"{error.code().name}: {error.details()}"
            if self._away is None:
                logger.warning("kubelet does not say which containers have which devices: %s", why)
            self._away = why
            return None
        if self._away is not None:
            logger.info("kubelet says again which containers have which devices")
            self._away = None
        return answer


def _pod_devices(pod: api.PodResources) -> PodDevices:
    return PodDevices(
        namespace=pod.namespace,
        name=pod.name,
        containers=tuple(
            ContainerDevices(
                name=container.name,
                ids={
                    resource: frozenset(ids)
                    for resource, texts in _by_resource(container.devices).items()
                    if (ids := known_ids(texts))
                },
            )
            for container in pod.containers
        ),
    )


def _by_resource(devices: Iterable[api.ContainerDevices]) -> dict[str, frozenset[str]]:
    """Kubelet lists a resource several times, once for each NUMA node or even for each id."""
    ids: dict[str, set[str]] = {}
    for entry in devices:
        if entry.resource_name.startswith(PREFIX):
            ids.setdefault(entry.resource_name.removeprefix(PREFIX), set()).update(entry.device_ids)
    return {resource: frozenset(texts) for resource, texts in ids.items()}
