"""The call of the extender, as kube-scheduler would make it."""

from __future__ import annotations

from pathlib import Path

import pytest

from gas.doctor.gather import calls
from gas.doctor.snapshot import Reply
from tests.background import PATIENCE
from tests.cluster.certificates import serving_context
from tests.cluster.scripted_server import ScriptedServer, stream


@pytest.mark.parametrize(
    ("largest", "expected"),
    [
        pytest.param(2 * 10**6, Reply(passed=("a", "b")), id="whole"),
        pytest.param(
            10**6, Reply(error="its response cannot be read: the response has more than 1000000 bytes"), id="too-long"
        ),
    ],
)
async def test_a_response_in_several_pieces_is_read_to_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, largest: int, expected: Reply
) -> None:
    monkeypatch.setattr(calls, "_LARGEST_RESPONSE", largest)
    authority, tls = serving_context(tmp_path, "authority")
    files = calls.ClientFiles(certificate=None, key=None, authority=authority)
    async with ScriptedServer(stream(b'{"NodeNames":["a",', b" " * 10**6, b'"b"]}', end="clean"), tls=tls) as server:
        reply = await calls._ask(f"{server.url}/filter", "127.0.0.1", files, b"{}", PATIENCE)
    assert reply == expected
