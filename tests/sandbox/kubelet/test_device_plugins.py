"""Device plugins that go away while kubelet calls them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from grpc import aio

from gas.plugin.kubelet_api import deviceplugin_v1beta1_pb2 as api
from gas.plugin.kubelet_api.deviceplugin_v1beta1_pb2_grpc import (
    DevicePluginServicer,
    add_DevicePluginServicer_to_server,
)
from sandbox.kubelet.device_manager import PluginFailed
from sandbox.kubelet.device_plugins import DevicePlugins

RESOURCE = "example.com/card"


class _EndsInTheMiddle(DevicePluginServicer):
    """A plugin whose watch ends during a call, and which never responds."""

    def __init__(self) -> None:
        self._asked = asyncio.Event()

    async def GetDevicePluginOptions(  # noqa: N802 -- kubelet's name
        self, request: api.Empty, context: aio.ServicerContext[api.Empty, api.DevicePluginOptions]
    ) -> api.DevicePluginOptions:
        return api.DevicePluginOptions(get_preferred_allocation_available=True)

    async def ListAndWatch(  # noqa: N802 -- kubelet's name
        self, request: api.Empty, context: aio.ServicerContext[api.Empty, api.ListAndWatchResponse]
    ) -> AsyncIterator[api.ListAndWatchResponse]:
        yield api.ListAndWatchResponse(devices=[api.Device(ID="card0", health="Healthy")])
        await self._asked.wait()

    async def Allocate(  # noqa: N802 -- kubelet's name
        self, request: api.AllocateRequest, context: aio.ServicerContext[api.AllocateRequest, api.AllocateResponse]
    ) -> api.AllocateResponse:
        self._asked.set()
        await asyncio.Event().wait()
        raise AssertionError


async def test_a_plugin_that_ends_during_a_call_fails_only_that_call() -> None:
    with TemporaryDirectory(prefix="gas-") as name:
        directory = Path(name)
        reported, lost = asyncio.Event(), asyncio.Event()
        plugins = DevicePlugins(
            directory,
            connecting=5.0,
            on_devices=lambda _name, _response: reported.set(),
            on_lost=lambda _name: lost.set(),
        )
        server = aio.server()
        add_DevicePluginServicer_to_server(_EndsInTheMiddle(), server)
        server.add_insecure_port(f"unix:{directory}/plugin.sock")
        await server.start()
        try:
            await plugins.register(
                api.RegisterRequest(version="v1beta1", endpoint="plugin.sock", resource_name=RESOURCE)
            )
            async with asyncio.timeout(5.0):
                await reported.wait()
                with pytest.raises(PluginFailed, match="the client connection is closing"):
                    await plugins.allocate(RESOURCE, frozenset({"card0"}))
                await lost.wait()
        finally:
            await server.stop(None)
