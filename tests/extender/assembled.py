"""The whole extender on the sandbox's API server."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from gas.extender.assembly import Extender
from gas.extender.command_line import parse_flags
from gas.extender.metrics import Metrics
from gas.ledger.ledger import State
from sandbox.api.kinds import NODES, PODS
from sandbox.api.server import ApiServer
from tests.background import eventually, in_background
from tests.builders import container, node_json, pod_json
from tests.cluster.scripted_server import connected


@asynccontextmanager
async def extender(
    server: ApiServer, directory: Path, *flags: str, ready: bool = True, token: str = "any", **changes: Any
) -> AsyncIterator[Extender]:
    """Run an extender on this server while the block runs; ``changes`` to what the flags say."""
    async with connected(server.url, directory, token=token) as api:
        running = Extender(api, replace(parse_flags(flags), **changes), Metrics("1"))
        async with in_background(running.run()):
            if ready:
                await eventually(running.readiness.may_act)
            yield running


def add_node(server: ApiServer, name: str = "n1", **fields: Any) -> None:
    server.api.create(NODES, None, node_json(name, **fields))


def add_pod(
    server: ApiServer, name: str, *, cards: int = 1, priority: int | None = None, **fields: Any
) -> dict[str, Any]:
    """Create a pod that needs so many whole cards, and return it with its UID."""
    sent = pod_json(container(i915=cards) | {"image": "example/main:1"}, name=name, **fields)
    if priority is not None:
        sent["spec"]["priority"] = priority
    del sent["metadata"]["uid"]
    return dict(server.api.create(PODS, "default", sent).value)


def pod_now(server: ApiServer, name: str) -> dict[str, Any]:
    return dict(server.api.get(PODS, "default", name).value)


def remove_pod(server: ApiServer, name: str) -> None:
    server.api.delete(PODS, "default", name, {"gracePeriodSeconds": 0})


async def passing(running: Extender, pod: dict[str, Any], *names: str) -> list[str]:
    answer = json.loads(await running.filter(json.dumps({"Pod": pod, "NodeNames": names}).encode()))
    assert answer["Error"] == ""
    found: list[str] = answer["NodeNames"]
    return found


async def bind(running: Extender, pod: dict[str, Any], node: str = "n1") -> str:
    metadata = pod["metadata"]
    args = {
        "PodName": metadata["name"],
        "PodNamespace": metadata["namespace"],
        "PodUID": metadata["uid"],
        "Node": node,
    }
    answer: dict[str, str] = json.loads(await running.binder(json.dumps(args).encode()))
    return answer["Error"]


def state(running: Extender, pod: dict[str, Any]) -> State | None:
    booking = running.decider.ledger.booking(pod["metadata"]["uid"])
    return booking.state if booking is not None else None
