"""The side of kubelet that registers plugins and watches their devices, with the unfriendly habits of every release.

As kubelet 1.35 does, it drops the plugin that registered last when the watch of an earlier one ends. As kubelet 1.37
does, it refuses a socket that it knows.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import grpc
from grpc import aio

from gas.plugin.kubelet_api import deviceplugin_v1beta1_pb2 as api
from gas.plugin.kubelet_api.deviceplugin_v1beta1_pb2_grpc import (
    DevicePluginStub,
    RegistrationServicer,
    add_RegistrationServicer_to_server,
)
from tests.background import PATIENCE


class ScriptedKubelet(RegistrationServicer):
    """``start`` and ``stop`` as often as wanted; a kubelet that stops leaves its socket behind, as the real one does.

    registrations    every request that was taken
    shown            every list of devices that it was sent, by resource, oldest first
    refuses          while not empty: the answer to each registration is an error with this text
    watches          False: a registered plugin's devices are not asked for
    streams          resource -> how many plugins are watched now
    on_register      called when a registration comes, before anything is done about it
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.registrations: list[api.RegisterRequest] = []
        self.shown: dict[str, list[list[api.Device]]] = {}
        self.streams: Counter[str] = Counter()
        self.on_register: Callable[[], None] = lambda: None
        self.refuses = ""
        self.watches = True
        self._newest: dict[str, aio.Channel] = {}
        self._watching: set[asyncio.Task[None]] = set()
        self._server: aio.Server | None = None
        self._starts = 0

    @property
    def socket(self) -> Path:
        return self.directory / "kubelet.sock"

    async def start(self) -> None:
        """Remove every socket in the directory, the plugins' too, then listen."""
        for path in self.directory.iterdir():
            if path.is_socket():
                path.unlink()
        await self.listen()

    async def listen(self) -> None:
        """Put a new socket in the place of the old one."""
        self._server = aio.server()
        add_RegistrationServicer_to_server(self, self._server)
        self._starts += 1
        bound = self.directory / f".{id(self)}-{self._starts}"
        self._server.add_insecure_port(f"unix:{bound}")
        await self._server.start()
        bound.rename(self.socket)

    async def stop(self) -> None:
        for task in list(self._watching):
            task.cancel()
        await asyncio.gather(*self._watching, return_exceptions=True)
        for channel in self._newest.values():
            await channel.close()
        self._newest.clear()
        if self._server is not None:
            await self._server.stop(None)
            self._server = None

    async def drop(self, resource_name: str) -> None:
        """Close the connection to a plugin without a reason."""
        await self._newest.pop(resource_name).close()

    async def Register(  # noqa: N802 -- kubelet's name
        self, request: api.RegisterRequest, context: aio.ServicerContext[api.RegisterRequest, api.Empty]
    ) -> api.Empty:
        self.on_register()
        if self.refuses:
            await context.abort(grpc.StatusCode.UNKNOWN, self.refuses)
        if any(request.endpoint == known.endpoint for known in self.registrations):
            await context.abort(grpc.StatusCode.UNKNOWN, f"device plugin already connected: {request.endpoint}")
        name = request.resource_name
        channel = connect(self.directory / request.endpoint)
        plugin = DevicePluginStub(channel)
        self._newest[name] = channel
        try:
            said = await plugin.GetDevicePluginOptions(api.Empty(), timeout=PATIENCE)
        except (aio.AioRpcError, asyncio.CancelledError):
            # The end of an older plugin's watch closes the connection to the newest, even now.
            await context.abort(grpc.StatusCode.UNKNOWN, "failed to get device plugin options")
        assert said == request.options
        self.registrations.append(request)
        if self.watches:
            task = asyncio.create_task(self._watch(name, channel, plugin))
            self._watching.add(task)
            task.add_done_callback(self._watching.discard)
        return api.Empty()

    async def _watch(self, name: str, channel: aio.Channel, plugin: DevicePluginStub) -> None:
        self.streams[name] += 1
        try:
            async for response in plugin.ListAndWatch(api.Empty()):
                self.shown.setdefault(name, []).append(list(response.devices))
        except (aio.AioRpcError, asyncio.CancelledError):
            pass
        finally:
            self.streams[name] -= 1
            await channel.close()
            # Kubelet drops whoever serves the resource now, not only the plugin whose watch has ended.
            if (newest := self._newest.pop(name, None)) is not None:
                await newest.close()


async def next_of(stream: aio.UnaryStreamCall[api.Empty, api.ListAndWatchResponse]) -> api.ListAndWatchResponse | None:
    """Return the next message of ListAndWatch; None if the plugin has ended it."""
    message = await asyncio.wait_for(stream.read(), PATIENCE)
    return message if isinstance(message, api.ListAndWatchResponse) else None


def devices_of(message: api.ListAndWatchResponse | None) -> list[tuple[str, str]]:
    """Return the ids and health of the devices in the message."""
    assert message is not None
    return [(device.ID, device.health) for device in message.devices]


def connect(path: Path) -> aio.Channel:
    return aio.insecure_channel(f"unix:{path}", options=[("grpc.use_local_subchannel_pool", 1)])
