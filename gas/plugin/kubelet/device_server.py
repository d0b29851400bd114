"""Serves kubelet's device plugin API for one resource. Decides nothing: it translates, guards and times."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import grpc
from grpc import aio

from gas.errors import GasError
from gas.intel.names import PREFIX
from gas.plugin.devices.allocation_policy import PreferredRequest
from gas.plugin.devices.container_answer import ContainerAnswer
from gas.plugin.devices.device_ids import ALL_CARDS, DeviceId, known_ids
from gas.plugin.devices.device_lists import Device
from gas.plugin.kubelet.calls import Calls
from gas.plugin.kubelet.device_messages import answer_message, device_message
from gas.plugin.kubelet.plugin_socket import PluginSocket
from gas.plugin.kubelet_api import deviceplugin_v1beta1_pb2 as api
from gas.plugin.kubelet_api.deviceplugin_v1beta1_pb2_grpc import (
    DevicePluginServicer,
    add_DevicePluginServicer_to_server,
)

logger = logging.getLogger(__name__)

FINISH = 1.0
"""Seconds for the pod in the middle of whose calls the server is closed."""

BETWEEN_CALLS = 0.1
"""Seconds without a call after which no pod is in the middle of its calls."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocateRequest:
    """Kubelet has chosen these ids for one container.

    resource  without prefix
    ids       those of cards; none for a monitoring resource
    """

    resource: str
    ids: frozenset[DeviceId]


class Outcome(StrEnum):
    """How a call of kubelet's was answered."""

    DECIDED = "decided"
    FELL_BACK = "fell-back"  # the decision failed: the ids that kubelet chose, and nothing more
    REFUSED = "refused"  # nothing could be given; kubelet ends the pod


ANSWER_WITHIN = 0.8
"""Seconds after which kubelet chooses by itself: while it waits nothing else on the node starts or ends."""

Prefer = Callable[[PreferredRequest], Awaitable[Sequence[DeviceId]]]
Allocate = Callable[[AllocateRequest], ContainerAnswer]
OnAnswered = Callable[[str, Outcome, float], None]
"""Called after each answer with the method's name, how it was answered, and the seconds that took."""


class DeviceServer:
    """One resource's device plugin. Nothing is served before `open`; `close` and `open` may come again and again.

    resource      without prefix
    prefer        which ids a container should get; it may ask kubelet for its PodResources meanwhile. None: kubelet is
                  told not to ask
    allocate      what a container gets with its ids
    plain_answer  the same without a thought for any pod: what is answered when ``allocate`` raised

    Kubelet waits for each answer with all of its other work, so these must be quick; and an error would end the
    pod for good, so whatever they raise is logged, and kubelet gets what it chose by itself. Only when
    ``plain_answer`` raises too is there an error for kubelet.
    """

    def __init__(
        self,
        resource: str,
        *,
        allocate: Allocate,
        plain_answer: Allocate,
        prefer: Prefer | None = None,
        on_answered: OnAnswered = lambda method, outcome, seconds: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.resource = resource
        self.devices: tuple[Device, ...] | None = None
        """What kubelet is told of; None until the first card."""
        self.streams = 0
        """How many times kubelet watches the devices now: 1, and rarely 2 for a moment."""
        self._prefer = prefer
        self._allocate = allocate
        self._plain_answer = plain_answer
        self._on_answered = on_answered
        self._news = asyncio.Event()
        self._closing = False
        self._calls = Calls(clock)
        self._serving: tuple[aio.Server, PluginSocket] | None = None
        self._ending: asyncio.Task[None] | None = None

    @property
    def resource_name(self) -> str:
        """As kubelet and pods call it: ``gpu.intel.com/i915``."""
        return PREFIX + self.resource

    @property
    def prefers(self) -> bool:
        """Whether kubelet should ask before it chooses ids."""
        return self._prefer is not None

    @property
    def healthy_ids(self) -> frozenset[str]:
        """The ids that kubelet may give away."""
        return frozenset(device.id for device in self.devices or () if device.healthy)

    def show(self, devices: Sequence[Device]) -> None:
        """Tell kubelet of these devices from now on. Before the first one there is nothing to tell."""
        if self.devices == tuple(devices) or (self.devices is None and not devices):
            return
        self.devices = tuple(devices)
        self._tell_news()

    async def news(self) -> None:
        """Until `devices` or `streams` changes."""
        await self._news.wait()

    async def open(self, path: Path) -> PluginSocket:
        """Listen at this path, in the place of whoever did. Raises CannotListen."""
        server = aio.server()
        add_DevicePluginServicer_to_server(_Service(self), server)
        socket = await PluginSocket.listen(server, path)
        self._closing = False
        self._serving = server, socket
        return socket

    async def close(self) -> None:
        """Stop listening, and end kubelet's watch. When this is cancelled the end goes on, and may be awaited again."""
        if self._serving is not None:
            (server, socket), self._serving = self._serving, None
            socket.remove()
            self._ending = asyncio.create_task(self._end(server))
        if self._ending is not None:
            # Not awaited itself: before Python 3.12 what gRPC does in there may swallow that we are cancelled.
            await asyncio.wait({self._ending})
            self._ending.result()

    async def _end(self, server: aio.Server) -> None:
        # With its watch kubelet ends the connection, and for good the pod in the middle of whose calls it is.
        await self._calls.pause(lasting=BETWEEN_CALLS, within=FINISH)
        self._closing = True
        self._tell_news()
        await server.stop(FINISH)

    async def watched(self) -> AsyncIterator[api.ListAndWatchResponse]:
        """Every state of the devices from now until `close`, as kubelet's watch sees it."""
        self.streams += 1
        self._tell_news()
        try:
            told: tuple[Device, ...] | None = None
            while not self._closing:
                news = self._news
                if self.devices is not None and self.devices != told:
                    told = self.devices
                    yield api.ListAndWatchResponse(devices=map(device_message, told))
                else:
                    await news.wait()
        finally:
            self.streams -= 1
            self._tell_news()

    async def preferred(
        self, asked: api.ContainerPreferredAllocationRequest
    ) -> api.ContainerPreferredAllocationResponse:
        """The ids that a container should get; none when that cannot be told, and kubelet chooses."""
        started = time.perf_counter()
        outcome = Outcome.DECIDED
        ids: list[str] = []
        try:
            if self._prefer is not None:
                request = PreferredRequest(
                    resource=self.resource,
                    offered=known_ids(asked.available_deviceIDs),
                    must_include=frozenset(known_ids(asked.must_include_deviceIDs)),
                    size=asked.allocation_size,
                )
                with self._calls.answering():
                    async with asyncio.timeout(ANSWER_WITHIN):
                        ids = [str(id_) for id_ in await self._prefer(request)]
        except Exception:
            outcome = Outcome.FELL_BACK
            logger.exception("no preference for a container of %s: kubelet chooses its devices", self.resource_name)
        self._on_answered("GetPreferredAllocation", outcome, time.perf_counter() - started)
        return api.ContainerPreferredAllocationResponse(deviceIDs=ids)

    def allocated(self, asked: api.ContainerAllocateRequest) -> api.ContainerAllocateResponse:
        """What a container gets with the ids that kubelet chose. Raises when nothing can be given."""
        started = time.perf_counter()
        outcome = Outcome.REFUSED
        try:
            ids = frozenset(known_ids(asked.devices_ids))
            if unknown := set(asked.devices_ids) - set(map(str, ids)) - {ALL_CARDS}:
                logger.warning("kubelet gives %s, which this plugin never offered", ", ".join(sorted(unknown)))
            request = AllocateRequest(resource=self.resource, ids=ids)
            try:
                with self._calls.answering():
                    answer = answer_message(self._allocate(request))
                outcome = Outcome.DECIDED
            except Exception:
                logger.exception("a container of %s gets just the devices that kubelet chose", self.resource_name)
                answer = answer_message(self._plain_answer(request))
                outcome = Outcome.FELL_BACK
            return answer
        finally:
            self._on_answered("Allocate", outcome, time.perf_counter() - started)

    def _tell_news(self) -> None:
        self._news.set()
        self._news = asyncio.Event()


class _Service(DevicePluginServicer):
    """The methods as gRPC wants them."""

    def __init__(self, server: DeviceServer) -> None:
        self._server = server

    async def GetDevicePluginOptions(  # noqa: N802 -- kubelet's name
        self, request: api.Empty, context: aio.ServicerContext[api.Empty, api.DevicePluginOptions]
    ) -> api.DevicePluginOptions:
        return options(self._server)

    async def ListAndWatch(  # noqa: N802 -- kubelet's name
        self, request: api.Empty, context: aio.ServicerContext[api.Empty, api.ListAndWatchResponse]
    ) -> AsyncIterator[api.ListAndWatchResponse]:
        async for state in self._server.watched():
            yield state

    async def GetPreferredAllocation(  # noqa: N802 -- kubelet's name
        self,
        request: api.PreferredAllocationRequest,
        context: aio.ServicerContext[api.PreferredAllocationRequest, api.PreferredAllocationResponse],
    ) -> api.PreferredAllocationResponse:
        return api.PreferredAllocationResponse(
            container_responses=[await self._server.preferred(each) for each in request.container_requests]
        )

    async def Allocate(  # noqa: N802 -- kubelet's name
        self, request: api.AllocateRequest, context: aio.ServicerContext[api.AllocateRequest, api.AllocateResponse]
    ) -> api.AllocateResponse:
        try:
            return api.AllocateResponse(container_responses=map(self._server.allocated, request.container_requests))
        except GasError as error:
            logger.error(
                "a container of %s gets nothing, and kubelet ends its pod: %s", self._server.resource_name, error
            )
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
            raise  # never reached: abort raises
        except Exception as error:
            logger.exception("a container of %s gets nothing, and kubelet ends its pod", self._server.resource_name)
            await context.abort(grpc.StatusCode.INTERNAL, f"no devices could be given: {error!r}")
            raise  # never reached: abort raises

    async def PreStartContainer(  # noqa: N802 -- kubelet's name
        self,
        request: api.PreStartContainerRequest,
        context: aio.ServicerContext[api.PreStartContainerRequest, api.PreStartContainerResponse],
    ) -> api.PreStartContainerResponse:
        return api.PreStartContainerResponse()


def options(server: DeviceServer) -> api.DevicePluginOptions:
    """What kubelet is told, when it registers the resource and when it connects, of what it may call."""
    return api.DevicePluginOptions(get_preferred_allocation_available=server.prefers)
