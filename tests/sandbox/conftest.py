"""A running API server and a client of it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from sandbox.api.client import ApiClient
from sandbox.api.server import ApiServer


@pytest.fixture
async def server() -> AsyncIterator[ApiServer]:
    async with ApiServer() as server:
        yield server


@pytest.fixture
async def client(server: ApiServer) -> AsyncIterator[ApiClient]:
    async with ApiClient(server.url) as client:
        yield client
