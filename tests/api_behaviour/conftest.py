"""The API under test: the sandbox's, or the one that these variables name.

GAS_API_URL              address of a real kube-apiserver; the other variables count only together with it
GAS_API_CA               file with the certificate of its authority
GAS_API_TOKEN            bearer token of a user who may do everything
GAS_API_POWERLESS_TOKEN  bearer token of a user who may do nothing (optional)
GAS_API_CROWDED          not empty if the API server processes one request at a time of such a user (optional)
GAS_API_COMPACT          shell command that makes all older versions unavailable: it compacts etcd and restarts the
                         API server, whose watch cache would still have them (optional)
"""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import AsyncIterator
from uuid import uuid4

import aiohttp
import pytest

from sandbox.api.failure import ApiFailure, throttled
from sandbox.api.routes import Access, Settings
from sandbox.api.server import ApiServer
from tests.api_behaviour.client import KubeApi

_POWERLESS = {"Authorization": "Bearer powerless-token"}
_CROWDED = {"Authorization": "Bearer crowded-token"}


@pytest.fixture
async def api() -> AsyncIterator[KubeApi]:
    namespace = f"behaviour-{uuid4().hex[:12]}"
    if "GAS_API_URL" in os.environ:
        async with _real_session() as session:
            token = os.environ.get("GAS_API_POWERLESS_TOKEN")
            command = os.environ.get("GAS_API_COMPACT")
            powerless = {"Authorization": f"Bearer {token}"} if token else None
            api = KubeApi(
                session=session,
                namespace=namespace,
                compact=(lambda: _run(command)) if command else None,
                powerless=powerless,
                crowded=powerless if os.environ.get("GAS_API_CROWDED") else None,
            )
            await api.post("/api/v1/namespaces", {"metadata": {"name": namespace}})
            await api.post(f"/api/v1/namespaces/{namespace}/serviceaccounts", {"metadata": {"name": "default"}})
            yield api
            await _clear(api)
        return

    tokens = {"admin-token": "admin", "powerless-token": "powerless", "crowded-token": "crowded"}
    server = ApiServer(Settings(tokens=tokens, authorize=_is_allowed, intercept=_throttle))
    headers = {"Authorization": "Bearer admin-token"}
    async with server, aiohttp.ClientSession(server.url, headers=headers) as session:

        async def compact() -> None:
            server.api.storage.compact()

        api = KubeApi(session=session, namespace=namespace, compact=compact, powerless=_POWERLESS, crowded=_CROWDED)
        await api.post("/api/v1/namespaces", {"metadata": {"name": namespace}})
        yield api


def _is_allowed(access: Access) -> bool:
    return access.user != "powerless"


async def _throttle(access: Access) -> ApiFailure | None:
    return throttled() if access.user == "crowded" else None


def _real_session() -> aiohttp.ClientSession:
    trusted = ssl.create_default_context(cafile=os.environ["GAS_API_CA"])
    headers = {"Authorization": f"Bearer {os.environ['GAS_API_TOKEN']}"}
    connector = aiohttp.TCPConnector(ssl=trusted)
    return aiohttp.ClientSession(os.environ["GAS_API_URL"], headers=headers, connector=connector)


async def _run(command: str) -> None:
    process = await asyncio.create_subprocess_shell(command)
    assert await process.wait() == 0, f"GAS_API_COMPACT failed: {command}"


async def _clear(api: KubeApi) -> None:
    for item in (await api.get(api.pods))["items"]:
        await api.patch(f"{api.pods}/{item['metadata']['name']}", {"metadata": {"finalizers": None}})
        await api.delete(f"{api.pods}/{item['metadata']['name']}", {"gracePeriodSeconds": 0})
