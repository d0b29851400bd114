"""A bare client of the Kubernetes API for the behaviour suite: it shows what came over the wire and hides nothing."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp

MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
JSON = "application/json-patch+json"

PATIENCE = 20
"""Seconds after which something that should have come is missing; a busy machine needs far less."""


@dataclass(frozen=True, slots=True)
class Answer:
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
        """The names of the items of a list, in its order."""
        return [item["metadata"]["name"] for item in self.body["items"]]

    @property
    def refusal(self) -> tuple[int, str]:
        """Code and reason of a Status, checked to be one."""
        assert self.body["kind"] == "Status", self.body
        assert self.body["status"] == "Failure", self.body
        assert self.body["code"] == self.code, self.body
        return self.code, self.body.get("reason", "")


class Events:
    """The lines of one open watch."""

    def __init__(self, content: aiohttp.StreamReader) -> None:
        self._content = content

    async def next(self) -> tuple[str, Any]:
        """The next (type, object)."""
        line = await asyncio.wait_for(self._content.readline(), PATIENCE)
        assert line, "the watch ended where an event was expected"
        event = json.loads(line)
        return event["type"], event["object"]

    async def seen(self, count: int) -> list[tuple[str, str]]:
        """The next ``count`` events as (type, name)."""
        found = [await self.next() for _ in range(count)]
        return [(word, value["metadata"]["name"]) for word, value in found]

    async def rest(self) -> list[tuple[str, Any]]:
        """All events until the watch ends by itself."""
        text = await asyncio.wait_for(self._content.read(), PATIENCE)
        events = [json.loads(line) for line in text.splitlines()]
        return [(event["type"], event["object"]) for event in events]


@dataclass(frozen=True, slots=True, kw_only=True)
class KubeApi:
    """The API under test, and a namespace of its own for one test.

    compact    make all older versions unavailable; None where that cannot be done
    powerless  headers of a user without any permission; None where there is none
    """

    session: aiohttp.ClientSession
    namespace: str
    compact: Callable[[], Awaitable[None]] | None
    powerless: dict[str, str] | None

    @property
    def pods(self) -> str:
        return f"/api/v1/namespaces/{self.namespace}/pods"

    @property
    def leases(self) -> str:
        return f"/apis/coordination.k8s.io/v1/namespaces/{self.namespace}/leases"

    @property
    def events(self) -> str:
        return f"/api/v1/namespaces/{self.namespace}/events"

    async def get(self, path: str, **query: str) -> Answer:
        return await self.send("GET", path, query=query)

    async def post(self, path: str, value: Any) -> Answer:
        return await self.send("POST", path, value)

    async def put(self, path: str, value: Any) -> Answer:
        return await self.send("PUT", path, value)

    async def patch(self, path: str, value: Any, content_type: str = MERGE) -> Answer:
        return await self.send("PATCH", path, value, content_type=content_type)

    async def delete(self, path: str, options: Any = None) -> Answer:
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
    ) -> Answer:
        """One request; ``value`` is sent as JSON, or as it is when it is bytes."""
        body = value if isinstance(value, bytes) or value is None else json.dumps(value).encode()
        sent = {"Content-Type": content_type, **(headers or {})} if body is not None else headers
        async with self.session.request(method, path, data=body, params=query, headers=sent) as response:
            return Answer(response.status, await response.json())

    @asynccontextmanager
    async def watch(self, path: str, **query: str) -> AsyncIterator[Events]:
        async with self.session.get(path, params={"watch": "true", **query}) as response:
            assert response.status == 200, await response.text()
            yield Events(response.content)

    async def create_pod(self, name: str, **parts: Any) -> Answer:
        answer = await self.post(self.pods, pod(name, **parts))
        assert answer.code == 201, answer.body
        return answer

    async def bind(self, name: str, node: str, **metadata: Any) -> Answer:
        return await self.post(f"{self.pods}/{name}/binding", binding(name, node, **metadata))


def pod(
    name: str,
    *,
    limits: dict[str, Any] | None = None,
    requests: dict[str, Any] | None = None,
    metadata: dict[str, Any] | None = None,
    **spec: Any,
) -> dict[str, Any]:
    """A pod of one container ``c``, as a user writes it."""
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
