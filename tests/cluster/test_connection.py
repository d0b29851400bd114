from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from gas.cluster.connection import ApiServer, connect
from gas.cluster.errors import ApiRefused, ApiUnavailable, Forbidden, OutcomeUnknown
from sandbox.programs import write_kubeconfig
from tests.background import eventually
from tests.cluster.certificates import serving_context
from tests.cluster.scripted_server import ScriptedServer, Step, answer, connected, hang, hang_up, refuse, stream


@asynccontextmanager
async def connected_by(kubeconfig: Path, **limits: Any) -> AsyncIterator[ApiServer]:
    api = await connect(str(kubeconfig), **limits)
    try:
        yield api
    finally:
        await api.close()


async def test_a_request_is_sent_as_given(tmp_path: Path) -> None:
    async with ScriptedServer(answer(201, b"made")) as server, connected(server.url, tmp_path) as api:
        body = await api.request(
            "PATCH",
            "/api/v1/nodes/a%2Fb",
            query={"x": "1 &"},
            body=b'{"a":1}',
            content_type="application/merge-patch+json",
        )
    seen = server.seen[0]
    assert body == b"made"
    assert (seen.method, seen.path, seen.query, seen.body) == ("PATCH", "/api/v1/nodes/a%2Fb", {"x": "1 &"}, b'{"a":1}')
    assert seen.headers["content-type"] == "application/merge-patch+json"
    assert seen.headers["authorization"] == "Bearer secret"
    assert seen.headers["accept-encoding"] == "identity"


async def test_a_request_is_made_for_the_account_that_the_kubeconfig_acts_as(tmp_path: Path) -> None:
    acting: dict[str, Any] = {"as": "jane", "as-groups": ["dev", "ops"]}
    async with ScriptedServer(answer(200, b"{}")) as server:
        config = write_kubeconfig(tmp_path / "config", server.url, **acting)
        api = await connect(str(config))
        await api.request("GET", "/version")
        await api.close()
    assert server.seen[0].headers["impersonate-user"] == "jane"
    assert server.seen[0].headers["impersonate-group"] in ("dev", "ops")  # the server keeps one of equal names


CUT_SHORT = b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf"


async def cut_short(writer: asyncio.StreamWriter) -> None:
    writer.write(CUT_SHORT)
    await writer.drain()


@pytest.mark.parametrize(
    ("step", "of_a_read", "of_a_write"),
    [
        pytest.param(refuse(404, "NotFound"), ApiRefused, ApiRefused, id="refused"),
        pytest.param(refuse(500, "InternalError"), ApiUnavailable, OutcomeUnknown, id="server-at-fault"),
        pytest.param(hang, ApiUnavailable, OutcomeUnknown, id="no-answer-in-time"),
        pytest.param(hang_up, ApiUnavailable, OutcomeUnknown, id="connection-died-before-the-answer"),
        pytest.param(cut_short, ApiUnavailable, OutcomeUnknown, id="connection-died-within-the-answer"),
    ],
)
async def test_the_error_class_says_whether_the_write_happened(
    tmp_path: Path, step: Step, of_a_read: type[Exception], of_a_write: type[Exception]
) -> None:
    # aiohttp itself asks a second time when a connection dies under a read.
    async with ScriptedServer(route=lambda seen: step) as server, connected(server.url, tmp_path) as api:
        for method, expected in (("GET", of_a_read), ("POST", of_a_write)):
            with pytest.raises(expected) as caught:
                await api.request(method, "/x", timeout=0.3)
            assert type(caught.value) is expected
            assert "/x" in str(caught.value)


async def test_a_write_without_a_connection_changed_nothing(tmp_path: Path) -> None:
    async with ScriptedServer() as server:
        gone = server.url
    async with connected_by(write_kubeconfig(tmp_path / "config", gone)) as api:
        with pytest.raises(
            ApiUnavailable, match=f"cannot connect to the API server at {gone}: .*Connect call failed"
        ) as caught:
            await api.request("POST", "/x", body=b"{}")
        assert not isinstance(caught.value, OutcomeUnknown)


async def test_a_server_without_a_tls_handshake_changed_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gas.cluster.connection._CONNECT_TIMEOUT", 0.2)
    async with ScriptedServer() as server:
        address = server.url.replace("http:", "https:")
        kubeconfig = write_kubeconfig(tmp_path / "config", address, token="secret")
        async with connected_by(kubeconfig) as api:
            with pytest.raises(ApiUnavailable, match=r"no connection in 0\.2 s") as caught:
                await api.request("POST", "/x", body=b"{}")
            assert not isinstance(caught.value, OutcomeUnknown)


async def test_no_token_is_sent_to_an_untrusted_server_and_the_authority_is_read_again(
    tmp_path: Path,
) -> None:
    trusted, tls = serving_context(tmp_path, "ours")
    foreign, _ = serving_context(tmp_path, "foreign")
    async with ScriptedServer(answer(200, b"done"), tls=tls) as server:
        kubeconfig = write_kubeconfig(tmp_path / "config", server.url, ca=foreign, token="secret")
        async with connected_by(kubeconfig) as api:
            write_kubeconfig(kubeconfig, server.url, ca=trusted, token="secret")
            with pytest.raises(ApiUnavailable, match=r"cannot talk TLS .*certificate verify failed") as caught:
                await api.request("POST", "/x", body=b"{}")
            assert "object at" not in str(caught.value)
            assert not server.seen
            assert await api.request("POST", "/x", body=b"{}") == b"done"


async def test_a_refused_token_is_read_again_and_the_request_repeated(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("old\n")

    def route(seen: object) -> Step:
        fresh = server.seen[-1].headers["authorization"] == "Bearer new"
        return answer(200, b"done") if fresh else refuse(401, "Unauthorized")

    async with ScriptedServer(route=route) as server:
        kubeconfig = write_kubeconfig(tmp_path / "config", server.url, tokenFile=str(token))
        async with connected_by(kubeconfig) as api:
            token.write_text("new\n")
            assert await api.request("POST", "/x", body=b"{}") == b"done"
            assert [seen.headers["authorization"] for seen in server.seen] == ["Bearer old", "Bearer new"]


async def test_a_request_is_repeated_once_for_a_refused_token(tmp_path: Path) -> None:
    always = ScriptedServer(route=lambda seen: refuse(401, "Unauthorized"))
    async with always as server, connected(server.url, tmp_path) as api:
        for _ in range(3):
            with pytest.raises(ApiRefused, match="401 Unauthorized"):
                await api.request("GET", "/x")
    # Read again once at the first refusal; the next time is seconds away.
    assert len(server.seen) == 2 + 1 + 1


async def test_a_429_is_repeated_after_the_time_in_retry_after(tmp_path: Path) -> None:
    steps = (refuse(429, "TooManyRequests", Retry_After="1"), answer(200, b"done"))
    async with ScriptedServer(*steps) as server, connected(server.url, tmp_path) as api:
        started = time.monotonic()
        assert await api.request("POST", "/x", body=b"{}") == b"done"
        assert time.monotonic() - started >= 0.9


async def test_a_429_is_a_refusal_when_the_timeout_ends(tmp_path: Path) -> None:
    steps = (refuse(429, "TooManyRequests", Retry_After="60"),)
    async with ScriptedServer(*steps) as server, connected(server.url, tmp_path) as api:
        with pytest.raises(ApiRefused) as caught:
            await api.request("POST", "/x", body=b"{}", timeout=2)
    assert caught.value.status == 429


async def test_a_429_is_not_repeated_too_late_by_a_process_that_stood_still(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sleep, stands_still = asyncio.sleep, 5.0

    async def sleep_and_stand_still(seconds: float) -> None:
        await sleep(seconds)
        monkeypatch.setattr(api, "_clock", lambda: time.monotonic() + stands_still)

    steps = (refuse(429, "TooManyRequests", Retry_After="0"), answer(200, b"late"))
    async with ScriptedServer(*steps) as server, connected(server.url, tmp_path) as api:
        monkeypatch.setattr("gas.cluster.connection.asyncio.sleep", sleep_and_stand_still)
        with pytest.raises(ApiRefused, match="429"):
            await api.request("POST", "/x", body=b"{}", repeat_within=4.0)
    assert len(server.seen) == 1


async def test_a_redirect_is_not_followed(tmp_path: Path) -> None:
    steps = (answer(307, b"", Location="/elsewhere"), answer(200))
    async with ScriptedServer(*steps) as server, connected(server.url, tmp_path) as api:
        with pytest.raises(ApiRefused, match="307"):
            await api.request("GET", "/x")
    assert len(server.seen) == 1


async def test_the_rate_limit_delays_requests_but_not_urgent_ones(tmp_path: Path) -> None:
    async with ScriptedServer(route=lambda seen: answer()) as server:
        kubeconfig = write_kubeconfig(tmp_path / "config", server.url)
        async with connected_by(kubeconfig, qps=10, burst=1) as api:
            started = time.monotonic()
            await asyncio.gather(*(api.request("GET", "/slow") for _ in range(4)))
            assert time.monotonic() - started >= 0.25
            queue = [asyncio.create_task(api.request("GET", "/slow")) for _ in range(100)]
            await asyncio.sleep(0)
            await api.request("GET", "/urgent", urgent=True)
            assert not all(task.done() for task in queue)
            for task in queue:
                task.cancel()
            await asyncio.gather(*queue, return_exceptions=True)


async def chunks_of(api: ApiServer, silence: float) -> list[bytes]:
    async with api.stream("/x", query={"watch": "1"}, silence=silence) as chunks:
        return [chunk async for chunk in chunks]


async def test_a_stream_yields_chunks_until_the_server_ends_it(tmp_path: Path) -> None:
    async with (
        ScriptedServer(stream(b"one\n", b"two\n", end="clean")) as server,
        connected(server.url, tmp_path) as api,
    ):
        assert b"".join(await chunks_of(api, 10)) == b"one\ntwo\n"
        assert server.seen[0].query == {"watch": "1"}


async def test_a_silent_stream_ends(tmp_path: Path) -> None:
    async with ScriptedServer(stream(b"one\n")) as server, connected(server.url, tmp_path) as api:
        assert b"".join(await chunks_of(api, 0.2)) == b"one\n"


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        pytest.param(stream(b"one\n", end="cut"), ApiUnavailable, id="cut"),
        pytest.param(hang, ApiUnavailable, id="no-answer-at-all"),
        pytest.param(hang_up, ApiUnavailable, id="hung-up"),
        pytest.param(refuse(410, "Expired"), ApiRefused, id="refused"),
        pytest.param(refuse(503), ApiUnavailable, id="server-at-fault"),
    ],
)
async def test_a_stream_that_breaks_raises(tmp_path: Path, step: Step, expected: type[Exception]) -> None:
    async with ScriptedServer(route=lambda seen: step) as server, connected(server.url, tmp_path) as api:
        with pytest.raises(expected):
            await chunks_of(api, 0.3)


async def test_a_stream_is_closed_when_its_block_ends(tmp_path: Path) -> None:
    async with ScriptedServer(stream(b"one\n")) as server, connected(server.url, tmp_path) as api:
        async with api.stream("/x", silence=10) as chunks:
            assert await anext(aiter(chunks)) == b"one\n"
            assert server.open == 1
        await eventually(lambda: not server.open)


class TestForbiddenAfterABrokenConnection:
    """kube-apiserver answers before it has read its roles, and forbids everything for a moment."""

    async def test_counts_as_unavailable_after_a_failed_connection(self, tmp_path: Path) -> None:
        async with ScriptedServer() as gone:
            pass
        async with connected(gone.url, tmp_path) as api:
            with pytest.raises(ApiUnavailable, match="cannot connect"):
                await api.request("GET", "/api/v1/pods")
            async with ScriptedServer(refuse(403, "Forbidden", "no"), port=gone.port):
                with pytest.raises(ApiUnavailable, match="may not have read its roles yet"):
                    await api.request("POST", "/api/v1/pods", body=b"{}")

    async def test_counts_as_unavailable_after_a_connection_that_broke(self, tmp_path: Path) -> None:
        """A server that was killed may be back before any client has failed to connect."""
        async with (
            ScriptedServer(stream(b"one\n", end="cut"), refuse(403, "Forbidden", "no")) as server,
            connected(server.url, tmp_path) as api,
        ):
            with pytest.raises(ApiUnavailable, match="broke during"):
                await chunks_of(api, 10)
            with pytest.raises(ApiUnavailable, match="may not have read its roles yet"):
                await chunks_of(api, 10)

    async def test_counts_as_forbidden_without_such_a_failure(self, tmp_path: Path) -> None:
        async with ScriptedServer(refuse(403, "Forbidden", "no")) as server, connected(server.url, tmp_path) as api:
            with pytest.raises(Forbidden):
                await api.request("GET", "/api/v1/pods")
