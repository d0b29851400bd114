"""A device plugin for the behaviour suite: it records kubelet's calls, and replies as the test sets it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeAlias
from uuid import uuid4

import grpc
from grpc import aio

from gas.plugin.kubelet_api import deviceplugin_v1beta1_pb2 as api
from gas.plugin.kubelet_api.deviceplugin_v1beta1_pb2_grpc import (
    DevicePluginServicer,
    RegistrationStub,
    add_DevicePluginServicer_to_server,
)

Context: TypeAlias = aio.ServicerContext[Any, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One GetPreferredAllocation."""

    available: frozenset[str]
    must_include: frozenset[str] = frozenset()
    size: int = 1


@dataclass(frozen=True, slots=True)
class Allocated:
    """One Allocate, for one container."""

    ids: frozenset[str]


@dataclass(frozen=True, slots=True)
class PreStarted:
    """One PreStartContainer."""

    ids: frozenset[str]


Call = Asked | Allocated | PreStarted
Prefer = Callable[[Asked], Iterable[str]]


def highest(asked: Asked) -> list[str]:
    """Return the ids that must be included, then those with the highest names."""
    others = sorted(asked.available - asked.must_include, reverse=True)
    return [*asked.must_include, *others[: asked.size - len(asked.must_include)]]


async def nothing(call: Call) -> None:
    """Reply at once."""


class Plugin(DevicePluginServicer):
    """One resource's plugin; ``async with`` serves it, `register` registers it with kubelet.

    calls      what kubelet asked, in order
    prefer     the ids it prefers; None lets kubelet choose without asking
    answer     what every container gets
    before     awaited before a call is answered; what it raises is kubelet's error
    pre_start  whether kubelet shall tell of each start of a container
    """

    def __init__(
        self,
        directory: Path,
        resource: str,
        ids: Iterable[str],
        *,
        prefer: Prefer | None = highest,
        pre_start: bool = False,
    ) -> None:
        self.resource = resource
        self.calls: list[Call] = []
        self.prefer = prefer
        self.answer = api.ContainerAllocateResponse()
        self.before: Callable[[Call], Awaitable[None]] = nothing
        self.connections: list[str] = []
        """Which of GetDevicePluginOptions and ListAndWatch were called, in order."""
        self.streams = 0
        """How many times kubelet watches the devices now."""
        self._pre_start = pre_start
        self._directory = directory
        self._devices = dict.fromkeys(ids, True)
        self._news = asyncio.Event()
        self._server: aio.Server | None = None
        self.socket = directory / "not-served.sock"

    async def __aenter__(self) -> Self:
        await self.serve()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def serve(self) -> None:
        """Serve at a new socket in kubelet's directory."""
        self.socket = self._directory / f"{uuid4().hex[:8]}.sock"
        self._server = aio.server()
        add_DevicePluginServicer_to_server(self, self._server)
        self._server.add_insecure_port(f"unix:{self.socket}")
        await self._server.start()

    async def stop(self) -> None:
        """End streams and calls, as a killed process does."""
        if self._server is not None:
            server, self._server = self._server, None
            await server.stop(None)

    async def register(self, *, version: str = "v1beta1", resource: str | None = None) -> None:
        """Register with kubelet. Raises aio.AioRpcError if kubelet refuses."""
        options = (("grpc.use_local_subchannel_pool", 1),)
        async with aio.insecure_channel(f"unix:{self._directory / 'kubelet.sock'}", options=options) as channel:
            request = api.RegisterRequest(
                version=version,
                endpoint=self.socket.name,
                resource_name=resource or self.resource,
                options=self._options,
            )
            await RegistrationStub(channel).Register(request, timeout=20)

    def set_devices(self, devices: dict[str, bool]) -> None:
        """Set all ids from now on, and whether each is healthy."""
        self._devices = dict(devices)
        news, self._news = self._news, asyncio.Event()
        news.set()

    @property
    def allocated(self) -> list[frozenset[str]]:
        return [call.ids for call in self.calls if isinstance(call, Allocated)]

    @property
    def _options(self) -> api.DevicePluginOptions:
        return api.DevicePluginOptions(
            get_preferred_allocation_available=self.prefer is not None, pre_start_required=self._pre_start
        )

    async def GetDevicePluginOptions(self, request: api.Empty, context: Context) -> api.DevicePluginOptions:
        self.connections.append("options")
        return self._options

    async def ListAndWatch(self, request: api.Empty, context: Context) -> AsyncIterator[api.ListAndWatchResponse]:
        self.connections.append("watch")
        self.streams += 1
        try:
            while True:
                news = self._news
                devices = [
                    api.Device(ID=id_, health="Healthy" if healthy else "Unhealthy")
                    for id_, healthy in self._devices.items()
                ]
                yield api.ListAndWatchResponse(devices=devices)
                await news.wait()
        finally:
            self.streams -= 1

    async def GetPreferredAllocation(
        self, request: api.PreferredAllocationRequest, context: Context
    ) -> api.PreferredAllocationResponse:
        (container,) = request.container_requests
        asked = Asked(
            available=frozenset(container.available_deviceIDs),
            must_include=frozenset(container.must_include_deviceIDs),
            size=container.allocation_size,
        )
        await self._record(asked, context)
        wished = self.prefer(asked) if self.prefer is not None else ()
        answer = api.ContainerPreferredAllocationResponse(deviceIDs=wished)
        return api.PreferredAllocationResponse(container_responses=[answer])

    async def Allocate(self, request: api.AllocateRequest, context: Context) -> api.AllocateResponse:
        (container,) = request.container_requests
        await self._record(Allocated(frozenset(container.devices_ids)), context)
        return api.AllocateResponse(container_responses=[self.answer])

    async def PreStartContainer(
        self, request: api.PreStartContainerRequest, context: Context
    ) -> api.PreStartContainerResponse:
        await self._record(PreStarted(frozenset(request.devices_ids)), context)
        return api.PreStartContainerResponse()

    async def _record(self, call: Call, context: Context) -> None:
        self.calls.append(call)
        try:
            await self.before(call)
        except RefusedError as refused:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(refused))


class RefusedError(Exception):
    """The plugin answers kubelet with this error."""
