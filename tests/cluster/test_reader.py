"""The requests of commands: what is sent, and the sentence for each way in which a server fails."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from gas.cluster import connection as connection_module
from gas.cluster import reader as reader_module
from gas.cluster.credentials import find_credentials
from gas.cluster.errors import ApiRefused, ApiUnavailable, Forbidden
from gas.cluster.reader import Reader, Reads
from sandbox.programs import write_kubeconfig
from tests.cluster.certificates import serving_context
from tests.cluster.scripted_server import (
    ScriptedServer,
    Step,
    answer,
    connected,
    hang,
    hang_up,
    refuse,
    stream,
)


@asynccontextmanager
async def reading(directory: Path, url: str, *, ca: Path | None = None, **user: Any) -> AsyncIterator[Reader]:
    config = write_kubeconfig(directory / "config", url, ca=ca, **{"token": "secret", **user})
    reader = Reader(await find_credentials(str(config)), user_agent="test", patience=0.3)
    try:
        yield reader
    finally:
        reader.close()


async def test_a_request_is_sent_as_the_kubeconfig_says(tmp_path: Path) -> None:
    ca, tls = serving_context(tmp_path, "test-ca")
    acting: dict[str, Any] = {"as": "jane", "as-groups": ["dev"]}
    async with (
        ScriptedServer(stream(b"whole", end="clean"), tls=tls) as server,
        reading(tmp_path, f"{server.url}/under", ca=ca, **acting) as reader,
    ):
        assert await reader.request("GET", "/api/v1/nodes/a%2Fb", query={"x": "1 &"}) == b"whole"
    (seen,) = server.seen
    assert (seen.method, seen.path, seen.query) == ("GET", "/under/api/v1/nodes/a%2Fb", {"x": "1 &"})
    assert seen.headers["authorization"] == "Bearer secret"
    assert seen.headers["user-agent"] == "test"
    assert (seen.headers["impersonate-user"], seen.headers["impersonate-group"]) == ("jane", "dev")


@pytest.mark.parametrize(
    ("step", "kind", "words"),
    [
        pytest.param(refuse(404, "NotFound"), ApiRefused, "refused GET /x: 404", id="refused"),
        pytest.param(refuse(403, "Forbidden"), Forbidden, "403", id="forbidden"),
        pytest.param(refuse(500), ApiUnavailable, "failed at GET /x", id="server-at-fault"),
        pytest.param(hang, ApiUnavailable, "within 0.3 s to GET /x", id="silent"),
        pytest.param(stream(b"half"), ApiUnavailable, "within 0.3 s to GET /x", id="silent-within-the-answer"),
        pytest.param(hang_up, ApiUnavailable, "broke during GET /x", id="closed-before-the-answer"),
        pytest.param(stream(b"half", end="cut"), ApiUnavailable, "broke during GET /x", id="closed-within-the-answer"),
    ],
)
async def test_a_failure_is_a_sentence(tmp_path: Path, step: Step, kind: type[Exception], words: str) -> None:
    async with ScriptedServer(route=lambda seen: step) as server, reading(tmp_path, server.url) as reader:
        with pytest.raises(kind) as caught:
            await reader.request("GET", "/x")
        assert words in str(caught.value)
        assert type(caught.value) is kind


LARGE = b"x" * 2001


@pytest.mark.parametrize(
    "step", [pytest.param(answer(200, LARGE), id="declared"), pytest.param(stream(LARGE, end="clean"), id="chunked")]
)
async def test_a_response_that_is_too_large_is_not_kept(
    tmp_path: Path, step: Step, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader_module, "LARGEST_RESPONSE", 2000)
    monkeypatch.setattr(connection_module, "LARGEST_RESPONSE", 2000)
    async with (
        ScriptedServer(route=lambda seen: step) as server,
        reading(tmp_path, server.url) as reader,
        connected(server.url, tmp_path) as api,
    ):
        clients: tuple[Reads, ...] = (reader, api)
        for client in clients:
            with pytest.raises(ApiUnavailable, match=r"during GET /x: the response .*has more than 2000 bytes"):
                await client.request("GET", "/x")


async def test_a_server_that_cannot_be_reached_or_trusted_is_named(tmp_path: Path) -> None:
    _, tls = serving_context(tmp_path, "one")
    other, _ = serving_context(tmp_path, "other")
    async with ScriptedServer(tls=tls) as server, reading(tmp_path, server.url, ca=other) as reader:
        with pytest.raises(ApiUnavailable, match=f"cannot talk TLS with the API server at {server.url}: .*verify"):
            await reader.request("GET", "/x")
    async with reading(tmp_path, server.url) as reader:
        with pytest.raises(ApiUnavailable, match=f"cannot connect to the API server at {server.url}: .*refused"):
            await reader.request("GET", "/x")


async def test_a_429_is_repeated_after_the_time_in_retry_after(tmp_path: Path) -> None:
    async with (
        ScriptedServer(refuse(429, Retry_After="0"), answer(200, b"late")) as server,
        reading(tmp_path, server.url) as reader,
    ):
        assert await reader.request("GET", "/x") == b"late"


async def test_a_connection_is_used_again_and_replaced_when_the_server_has_closed_it(tmp_path: Path) -> None:
    writers: list[asyncio.StreamWriter] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        for _ in range(2):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server, reading(tmp_path, url) as reader:
        assert [await reader.request("GET", "/x") for _ in range(4)] == [b"ok"] * 4
        await asyncio.gather(*(writer.wait_closed() for writer in writers))
    assert len(writers) == 2
