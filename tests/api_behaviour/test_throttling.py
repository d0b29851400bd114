"""Requests that are too many for the API server."""

from __future__ import annotations

import asyncio

import pytest

from tests.api_behaviour.client import PATIENCE, KubeApi

AT_ONCE = 40


async def test_too_many_requests_are_refused_as_text_with_a_time_to_wait(api: KubeApi) -> None:
    if api.crowded is None:
        pytest.skip("this API server does not limit how many requests it processes: GAS_API_CROWDED is not set")

    async def ask() -> tuple[int, str | None, str, str]:
        async with api.session.get(api.pods, headers=api.crowded) as response:
            headers = response.headers
            return response.status, headers.get("Retry-After"), headers["Content-Type"], await response.text()

    refused: set[tuple[int, str | None, str, str]] = set()
    async with asyncio.timeout(PATIENCE):
        while not refused:
            found = await asyncio.gather(*(ask() for _ in range(AT_ONCE)))
            refused = {response for response in found if response[0] == 429}
    assert refused == {(429, "1", "text/plain; charset=utf-8", "Too many requests, please try again later.\n")}
