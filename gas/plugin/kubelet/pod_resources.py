"""Asks kubelet which containers have which devices: its PodResources API."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import TypeVar

import grpc
from grpc import aio

from gas.intel.names import PREFIX
from gas.plugin.devices.device_ids import known_ids
from gas.plugin.kubelet.encoded_listing import list_encoded
from gas.plugin.kubelet.listing import ContainerIds, Listing
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

TOO_OFTEN_PAUSE = 0.02
"""Seconds until kubelet is asked again that was asked too often: it allows 10 questions at once and 100 a second."""

_Answer = TypeVar("_Answer")
_Ask = Callable[[float], Awaitable[_Answer]]
"""Makes a call that may take so many seconds."""


class PodResources:
    """A connection to kubelet that is made when needed. To be closed.

    socket   normally /var/lib/kubelet/pod-resources/kubelet.sock
    timeout  seconds for one answer
    """

    def __init__(self, socket: Path, *, timeout: float = 0.5) -> None:
        self._timeout = timeout
        self._channel = aio.insecure_channel(f"unix:{socket}", options=_OPTIONS)
        self._kubelet = PodResourcesListerStub(self._channel)
        self._list = list_encoded(self._channel)
        self._entries: dict[bytes, _Entry] = {}
        self._away: str | None = None
        self._tells_single_pods = True

    async def pods(self) -> Listing | None:
        """All pods that kubelet knows of; None when it does not answer.

        For about a second after its own start kubelet answers, truthfully or not, that there are none.
        """
        pods = await self._told(lambda timeout: self._list(api.ListPodResourcesRequest(), timeout=timeout))
        if pods is None:
            return None
        # Kubelet lists pods in any order, and hardly ever has one changed since it was asked before.
        self._entries = {encoded: self._entries.get(encoded) or _Entry(encoded) for encoded in pods}
        return _Told(self._entries.values())

    async def pod(self, namespace: str, name: str) -> ContainerIds | None:
        """One pod that kubelet knows of; None when it knows none of that name or does not answer.

        Much less work than `pods` where there are many. A kubelet before 1.34 may not offer it.
        """
        if not self._tells_single_pods:
            return None
        request = api.GetPodResourcesRequest(pod_namespace=namespace, pod_name=name)
        try:
            answer = await self._asked(lambda timeout: self._kubelet.Get(request, timeout=timeout))
        except aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.UNIMPLEMENTED or "disabled" in (error.details() or ""):
                self._tells_single_pods = False
            return None
        return _container_ids(answer.pod_resources)

    async def allocatable(self) -> Mapping[str, frozenset[str]] | None:
        """Resource without prefix -> the ids that kubelet counts as healthy; None when it does not answer."""
        request = api.AllocatableResourcesRequest()
        answer = await self._told(lambda timeout: self._kubelet.GetAllocatableResources(request, timeout=timeout))
        return None if answer is None else _by_resource(answer.devices)

    async def close(self) -> None:
        """End the connection."""
        await self._channel.close()

    async def _told(self, ask: _Ask[_Answer]) -> _Answer | None:
        try:
            answer = await self._asked(ask)
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

    async def _asked(self, ask: _Ask[_Answer]) -> _Answer:
        """Kubelet's answer. Raises AioRpcError."""
        clock = asyncio.get_running_loop().time
        end = clock() + self._timeout
        while True:
            try:
                return await ask(max(end - clock(), 0.0))
            except aio.AioRpcError as error:
                if not _is_asked_too_often(error):
                    raise
            await asyncio.sleep(TOO_OFTEN_PAUSE)


def _is_asked_too_often(error: aio.AioRpcError) -> bool:
    # An answer that is too large has the same code.
    return error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED and "rate limit" in (error.details() or "")


class _Entry:
    """One pod as kubelet lists it; its devices are decoded when they are looked at, and once."""

    def __init__(self, encoded: bytes) -> None:
        self._encoded = encoded
        pod = api.PodResources.FromString(encoded)
        self.key = f"{pod.namespace}/{pod.name}"

    @cached_property
    def containers(self) -> ContainerIds:
        return _container_ids(api.PodResources.FromString(self._encoded))


class _Told(Mapping[str, ContainerIds]):
    """Kubelet's answer."""

    def __init__(self, entries: Iterable[_Entry]) -> None:
        self._entries = {entry.key: entry for entry in entries}

    def __getitem__(self, key: str) -> ContainerIds:
        return self._entries[key].containers

    def __contains__(self, key: object) -> bool:
        return key in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)


def _container_ids(pod: api.PodResources) -> ContainerIds:
    return {
        container.name: {
            resource: frozenset(ids)
            for resource, texts in _by_resource(container.devices).items()
            if (ids := known_ids(texts))
        }
        for container in pod.containers
    }


def _by_resource(devices: Iterable[api.ContainerDevices]) -> dict[str, frozenset[str]]:
    """Kubelet lists a resource several times, once for each NUMA node or even for each id."""
    ids: dict[str, set[str]] = {}
    for entry in devices:
        if entry.resource_name.startswith(PREFIX):
            ids.setdefault(entry.resource_name.removeprefix(PREFIX), set()).update(entry.device_ids)
    return {resource: frozenset(texts) for resource, texts in ids.items()}
