"""A minimal client of the Kubernetes API for the behaviour suite. It returns what the server sent, unchanged."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp

MERGE = "application/merge-patch+json"

PATIENCE = 20
"""Seconds after which a test gives up waiting. A busy machine needs far less."""


@dataclass(frozen=True, slots=True)
class Response:
    """A response: its HTTP status and its decoded body."""

    code: int
    body: Any

    def __getitem__(self, name: str) -> Any:
        return self.body[name]

    @property
    def metadata(self) -> dict[str, Any]:
        found: dict[str, Any] = self.body["metadata"]
        return found

    @property
    def version(self) -> str:
        return str(self.metadata["resourceVersion"])

    @property
    def names(self) -> list[str]:
        """Return the names of the items of a list, in their order."""
        return [item["metadata"]["name"] for item in self.body["items"]]

    @property
    def refusal(self) -> tuple[int, str]:
        """Return code and reason of a Status. Fails if the body is not one."""
        assert self.body["kind"] == "Status", self.body
        assert self.body["status"] == "Failure", self.body
        assert self.body["code"] == self.code, self.body
        return self.code, self.body.get("reason", "")


class Events:
    """The lines of one open watch."""

    def __init__(self, content: aiohttp.StreamReader) -> None:
        self._content = content

    async def next(self) -> tuple[str, Any]:
        """Return the next event as (type, object)."""
        line = await asyncio.wait_for(self._content.readline(), PATIENCE)
        assert line, "the watch ended where an event was expected"
        event = json.loads(line)
        return event["type"], event["object"]

    async def seen(self, count: int) -> list[tuple[str, str]]:
        """Return the next ``count`` events as (type, name)."""
        found = [await self.next() for _ in range(count)]
        return [(word, value["metadata"]["name"]) for word, value in found]

    async def rest(self) -> list[tuple[str, Any]]:
        """Return all events until the watch ends by itself."""
        text = await asyncio.wait_for(self._content.read(), PATIENCE)
        events = [json.loads(line) for line in text.splitlines()]
        return [(event["type"], event["object"]) for event in events]


@dataclass(frozen=True, slots=True, kw_only=True)
class KubeApi:
    """The API under test, and a namespace for one test.

    compact    makes all older versions unavailable; None if that is not possible
    powerless  headers of a user without any permission; None if there is none
    crowded    headers of a user whose requests are too many for the server, at least some of them; None if none are
    """

    session: aiohttp.ClientSession
    namespace: str
    compact: Callable[[], Awaitable[None]] | None
    powerless: dict[str, str] | None
    crowded: dict[str, str] | None

    @property
    def pods(self) -> str:
        return f"/api/v1/namespaces/{self.namespace}/pods"

    @property
    def leases(self) -> str:
        return f"/apis/coordination.k8s.io/v1/namespaces/{self.namespace}/leases"

    @property
    def events(self) -> str:
        return f"/api/v1/namespaces/{self.namespace}/events"

    async def get(self, path: str, **query: str) -> Response:
        return await self.send("GET", path, query=query)

    async def post(self, path: str, value: Any) -> Response:
        return await self.send("POST", path, value)

    async def put(self, path: str, value: Any) -> Response:
        return await self.send("PUT", path, value)

    async def patch(self, path: str, value: Any, content_type: str = MERGE) -> Response:
        return await self.send("PATCH", path, value, content_type=content_type)

    async def delete(self, path: str, options: Any = None) -> Response:
        return await self.send("DELETE", path, options)

    async def send(
        self,
        method: str,
        path: str,
        value: Any = None,
        *,
        query: dict[str, str] | None = None,
        content_type: str = "application/json",
        headers: dict[str, str] | None = None,
    ) -> Response:
        """Send a request. ``value`` is sent as JSON, bytes unchanged."""
        body = value if isinstance(value, bytes) or value is None else json.dumps(value).encode()
        sent = {"Content-Type": content_type, **(headers or {})} if body is not None else headers
        async with self.session.request(method, path, data=body, params=query, headers=sent) as response:
            return Response(response.status, await response.json())

    @asynccontextmanager
    async def watch(self, path: str, **query: str) -> AsyncIterator[Events]:
        async with self.session.get(path, params={"watch": "true", **query}) as response:
            assert response.status == 200, await response.text()
            yield Events(response.content)

    async def create_pod(self, name: str, **parts: Any) -> Response:
        response = await self.post(self.pods, pod(name, **parts))
        assert response.code == 201, response.body
        return response

    async def bind(self, name: str, node: str, **metadata: Any) -> Response:
        return await self.post(f"{self.pods}/{name}/binding", binding(name, node, **metadata))


def pod(
    name: str,
    *,
    limits: dict[str, Any] | None = None,
    requests: dict[str, Any] | None = None,
    metadata: dict[str, Any] | None = None,
    **spec: Any,
) -> dict[str, Any]:
    """Return a pod with one container ``c``, as a user writes it."""
    resources = {word: amounts for word, amounts in (("limits", limits), ("requests", requests)) if amounts}
    container = {"name": "c", "image": "example/c:1", "resources": resources}
    return {
        "metadata": {"name": name, **(metadata or {})},
        "spec": {"automountServiceAccountToken": False, "containers": [container], **spec},
    }


def binding(name: str, node: str, **metadata: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": name, **metadata},
        "target": {"kind": "Node", "name": node},
    }
