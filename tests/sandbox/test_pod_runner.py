"""Pods that are bound run, end and go."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from gas.sandbox.access import Access
from gas.sandbox.api_client import ApiClient
from gas.sandbox.api_server import ApiServer
from gas.sandbox.failure import ApiFailure
from gas.sandbox.pod_runner import RUN_SECONDS, STOP_SECONDS, Pace, PodRunner
from tests.sandbox.objects import PODS, phase, pod, until, until_true

Bound = Callable[..., Awaitable[dict[str, Any]]]


@pytest.fixture
async def bound(client: ApiClient) -> AsyncIterator[Bound]:
    """Creates a pod on a node, while a runner is at work."""

    async def create(name: str, **parts: Any) -> dict[str, Any]:
        created = await client.post(PODS, pod(name, **parts))
        await client.post(f"{PODS}/{name}/binding", {"metadata": {"name": name}, "target": {"name": "n"}})
        return created

    running = asyncio.create_task(PodRunner(client, Pace(init=0.1)).run())
    yield create
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


async def _until_gone(client: ApiClient, name: str) -> None:
    async def look() -> dict[str, Any]:
        return await client.get(PODS, fieldSelector=f"metadata.name={name}")

    await until_true(look, lambda listed: not listed["items"])


async def test_a_bound_pod_runs_until_it_is_told_to_end(client: ApiClient, bound: Bound) -> None:
    await bound("p")
    running = await until(client, "p", lambda value: phase(value) == "Running")
    ready = [c["status"] for c in running["status"]["conditions"] if c["type"] == "Ready"]
    assert ready == ["True"]
    assert running["status"]["containerStatuses"][0]["ready"] is True


async def test_a_pod_with_a_time_succeeds_after_it(client: ApiClient, bound: Bound) -> None:
    await bound("p", annotations={RUN_SECONDS: "0.2"})
    await until(client, "p", lambda value: phase(value) == "Running")
    await until(client, "p", lambda value: phase(value) == "Succeeded")


async def test_init_containers_run_first(client: ApiClient, bound: Bound) -> None:
    init = [{"name": "i", "image": "x"}, {"name": "s", "image": "x", "restartPolicy": "Always"}]
    loop = asyncio.get_running_loop()
    begin = loop.time()
    await bound("p", initContainers=init)
    await until(client, "p", lambda value: phase(value) == "Running")
    assert loop.time() - begin >= 0.1


async def test_a_pod_without_a_node_is_left_alone(client: ApiClient, bound: Bound) -> None:
    await client.post(PODS, pod("unbound"))
    await bound("p", annotations={RUN_SECONDS: "0"})
    await until(client, "p", lambda value: phase(value) == "Succeeded")
    assert phase(await client.get(f"{PODS}/unbound")) == "Pending"


async def test_a_deleted_pod_ends_and_then_goes(client: ApiClient, bound: Bound) -> None:
    created = await bound("p", annotations={STOP_SECONDS: "0.3"})
    await until(client, "p", lambda value: phase(value) == "Running")
    async with client.watch(PODS, created["metadata"]["resourceVersion"]) as events:
        await client.delete(f"{PODS}/p")
        assert phase(await client.get(f"{PODS}/p")) == "Running", "the containers run through the grace period"
        await _until_gone(client, "p")
        seen = []
        async for event in events:
            seen.append((phase(event.value), "deletionTimestamp" in event.value["metadata"]))
            if event.word == "DELETED":
                break
    assert seen.index(("Running", True)) < seen.index(("Succeeded", True))


async def test_no_pod_outlives_its_grace_period(client: ApiClient, bound: Bound) -> None:
    await bound("p", annotations={STOP_SECONDS: "1000"}, terminationGracePeriodSeconds=1)
    await until(client, "p", lambda value: phase(value) == "Running")
    await client.delete(f"{PODS}/p")
    await _until_gone(client, "p")


async def test_pods_run_on_while_the_api_server_is_away(server: ApiServer, client: ApiClient, bound: Bound) -> None:
    await bound("p", annotations={RUN_SECONDS: "0.1"})
    await until(client, "p", lambda value: phase(value) == "Running")
    await server.pause()
    await asyncio.sleep(0.3)
    await server.resume()
    await until(client, "p", lambda value: phase(value) == "Succeeded")


async def test_a_failing_api_server_is_asked_again(server: ApiServer, client: ApiClient, bound: Bound) -> None:
    failures = [ApiFailure(500, "InternalError", "etcdserver: request timed out") for _ in range(2)]

    async def fail_at_first(access: Access) -> ApiFailure | None:
        return failures.pop() if access.resource == "pods/status" and failures else None

    server.surroundings.intercept = fail_at_first
    await bound("p")
    await until(client, "p", lambda value: phase(value) == "Running")
    assert failures == []


async def test_a_recreated_pod_runs_anew(client: ApiClient, bound: Bound) -> None:
    await bound("p", annotations={RUN_SECONDS: "0"})
    await until(client, "p", lambda value: phase(value) == "Succeeded")
    await client.delete(f"{PODS}/p")
    await bound("p")
    await until(client, "p", lambda value: phase(value) == "Running")
