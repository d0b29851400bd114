"""NVIDIA's device plugin: whole cards by UUID, served by the process of the tests."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence

from gas.plugin.kubelet_api import deviceplugin_v1beta1_pb2 as messages
from tests.e2e.node_cell import NodeCell
from tests.kubelet_behaviour.plugin import Allocated, Call, Plugin

NVIDIA = "nvidia.com/gpu"
VISIBLE = "NVIDIA_VISIBLE_DEVICES"


class NvidiaPlugin:
    """May be started again after it was stopped."""

    def __init__(self, node: NodeCell, uuids: Sequence[str]) -> None:
        self._node = node
        self._uuids = uuids

    def start(self) -> None:
        self._plugin = Plugin(self._node.device_plugins, NVIDIA, self._uuids, prefer=None)
        self._plugin.before = self._name_cards
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        for step in (self._plugin.serve, self._plugin.register):
            asyncio.run_coroutine_threadsafe(step(), self._loop).result(30)

    def stop(self) -> None:
        asyncio.run_coroutine_threadsafe(self._plugin.stop(), self._loop).result(30)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(30)
        self._loop.close()

    async def _name_cards(self, call: Call) -> None:
        if isinstance(call, Allocated):
            self._plugin.answer = messages.ContainerAllocateResponse(envs={VISIBLE: ",".join(sorted(call.ids))})
