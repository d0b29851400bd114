"""The API server as tests use it: pauses, interceptions, bookmarks, its own thread."""

from __future__ import annotations

import asyncio
import json
import urllib.request

import aiohttp
import pytest

from sandbox.api.client import ApiClient, RefusedByApi
from sandbox.api.kinds import NODES
from sandbox.api.routes import Settings
from sandbox.api.server import ApiServer
from tests.sandbox.api.api_server_thread import api_server_thread
from tests.sandbox.objects import PATIENCE, PODS, node, pod


async def test_a_pause_ends_watches_refuses_connections_and_keeps_the_state(
    server: ApiServer, client: ApiClient
) -> None:
    created = await client.post(PODS, pod("p"))
    async with client.watch(PODS, created["metadata"]["resourceVersion"]) as events:
        await server.pause()
        assert [event async for event in events] == []
    with pytest.raises(aiohttp.ClientError):
        await client.get(PODS)
    url = server.url
    await server.resume()
    assert server.url == url
    assert await client.get(f"{PODS}/p") == created


async def test_history_is_limited() -> None:
    async with ApiServer(history=3) as server, ApiClient(server.url) as client:
        first = server.api.create(NODES, None, node("n0"))
        for number in range(1, 5):
            server.api.create(NODES, None, node(f"n{number}"))
        with pytest.raises(RefusedByApi, match="too old resource version") as refused:
            async with client.watch("/api/v1/nodes", str(first.version)) as events:
                await anext(events)
        assert refused.value.code == 410


async def test_bookmarks_are_sent_at_intervals() -> None:
    async with (
        ApiServer(Settings(bookmark_seconds=0.05)) as server,
        ApiClient(server.url) as client,
        client.watch("/api/v1/nodes", "1", fieldSelector="metadata.name=none") as events,
    ):
        for name in ("a", "b"):
            stored = server.api.create(NODES, None, node(name))
            word, value = await asyncio.wait_for(anext(events), PATIENCE)
            assert word == "BOOKMARK"
            assert value["metadata"]["resourceVersion"] == str(stored.version)


def test_a_thread_serves_callers_without_an_event_loop() -> None:
    with api_server_thread() as running:
        running.call(lambda server: server.api.create(NODES, None, node("n")))
        assert _node_names(running.url) == ["n"]
        running.pause()
        with pytest.raises(OSError, match="refused"):
            _node_names(running.url)
        running.resume()
        assert _node_names(running.url) == ["n"]


def _node_names(url: str) -> list[str]:
    with urllib.request.urlopen(f"{url}/api/v1/nodes", timeout=PATIENCE) as response:
        return [item["metadata"]["name"] for item in json.load(response)["items"]]


@pytest.mark.parametrize("amount", ["1e300", "1e-300", "1e9999", f"{2**700}Ki"])
async def test_an_amount_of_hundreds_of_digits_is_kept_as_it_was_written(client: ApiClient, amount: str) -> None:
    made = pod("p")
    made["spec"]["containers"][0]["resources"] = {"limits": {"cpu": amount}}
    created = await client.post(PODS, made)
    assert created["spec"]["containers"][0]["resources"]["limits"] == {"cpu": amount}
