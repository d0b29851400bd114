"""Pods and nodes for tests, and waiting for a state."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from sandbox.api.client import ApiClient

I915 = "gpu.intel.com/i915"
PODS = "/api/v1/namespaces/default/pods"
PATIENCE = 20
"""Seconds after which a test gives up waiting."""


def pod(name: str, *, annotations: dict[str, str] | None = None, cards: int = 1, **spec: Any) -> dict[str, Any]:
    amounts = {"limits": {I915: str(cards)}, "requests": {I915: str(cards)}} if cards else {}
    return {
        "metadata": {"name": name, "namespace": "default", "annotations": annotations or {}},
        "spec": {"containers": [{"name": "c", "image": "example/c:1", "resources": amounts}], **spec},
    }


def node(name: str, cards: int = 1, **labels: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "labels": labels}, "status": {"allocatable": {I915: str(cards)}}}


async def until(client: ApiClient, name: str, holds: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
    """Return the pod as soon as ``holds`` is true of it."""

    async def now() -> dict[str, Any]:
        return await client.get(f"{PODS}/{name}")

    return await until_true(now, holds)


async def until_true(
    look: Callable[[], Awaitable[dict[str, Any]]], holds: Callable[[dict[str, Any]], object]
) -> dict[str, Any]:
    """Return the result of ``look`` as soon as ``holds`` is true of it."""
    async with asyncio.timeout(PATIENCE):
        while True:
            if holds(found := await look()):
                return found
            await asyncio.sleep(0.01)


def phase(value: dict[str, Any]) -> str:
    return str(value["status"]["phase"])
