"""The side of kubelet that device plugins talk to: they register here, and are asked back at their own sockets."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import grpc
from grpc import aio

from gas.errors import GasError
from gas.plugin.kubelet.plugin_socket import PluginSocket
from gas.plugin.kubelet_api import deviceplugin_v1beta1_pb2 as api
from gas.plugin.kubelet_api.deviceplugin_v1beta1_pb2_grpc import (
    DevicePluginStub,
    RegistrationServicer,
    add_RegistrationServicer_to_server,
)
from gas.sandbox.api.quantities import is_extended

_Answer = TypeVar("_Answer")

VERSION = "v1beta1"
SOCKET = "kubelet.sock"

_PRE_START = 30.0

# Without it a new server at the socket of an old one would be found only after gRPC's pauses between tries.
_OPTIONS = (("grpc.use_local_subchannel_pool", 1),)


class PluginFailed(GasError):
    """A plugin cannot be asked, or answered with an error; the sentence is kubelet's."""


@dataclass(slots=True, eq=False)
class _Endpoint:
    """One registration: a plugin's socket, connected."""

    resource: str
    channel: aio.Channel
    plugin: DevicePluginStub
    options: api.DevicePluginOptions = field(default_factory=api.DevicePluginOptions)
    stopped: bool = False


class DevicePlugins:
    """The registration service of one kubelet, and the plugins that are connected.

    directory   with kubelet's socket and the plugins'
    connecting  how many seconds to try to connect to a plugin that registers
    told        called with a resource and what its plugin says, each time it says anything
    lost        called with a resource whose plugin is gone
    """

    def __init__(
        self,
        directory: Path,
        *,
        connecting: float,
        told: Callable[[str, api.ListAndWatchResponse], None],
        lost: Callable[[str], None],
    ) -> None:
        self._directory = directory
        self.serving = asyncio.Event()
        """Set when plugins can register."""
        self._connecting = connecting
        self._told = told
        self._lost = lost
        self._endpoints: dict[str, _Endpoint] = {}
        self._current: dict[str, _Endpoint] = {}
        self._watching: set[asyncio.Task[None]] = set()

    async def serve(self) -> None:
        """Until cancelled. Begins by removing every socket in the directory; its own stays when it ends."""
        self._directory.mkdir(parents=True, exist_ok=True)
        for path in self._directory.iterdir():
            if path.is_socket():
                path.unlink()
        server = aio.server()
        add_RegistrationServicer_to_server(_Registration(self), server)
        await PluginSocket.listen(server, self._directory / SOCKET)
        self.serving.set()
        try:
            await asyncio.Event().wait()
        finally:
            await server.stop(None)
            for task in self._watching:
                task.cancel()
            await asyncio.gather(*self._watching, return_exceptions=True)
            for endpoint in self._endpoints.values():
                await endpoint.channel.close()

    async def register(self, request: api.RegisterRequest) -> None:
        """Connect to a plugin and watch its devices. Raises PluginFailed."""
        if request.version != VERSION:
            raise PluginFailed(
                f"requested API version {request.version!r} is not supported by kubelet. "
                f"Supported version is {VERSION!r}"
            )
        if not is_extended(request.resource_name):
            raise PluginFailed(f"the ResourceName {request.resource_name!r} is invalid")
        channel = aio.insecure_channel(f"unix:{self._directory / request.endpoint}", options=_OPTIONS)
        endpoint = _Endpoint(request.resource_name, channel, DevicePluginStub(channel))
        self._current[endpoint.resource] = endpoint
        try:
            async with asyncio.timeout(self._connecting):
                await channel.channel_ready()
            endpoint.options = await endpoint.plugin.GetDevicePluginOptions(api.Empty())
        except (TimeoutError, aio.AioRpcError) as error:
            self._current.pop(endpoint.resource, None)
            await channel.close()
            raise PluginFailed(f"failed to dial device plugin: {_told_by(error)}") from error
        self._endpoints[endpoint.resource] = endpoint
        task = asyncio.create_task(self._watch(endpoint))
        self._watching.add(task)
        task.add_done_callback(self._watching.discard)

    async def prefer(
        self, resource: str, available: frozenset[str], must_include: frozenset[str], size: int
    ) -> frozenset[str]:
        """The ids that the plugin would give; none when it does not want to be asked. Raises PluginFailed."""
        endpoint = self._endpoint(resource)
        if not endpoint.options.get_preferred_allocation_available:
            return frozenset()
        asked = api.ContainerPreferredAllocationRequest(
            available_deviceIDs=available, must_include_deviceIDs=must_include, allocation_size=size
        )
        request = api.PreferredAllocationRequest(container_requests=[asked])
        try:
            answer = await _asked(endpoint, endpoint.plugin.GetPreferredAllocation(request))
        except PluginFailed as failure:
            raise PluginFailed(f"device plugin GetPreferredAllocation rpc failed with err: {failure}") from failure
        return frozenset(answer.container_responses[0].deviceIDs if answer.container_responses else ())

    async def allocate(self, resource: str, ids: frozenset[str]) -> bytes:
        """The plugin's answer for one container, encoded. Raises PluginFailed."""
        endpoint = self._endpoint(resource)
        request = api.AllocateRequest(container_requests=[api.ContainerAllocateRequest(devices_ids=ids)])
        answer = await _asked(endpoint, endpoint.plugin.Allocate(request))
        if not answer.container_responses:
            raise PluginFailed("no containers return in allocation response")
        encoded: bytes = answer.container_responses[0].SerializeToString()
        return encoded

    async def pre_start(self, resource: str, ids: frozenset[str]) -> None:
        """Tell a plugin that wants to know that a container with these ids is about to start. Raises PluginFailed."""
        endpoint = self._endpoint(resource)
        if endpoint.options.pre_start_required:
            request = api.PreStartContainerRequest(devices_ids=ids)
            await _asked(endpoint, endpoint.plugin.PreStartContainer(request, timeout=_PRE_START))

    def _endpoint(self, resource: str) -> _Endpoint:
        if (endpoint := self._endpoints.get(resource)) is None:
            raise PluginFailed(f"endpoint not found in cache for a registered resource: {resource}")
        return endpoint

    async def _watch(self, endpoint: _Endpoint) -> None:
        with suppress(aio.AioRpcError):
            async for said in endpoint.plugin.ListAndWatch(api.Empty()):
                if not endpoint.stopped:
                    self._told(endpoint.resource, said)
        # Whoever's stream it was that ended: the plugin that registered last is the one that is given up.
        given_up = self._current.pop(endpoint.resource, None)
        await endpoint.channel.close()
        if given_up is not None:
            given_up.stopped = True
            self._lost(endpoint.resource)
            await given_up.channel.close()


class _Registration(RegistrationServicer):
    """The method as gRPC wants it."""

    def __init__(self, plugins: DevicePlugins) -> None:
        self._plugins = plugins

    async def Register(  # noqa: N802 -- kubelet's name
        self, request: api.RegisterRequest, context: aio.ServicerContext[api.RegisterRequest, api.Empty]
    ) -> api.Empty:
        try:
            await self._plugins.register(request)
        except PluginFailed as failure:
            await context.abort(grpc.StatusCode.UNKNOWN, str(failure))
        return api.Empty()


async def _asked(endpoint: _Endpoint, call: Awaitable[_Answer]) -> _Answer:
    if endpoint.stopped:
        raise PluginFailed(f"endpoint {endpoint.resource} has been stopped")
    task = asyncio.current_task()
    try:
        return await call
    except aio.AioRpcError as error:
        raise PluginFailed(_told_by(error)) from error
    except (asyncio.CancelledError, aio.UsageError) as error:
        # What Python's gRPC raises when the plugin's watch has ended meanwhile, and its connection with it.
        if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
            raise
        raise PluginFailed("rpc error: code = Canceled desc = grpc: the client connection is closing") from error


def _told_by(error: Exception) -> str:
    """An error as Go's gRPC writes it."""
    if not isinstance(error, aio.AioRpcError):
        return "context deadline exceeded"
    code = "".join(word.capitalize() for word in error.code().name.split("_"))
    return f"rpc error: code = {code} desc = {error.details()}"
