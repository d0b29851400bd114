"""A client of kubelet's PodResources API: which containers have which devices."""

import asyncio
import logging
from collections.abc import Callable, Container, Iterable, Mapping
from pathlib import Path
from typing import TypeAlias, TypeVar

import grpc
from google.protobuf.message import DecodeError, Message  # type: ignore[import-untyped]  # protobuf has no types
from grpc import aio

from gas.plugin.devices.device_ids import Ids, known_ids
from gas.plugin.kubelet_api import podresources_v1_pb2 as api

logger = logging.getLogger(__name__)

ContainerIds = Mapping[str, Mapping[str, Ids]]
"""The ids of one pod, by container and by resource. Ordinary init containers never appear; others do even without ids.
"""

Listing = Mapping[str, ContainerIds]  # Pods by ``namespace/name``. Empty just after kubelet's start.
LARGEST_REPLY = 16 * 2**20  # bytes; kubelet itself sends no more

TIMEOUT = 2.0

TOO_OFTEN_PAUSE = 0.02
"""Seconds before repeating a call that exceeded the rate limit: kubelet allows 10 calls at once and 100 a second."""

_OPTIONS = (
    ("grpc.max_receive_message_length", LARGEST_REPLY),
    # Reconnect at once after a restart of kubelet, not after gRPC's usual minutes.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.http2.bdp_probe", 0),  # a ping after each reply, whose reply wakes gRPC's threads a dozen times more
)

_Reply = TypeVar("_Reply")
_Call: TypeAlias = aio.UnaryUnaryMultiCallable[Message, bytes]  # undecoded: gRPC logs what it cannot decode as a bug


class PodResources:
    """A connection to kubelet, opened when it is first used. The owner closes it.

    socket     normally /var/lib/kubelet/pod-resources/kubelet.sock
    resources  those whose ids listings have; other plugins' are left out
    timeout    seconds for one reply
    """

    def __init__(self, socket: Path, resources: Container[str], *, timeout: float = TIMEOUT) -> None:
        self._resources = resources
        self._timeout = timeout
        self._channel = aio.insecure_channel(f"unix:{socket}", options=_OPTIONS)
        self._entries: dict[bytes, ContainerIds] = {}  # what was read from each pod of the last list
        self._failure: str | None = None
        self._offers_get = True

    async def pods(self) -> Listing | None:
        """Return all pods that kubelet lists; None if the call fails.

        For about a second after its own start kubelet lists no pods, whether it has any or not.
        """

        def decode(reply: bytes) -> Listing:
            # Kubelet lists pods in any order, and hardly any has changed since the last list.
            before, self._entries = self._entries, {}
            listing: dict[str, ContainerIds] = {}
            for pod in api.ListPodResourcesResponse.FromString(reply).pod_resources:
                encoded = pod.SerializeToString()
                containers = before.get(encoded) or _container_ids(pod, self._resources)
                listing[f"{pod.namespace}/{pod.name}"] = self._entries[encoded] = containers
            return listing

        return await self._attempt("List", api.ListPodResourcesRequest(), decode)

    async def pod(self, namespace: str, name: str) -> ContainerIds | None:
        """Return one pod's entry; None if kubelet has no pod of that name or the call fails.

        Much less work than `pods` where there are many. A kubelet before 1.34 may not offer it.
        """
        if not self._offers_get:
            return None
        request = api.GetPodResourcesRequest(pod_namespace=namespace, pod_name=name)
        try:
            reply = api.GetPodResourcesResponse.FromString(await self._call("Get", request))
        except DecodeError:
            return None
        except aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.UNIMPLEMENTED or "disabled" in (error.details() or ""):
                self._offers_get = False
            return None
        return _container_ids(reply.pod_resources, self._resources)

    async def allocatable(self) -> Mapping[str, frozenset[str]] | None:
        """Return the ids that kubelet counts as healthy, by resource; None if the call fails."""
        return await self._attempt(
            "GetAllocatableResources",
            api.AllocatableResourcesRequest(),
            lambda reply: _by_resource(api.AllocatableResourcesResponse.FromString(reply).devices),
        )

    async def close(self) -> None:
        await self._channel.close()

    async def _attempt(self, method: str, request: Message, decode: Callable[[bytes], _Reply]) -> _Reply | None:
        """Return kubelet's reply. If the call fails, log the first failure of a series and return None."""
        try:
            reply = decode(await self._call(method, request))
        except (aio.AioRpcError, DecodeError) as error:
            failure = str(error) if isinstance(error, DecodeError) else f"{error.code().name}: {error.details()}"
            if self._failure is None:
                logger.warning("kubelet's PodResources API does not reply: %s", failure)
            self._failure = failure
            return None
        if self._failure is not None:
            logger.info("kubelet's PodResources API replies again")
            self._failure = None
        return reply

    async def _call(self, method: str, request: Message) -> bytes:
        """Return kubelet's reply, repeating calls that exceed its rate limit. Raises AioRpcError."""
        call: _Call = self._channel.unary_unary(f"/v1.PodResourcesLister/{method}", type(request).SerializeToString)
        clock = asyncio.get_running_loop().time
        end = clock() + self._timeout
        while True:
            try:
                reply: bytes = await call(request, timeout=max(end - clock(), 0.0))
                return reply
            except aio.AioRpcError as error:
                # A reply that is too large has the same code.
                is_of_code = error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
                if not is_of_code or "rate limit" not in (error.details() or ""):
                    raise
            await asyncio.sleep(TOO_OFTEN_PAUSE)


def _container_ids(pod: api.PodResources, resources: Container[str]) -> ContainerIds:
    return {
        container.name: {
            resource: frozenset(ids)
            for resource, texts in _by_resource(container.devices).items()
            if resource in resources and (ids := known_ids(texts))
        }
        for container in pod.containers
    }


def _by_resource(devices: Iterable[api.ContainerDevices]) -> dict[str, frozenset[str]]:
    """Collect the ids of each resource, which kubelet lists once for each NUMA node or even each id."""
    ids: dict[str, set[str]] = {}
    for entry in devices:
        ids.setdefault(entry.resource_name, set()).update(entry.device_ids)
    return {resource: frozenset(texts) for resource, texts in ids.items()}
