"""A kubelet's own node: it registers it, and keeps the amounts of devices in its status current."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import aiohttp

from gas.sandbox.api_client import ApiClient, RefusedByApi
from gas.sandbox.device_books import NodeAmounts
from gas.sandbox.quantities import is_extended

Object = dict[str, Any]

_SIZE = {"cpu": "1000", "memory": "4000Gi", "pods": "1000"}


class KubeletNode:
    """One node of the API, as its kubelet writes it."""

    def __init__(self, client: ApiClient, name: str) -> None:
        self._client = client
        self._name = name

    @property
    def _path(self) -> str:
        return f"/api/v1/nodes/{self._name}"

    async def register(self) -> None:
        """Make the node, unless it is there. Raises RefusedByApi, and aiohttp.ClientError."""
        node = {"metadata": {"name": self._name, "labels": {"kubernetes.io/hostname": self._name}}}
        status = {"capacity": _SIZE, "allocatable": _SIZE, "conditions": [{"type": "Ready", "status": "True"}]}
        with suppress(RefusedByApi):  # it is there already
            await self._client.post("/api/v1/nodes", {**node, "status": status})

    async def keep(self, capacity: NodeAmounts, allocatable: NodeAmounts) -> None:
        """Write the amounts of all device resources; what others wrote as capacity is allocatable as well."""
        with suppress(RefusedByApi, aiohttp.ClientError, TimeoutError):
            found = (await self._client.get(self._path)).get("status", {})
            before: Object = {field: found.get(field) or {} for field in ("capacity", "allocatable")}
            now = {name: amount for name, amount in before["capacity"].items() if name not in capacity}
            wanted = {
                "capacity": {name: str(amount) for name, amount in capacity.items()},
                "allocatable": {
                    **{name: amount for name, amount in now.items() if is_extended(name)},
                    **{name: None for name in before["allocatable"] if is_extended(name) and name not in now},
                    **{name: str(amount) for name, amount in allocatable.items()},
                },
            }
            if any(before[field].get(name) != amount for field in wanted for name, amount in wanted[field].items()):
                await self._client.patch(f"{self._path}/status", {"status": wanted})

    async def keep_while(self, amounts: Any, every: float) -> None:
        """Until cancelled. ``amounts`` answers capacity and allocatable."""
        while True:
            await self.keep(*amounts())
            await asyncio.sleep(every)
