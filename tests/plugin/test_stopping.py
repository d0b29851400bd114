"""The order in which the parts of the plugin end."""

from __future__ import annotations

import asyncio

import pytest

from gas.plugin.kubelet.device_server import DeviceServer
from sandbox.hardware.fake_sysfs import FLEX_170, fake_gpus
from tests.plugin.node_of_sandbox import sandbox_node


async def test_pods_are_watched_as_long_as_kubelets_calls_are_served(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Otherwise the pod in the middle would wait for a watch that has ended, and then get any cards."""
    close = DeviceServer.close
    watched: list[bool] = []

    async def observed_close(server: DeviceServer) -> None:
        await close(server)
        watched.append(_is_running("Watch.run"))

    async with sandbox_node(*fake_gpus(FLEX_170, 1)) as node, node.running_plugin():
        assert _is_running("Watch.run")
        monkeypatch.setattr(DeviceServer, "close", observed_close)
    assert watched
    assert all(watched)
    assert not _is_running("Watch.run")


def _is_running(function: str) -> bool:
    """Return whether a task of this function runs that was not cancelled."""
    return any(
        getattr(task.get_coro(), "__qualname__", "") == function and not task.cancelling()
        for task in asyncio.all_tasks()
    )
