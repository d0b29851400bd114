"""Implement kubelet's side of the device plugin API: plugins register here and are called at their own sockets."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import grpc
from grpc import aio

from gas.plugin.kubelet.plugin_socket import PluginSocket
from gas.plugin.kubelet_api import deviceplugin_v1beta1_pb2 as api
from gas.plugin.kubelet_api.deviceplugin_v1beta1_pb2_grpc import (
    DevicePluginStub,
    RegistrationServicer,
    add_RegistrationServicer_to_server,
)
from sandbox.api.quantities import is_extended
from sandbox.kubelet.device_manager import PluginFailed

_Response = TypeVar("_Response")

VERSION = "v1beta1"
SOCKET = "kubelet.sock"

NEWEST = 37  # the newest minor release of Kubernetes whose kubelet the sandbox can be
_DISTINGUISHES_PLUGINS = 37  # the release from which kubelet distinguishes the plugins of one resource by their sockets

_PRE_START = 30.0

# Without this option gRPC would find a new server at an old socket only after its pause between two attempts.
_OPTIONS = (("grpc.use_local_subchannel_pool", 1),)


@dataclass(slots=True, eq=False)
class _Endpoint:
    """One registration of a plugin, with the connection to its socket of this name."""

    resource: str
    socket: str
    channel: aio.Channel
    plugin: DevicePluginStub
    options: api.DevicePluginOptions = field(default_factory=api.DevicePluginOptions)
    stopped: bool = False


class DevicePlugins(RegistrationServicer):
    """The registration service of one kubelet, and the plugins that are connected."""

    def __init__(
        self,
        directory: Path,  # contains the sockets of kubelet and of the plugins
        *,
        # minor release of Kubernetes: from 37 on, plugins of one resource are distinguished by their sockets
        release: int = NEWEST,
        connecting: float,  # time limit in seconds for connecting to a plugin that registers
        # called with a resource and its device list, each time the plugin sends one
        on_devices: Callable[[str, api.ListAndWatchResponse], None],
        on_lost: Callable[[str], None],  # called with a resource whose plugin is gone
    ) -> None:
        self._directory = directory
        self.serving = asyncio.Event()  # set when plugins can register
        self._connecting = connecting
        self._on_devices = on_devices
        self._on_lost = on_lost
        self._by_socket = release >= _DISTINGUISHES_PLUGINS
        self._endpoints: dict[str, _Endpoint] = {}
        self._clients: dict[tuple[str, str], _Endpoint] = {}
        self._connected: list[_Endpoint] = []
        self._watching: set[asyncio.Task[None]] = set()

    async def serve(self) -> None:
        """Remove every socket in the directory, then serve until cancelled and leave the own socket."""
        self._directory.mkdir(parents=True, exist_ok=True)
        for path in self._directory.iterdir():
            if path.is_socket():
                path.unlink()
        server = aio.server()
        add_RegistrationServicer_to_server(self, server)
        await PluginSocket.listen(server, self._directory / SOCKET)
        self.serving.set()
        try:
            await asyncio.Event().wait()
        finally:
            await server.stop(None)
            for task in self._watching:
                task.cancel()
            await asyncio.gather(*self._watching, return_exceptions=True)
            for endpoint in self._connected:
                await endpoint.channel.close()

    async def Register(
        self, request: api.RegisterRequest, context: aio.ServicerContext[api.RegisterRequest, api.Empty]
    ) -> api.Empty:
        try:
            await self.register(request)
        except PluginFailed as failure:
            await context.abort(grpc.StatusCode.UNKNOWN, str(failure))
        return api.Empty()

    async def register(self, request: api.RegisterRequest) -> None:
        """Connect to a plugin and watch its device list. Raises PluginFailed."""
        if request.version != VERSION:
            raise PluginFailed(
                f"requested API version {request.version!r} is not supported by kubelet. "
                f"Supported version is {VERSION!r}"
            )
        if not is_extended(request.resource_name):
            raise PluginFailed(f"the ResourceName {request.resource_name!r} is invalid")
        channel = aio.insecure_channel(f"unix:{self._directory / request.endpoint}", options=_OPTIONS)
        endpoint = _Endpoint(request.resource_name, request.endpoint, channel, DevicePluginStub(channel))
        self._clients[self._client(endpoint)] = endpoint
        try:
            await self._connect(endpoint)
        except PluginFailed:
            # As in kubelet: an earlier client with the same socket is forgotten as well, so its end is not noticed.
            self._clients.pop(self._client(endpoint), None)
            await channel.close()
            raise
        self._connected.append(endpoint)
        self._endpoints[endpoint.resource] = endpoint
        task = asyncio.create_task(self._watch(endpoint))
        self._watching.add(task)
        task.add_done_callback(self._watching.discard)

    def _client(self, endpoint: _Endpoint) -> tuple[str, str]:
        """Return the name under which kubelet keeps a plugin until its watch ends."""
        return endpoint.resource, endpoint.socket if self._by_socket else ""

    async def _connect(self, endpoint: _Endpoint) -> None:
        try:
            async with asyncio.timeout(self._connecting):
                await endpoint.channel.channel_ready()
            endpoint.options = await endpoint.plugin.GetDevicePluginOptions(api.Empty())
        except (TimeoutError, aio.AioRpcError) as error:
            raise PluginFailed(f"failed to dial device plugin: {_go_error(error)}") from error
        if self._by_socket and any(self._client(each) == self._client(endpoint) for each in self._connected):
            raise PluginFailed(f"device plugin already connected: {self._directory / endpoint.socket}")

    async def prefer(
        self, resource: str, available: frozenset[str], must_include: frozenset[str], size: int
    ) -> frozenset[str]:
        """Return the ids that the plugin prefers; none if it does not offer this call. Raises PluginFailed."""
        endpoint = self._endpoint(resource)
        if not endpoint.options.get_preferred_allocation_available:
            return frozenset()
        container_request = api.ContainerPreferredAllocationRequest(
            available_deviceIDs=available, must_include_deviceIDs=must_include, allocation_size=size
        )
        request = api.PreferredAllocationRequest(container_requests=[container_request])
        try:
            response = await _call(endpoint, endpoint.plugin.GetPreferredAllocation(request))
        except PluginFailed as failure:
            raise PluginFailed(f"device plugin GetPreferredAllocation rpc failed with err: {failure}") from failure
        return frozenset(response.container_responses[0].deviceIDs if response.container_responses else ())

    async def allocate(self, resource: str, ids: frozenset[str]) -> bytes:
        """Return the plugin's encoded response for one container. Raises PluginFailed."""
        endpoint = self._endpoint(resource)
        request = api.AllocateRequest(container_requests=[api.ContainerAllocateRequest(devices_ids=ids)])
        response = await _call(endpoint, endpoint.plugin.Allocate(request))
        if not response.container_responses:
            raise PluginFailed("no containers return in allocation response")
        encoded: bytes = response.container_responses[0].SerializeToString()
        return encoded

    async def pre_start(self, resource: str, ids: frozenset[str]) -> None:
        """Announce the start of a container to a plugin that requires this. Raises PluginFailed."""
        endpoint = self._endpoint(resource)
        if endpoint.options.pre_start_required:
            request = api.PreStartContainerRequest(devices_ids=ids)
            await _call(endpoint, endpoint.plugin.PreStartContainer(request, timeout=_PRE_START))

    def _endpoint(self, resource: str) -> _Endpoint:
        if (endpoint := self._endpoints.get(resource)) is None:
            raise PluginFailed(f"endpoint not found in cache for a registered resource: {resource}")
        return endpoint

    async def _watch(self, endpoint: _Endpoint) -> None:
        with suppress(aio.AioRpcError):
            async for response in endpoint.plugin.ListAndWatch(api.Empty()):
                if not endpoint.stopped:
                    self._on_devices(endpoint.resource, response)
        # Before 1.37, whichever stream has ended, the plugin that registered last is stopped.
        if (stopped := self._clients.pop(self._client(endpoint), None)) is None:
            return
        stopped.stopped = True
        self._connected = [each for each in self._connected if each not in (endpoint, stopped)]
        others = [each for each in self._connected if each.resource == endpoint.resource]
        if others and self._by_socket:
            self._endpoints[endpoint.resource] = others[-1]
        else:
            self._on_lost(endpoint.resource)
        for each in {id(endpoint): endpoint, id(stopped): stopped}.values():
            await each.channel.close()


async def _call(endpoint: _Endpoint, call: Awaitable[_Response]) -> _Response:
    if endpoint.stopped:
        raise PluginFailed(f"endpoint {endpoint.resource} has been stopped")
    task = asyncio.current_task()
    try:
        return await call
    except aio.AioRpcError as error:
        raise PluginFailed(_go_error(error)) from error
    except (asyncio.CancelledError, aio.UsageError) as error:
        # Python's gRPC raises these if the plugin's watch, and with it the connection, has ended meanwhile.
        if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
            raise
        raise PluginFailed("rpc error: code = Canceled desc = grpc: the client connection is closing") from error


def _go_error(error: Exception) -> str:
    if not isinstance(error, aio.AioRpcError):
        return "context deadline exceeded"
    code = "".join(word.capitalize() for word in error.code().name.split("_"))
    return f"rpc error: code = {code} desc = {error.details()}"
