"""The call of the extender, as kube-scheduler would make it."""

from __future__ import annotations

from pathlib import Path

from gas.doctor.gather import calls
from gas.doctor.snapshot import Reply
from tests.background import PATIENCE
from tests.cluster.certificates import serving_context
from tests.cluster.scripted_server import ScriptedServer, stream


async def test_a_response_in_several_pieces_is_read_to_its_end(tmp_path: Path) -> None:
    authority, tls = serving_context(tmp_path, "authority")
    files = calls.ClientFiles(certificate=None, key=None, authority=authority)
    async with ScriptedServer(stream(b'{"NodeNames":["a",', b" " * 10**6, b'"b"]}', end="clean"), tls=tls) as server:
        reply = await calls._ask(f"{server.url}/filter", "127.0.0.1", files, b"{}", PATIENCE)
    assert reply == Reply(passed=("a", "b"))
