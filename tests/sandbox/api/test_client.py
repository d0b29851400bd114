"""Mirrors that follow the API server, and events that are counted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from sandbox.api.client import ApiClient, Mirror, Object
from sandbox.api.kinds import NODES as KIND
from sandbox.api.server import ApiServer
from tests.sandbox.objects import PATIENCE, node

NODES = "/api/v1/nodes"


class _Followed:
    """Run a mirror of the nodes, and record what it reports."""

    def __init__(self, client: ApiClient) -> None:
        self.told: list[str] = []
        self.mirror = Mirror(client, NODES, self._changed)

    def _changed(self, before: Object | None, after: Object | None) -> None:
        value = after or before or {}
        word = "changed" if before and after else "came" if after else "went"
        self.told.append(f"{value['metadata']['name']} {word}")

    async def until_told(self, *lines: str) -> None:
        for _ in range(PATIENCE * 100):
            if sorted(self.told) == sorted(lines):
                break
            await asyncio.sleep(0.01)
        assert sorted(self.told) == sorted(lines)


@pytest.fixture
async def followed(client: ApiClient) -> AsyncIterator[_Followed]:
    followed = _Followed(client)
    running = asyncio.create_task(followed.mirror.run())
    yield followed
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


def _names(mirror: Mirror) -> list[str]:
    return sorted(value["metadata"]["name"] for value in mirror.objects.values())


async def test_a_mirror_has_existing_objects_and_follows_every_change(client: ApiClient, followed: _Followed) -> None:
    await followed.mirror.complete.wait()
    await client.post(NODES, node("a"))
    await client.post(NODES, node("b"))
    await client.patch(f"{NODES}/a", {"metadata": {"labels": {"x": "y"}}})
    await client.delete(f"{NODES}/b")
    await followed.until_told("a came", "b came", "a changed", "b went")
    assert _names(followed.mirror) == ["a"]


async def test_a_mirror_reports_changes_that_happened_while_the_server_was_away(
    server: ApiServer, client: ApiClient, followed: _Followed
) -> None:
    for name in ("stays", "goes", "changes"):
        await client.post(NODES, node(name))
    came = ["stays came", "goes came", "changes came"]
    await followed.until_told(*came)

    await server.pause()
    _while_away(server)
    await server.resume()
    await followed.until_told(*came, "goes went", "changes changed", "new came")
    assert _names(followed.mirror) == ["changes", "new", "stays"]


def _while_away(server: ApiServer) -> None:
    server.api.delete(KIND, None, "goes", {})
    patch = ("application/merge-patch+json", b'{"metadata":{"labels":{"x":"y"}}}')
    server.api.patch(KIND, None, "changes", patch)
    server.api.create(KIND, None, node("new"))
    server.api.storage.compact()
