"""Connections of the scheduler when a replica is not ready: only those that were given that response end."""

from __future__ import annotations

import asyncio
import json
import logging
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from gas.extender.command_line import parse_flags
from gas.extender.program import run_extender
from sandbox.api.failure import ApiFailure
from sandbox.api.kinds import LEASES, NODES, PODS
from sandbox.api.routes import Access
from sandbox.api.server import ApiServer
from sandbox.certificates import Authority
from sandbox.programs import write_kubeconfig
from tests.builders import container, node_json, pod_json
from tests.e2e.ports import free_port
from tests.extender.handshakes import client_context


@dataclass
class Answer:
    """The body of a response, and whether its connection ends with it."""

    body: dict[str, Any]
    closes: bool


class Scheduler:
    """Call the extender as kube-scheduler does: over TLS, on connections kept for the next request."""

    def __init__(self, port: int, tls: ssl.SSLContext) -> None:
        self._url = f"https://127.0.0.1:{port}/scheduler"
        self._tls = tls

    def connection(self) -> aiohttp.ClientSession:
        """Return a session whose requests share one connection."""
        return aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=self._tls, limit=1))

    async def filter(self, session: aiohttp.ClientSession, pod: Mapping[str, Any]) -> Answer:
        return await self._post(session, "filter", {"Pod": pod, "NodeNames": ["n1"]})

    async def bind(self, session: aiohttp.ClientSession, pod: Mapping[str, Any]) -> Answer:
        names = {f"Pod{key}": pod["metadata"][key.lower()] for key in ("Name", "Namespace", "UID")}
        return await self._post(session, "bind", {**names, "Node": "n1"})

    async def filter_until_a_node_passes(self, pod: Mapping[str, Any]) -> list[Answer]:
        """Ask until a node passes, each time on a new connection. The last of the returned responses has the node."""
        answers: list[Answer] = []
        while not answers or not answers[-1].body["NodeNames"]:
            async with self.connection() as session:
                try:
                    answers.append(await self.filter(session, pod))
                except aiohttp.ClientConnectorError:  # it does not listen yet
                    continue
            answers[-1].body.setdefault("NodeNames", None)
            await asyncio.sleep(0.01)
        return answers

    async def _post(self, session: aiohttp.ClientSession, verb: str, body: object) -> Answer:
        headers = {"Content-Type": "application/json"}
        async with session.post(f"{self._url}/{verb}", data=json.dumps(body), headers=headers) as response:
            return Answer(await response.json(), response.headers.get("Connection") == "close")


@asynccontextmanager
async def extender(server: ApiServer, directory: Path, authority: Authority, *flags: str) -> AsyncIterator[Scheduler]:
    """Run the whole program, serving over TLS, while the block runs. It may not be ready yet."""
    port = free_port()
    pair = authority.server()
    options = {
        "kubeConfig": write_kubeconfig(directory / "kubeconfig", server.url, token="any"),
        "cert": pair.certificate,
        "key": pair.key,
        "cacert": authority.certificate,
        "bind-address": "127.0.0.1",
        "port": port,
        "metrics-address": "127.0.0.1",
        "metrics-port": 0,
    }
    argv = [*(f"--{name}={value}" for name, value in options.items()), *flags]
    running = asyncio.create_task(run_extender(parse_flags(argv), "1"))
    try:
        yield Scheduler(port, client_context(authority, authority.client("scheduler")))
        assert not running.done(), running
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


@pytest.fixture
async def server() -> AsyncIterator[ApiServer]:
    async with ApiServer() as server:
        server.api.create(NODES, None, node_json("n1", cards=8))
        yield server


def add_pod(server: ApiServer, name: str) -> dict[str, Any]:
    sent = pod_json(container(i915=1) | {"image": "example/main:1"}, name=name)
    del sent["metadata"]["uid"]
    return dict(server.api.create(PODS, "default", sent).value)


def slow_bindings(server: ApiServer, seconds: float) -> None:
    """Make the API server take this long for each Binding."""

    async def intercept(access: Access) -> ApiFailure | None:
        if access.subresource == "binding":
            await asyncio.sleep(seconds)
        return None

    server.settings.intercept = intercept


async def test_a_not_ready_response_ends_its_own_connection_and_no_other(
    server: ApiServer, tmp_path: Path, authority: Authority
) -> None:
    """A client that asks until a node passes and then goes on over new connections loses no request."""
    pods = [add_pod(server, f"pod-{number}") for number in range(4)]
    listed = asyncio.Event()

    async def hold_the_first_list(access: Access) -> ApiFailure | None:
        if access.kind is PODS and access.verb == "list":
            await listed.wait()
        return None

    server.settings.intercept = hold_the_first_list
    async with extender(server, tmp_path, authority) as scheduler:
        asking = asyncio.create_task(scheduler.filter_until_a_node_passes(pods[0]))
        await asyncio.sleep(0.3)
        listed.set()
        *not_ready, passed = await asking
        assert not_ready
        assert all("first list" in answer.body["Error"] for answer in not_ready)
        assert passed.body["NodeNames"] == ["n1"]
        assert not passed.closes

        slow_bindings(server, 0.5)
        sessions = [scheduler.connection() for _ in pods]
        answers = await asyncio.gather(
            *(scheduler.bind(session, pod) for session, pod in zip(sessions, pods, strict=True))
        )
        assert [(answer.body["Error"], answer.closes) for answer in answers] == [("", False)] * len(pods)
        assert all(answer.closes for answer in not_ready)
        for session in sessions:
            await session.close()


async def test_a_replica_that_stops_leading_finishes_requests_in_progress_and_ends_connections_one_by_one(
    server: ApiServer, tmp_path: Path, authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    pod = add_pod(server, "pod")
    async with extender(server, tmp_path, authority, "--leader-elect") as scheduler:
        await scheduler.filter_until_a_node_passes(pod)
        async with scheduler.connection() as binding, scheduler.connection() as idle:
            assert not (await scheduler.filter(idle, pod)).closes
            slow_bindings(server, 3.0)
            bound = asyncio.create_task(scheduler.bind(binding, pod))
            spec = dict(server.api.get(LEASES, "default", "gas-extender").value["spec"], holderIdentity="another")
            patch = json.dumps({"spec": spec}).encode()
            server.api.patch(LEASES, "default", "gas-extender", ("application/merge-patch+json", patch))
            async with asyncio.timeout(10):
                while "this replica no longer leads" not in caplog.messages:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            assert not bound.done()
            told = await scheduler.filter(idle, pod)
            assert "is not the leader" in told.body["Error"]
            assert told.closes
            answer = await bound
            assert answer.body["Error"] == ""
            assert not answer.closes
