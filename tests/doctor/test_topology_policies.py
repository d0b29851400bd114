"""Kubelets are asked for their policies at once, but not many at a time, not for long, and not without permission."""

from __future__ import annotations

import asyncio

import pytest

from gas.cluster.connection import ApiServer
from gas.cluster.errors import Forbidden
from gas.doctor.checks import plugins
from gas.doctor.checks.plugins import read_topology_policies
from gas.doctor.findings import Unseen

NODES = [f"gpu-{number}" for number in range(100)]


class Kubelets(ApiServer):
    """An API server whose kubelets need ``seconds`` for a response; it may refuse all of them."""

    def __init__(self, seconds: float = 0, *, refuses: bool = False) -> None:
        self.asked: list[str] = []
        self.most_at_once = 0
        self._at_once = 0
        self._seconds = seconds
        self._refuses = refuses

    async def request(self, method: str, path: str, *, timeout: float = 30, **_: object) -> bytes:
        self.asked.append(path)
        self._at_once += 1
        self.most_at_once = max(self.most_at_once, self._at_once)
        await asyncio.sleep(min(self._seconds, timeout))
        self._at_once -= 1
        if self._refuses:
            raise Forbidden("Forbidden", "no", request=f"{method} {path}")
        return b'{"kubeletconfig":{"topologyManagerPolicy":"restricted"},"other":1}'


async def test_all_kubelets_are_asked_through_the_proxy_of_their_nodes() -> None:
    api = Kubelets()
    assert await read_topology_policies(api, NODES, 1) == dict.fromkeys(NODES, "restricted")
    assert sorted(api.asked) == sorted(f"/api/v1/nodes/{node}/proxy/configz" for node in NODES)
    assert 1 < api.most_at_once <= 20


async def test_after_a_refusal_no_further_kubelet_is_asked() -> None:
    api = Kubelets(0.001, refuses=True)
    policies = await read_topology_policies(api, NODES, 1)
    assert len(api.asked) <= 20
    assert policies.keys() == set(NODES)
    assert all(isinstance(policy, Unseen) for policy in policies.values())


async def test_slow_kubelets_are_not_awaited_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugins, "IN_ALL", 0.05)
    async with asyncio.timeout(10):
        await read_topology_policies(Kubelets(60), NODES, 60)


async def test_a_name_that_no_node_can_have_is_only_unseen() -> None:
    policies = await read_topology_policies(Kubelets(), ["..", "gpu-1"], 1)
    assert isinstance(policies[".."], Unseen)
    assert policies["gpu-1"] == "restricted"
