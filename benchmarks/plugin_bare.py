"""The device plugin to compare with: the same gRPC and process, but it decides nothing.

Run as ``python -m benchmarks.plugin_bare SOCKET``; it serves until SIGTERM.
"""

import asyncio
import signal
import sys
from pathlib import Path

from grpc import aio

from gas.plugin.kubelet_api import deviceplugin_v1beta1_pb2 as api
from gas.plugin.kubelet_api.deviceplugin_v1beta1_pb2_grpc import (
    DevicePluginServicer,
    add_DevicePluginServicer_to_server,
)


class BarePlugin(DevicePluginServicer):
    """A plugin that prefers the first ids and hands out the device node of each."""

    async def GetPreferredAllocation(  # noqa: N802 -- kubelet's name
        self,
        request: api.PreferredAllocationRequest,
        context: aio.ServicerContext[api.PreferredAllocationRequest, api.PreferredAllocationResponse],
    ) -> api.PreferredAllocationResponse:
        return api.PreferredAllocationResponse(
            container_responses=[
                api.ContainerPreferredAllocationResponse(deviceIDs=asked.available_deviceIDs[: asked.allocation_size])
                for asked in request.container_requests
            ]
        )

    async def Allocate(  # noqa: N802 -- kubelet's name
        self, request: api.AllocateRequest, context: aio.ServicerContext[api.AllocateRequest, api.AllocateResponse]
    ) -> api.AllocateResponse:
        return api.AllocateResponse(
            container_responses=[
                api.ContainerAllocateResponse(devices=list(map(_node, dict.fromkeys(map(_card, asked.devices_ids)))))
                for asked in request.container_requests
            ]
        )


def _card(device_id: str) -> str:
    return device_id.partition("-")[0]


def _node(card: str) -> api.DeviceSpec:
    path = f"/dev/dri/{card}"
    return api.DeviceSpec(host_path=path, container_path=path, permissions="rw")


async def run(socket: Path) -> None:
    shutdown = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, shutdown.set)
    server = aio.server()
    add_DevicePluginServicer_to_server(BarePlugin(), server)
    server.add_insecure_port(f"unix:{socket}")
    await server.start()
    await shutdown.wait()
    await server.stop(None)


if __name__ == "__main__":
    asyncio.run(run(Path(sys.argv[1])))
