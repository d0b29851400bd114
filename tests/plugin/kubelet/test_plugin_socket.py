from __future__ import annotations

import gc
import logging
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from grpc import aio

from gas.plugin.kubelet.plugin_socket import CannotServeKubelet, PluginSocket, file_identity, is_served


def names_in(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir()}


class Servers:
    """A starter of servers that listen at ``path``, one after the other. It stops those that still run at the end."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.running: list[aio.Server] = []

    async def listen(self) -> PluginSocket:
        self.running.append(aio.server())
        return await PluginSocket.listen(self.running[-1], self.path)

    async def stop_first(self) -> None:
        await self.running.pop(0).stop(None)


@pytest.fixture
async def servers(socket_directory: Path) -> AsyncIterator[Servers]:
    servers = Servers(socket_directory / "p.sock")
    yield servers
    while servers.running:
        await servers.stop_first()


async def test_a_socket_is_distinguished_from_another_at_its_path(servers: Servers) -> None:
    first = await servers.listen()
    assert first.is_there()
    assert not first.is_replaced()
    second = await servers.listen()
    assert not first.is_there()
    assert first.is_replaced()
    assert second.is_there()


async def test_the_end_of_an_older_server_leaves_the_newer_ones_socket(servers: Servers) -> None:
    first, second = await servers.listen(), await servers.listen()
    first.remove()
    await servers.stop_first()
    assert second.is_there()
    assert await is_served(servers.path)
    second.remove()
    assert file_identity(servers.path) is None


async def test_a_removed_socket_is_neither_there_nor_replaced(servers: Servers) -> None:
    socket = await servers.listen()
    servers.path.unlink()
    assert not socket.is_there()
    assert not socket.is_replaced()
    socket.remove()


async def test_a_new_file_with_the_same_inode_is_another_one(tmp_path: Path) -> None:
    path = tmp_path / "kubelet.sock"
    path.write_text("")
    before = file_identity(path)
    path.unlink()
    path.write_text("")
    assert file_identity(path) != before
    assert file_identity(path) == file_identity(path)
    assert file_identity(tmp_path / "nothing") is None


async def test_a_socket_that_was_left_behind_is_not_served(servers: Servers) -> None:
    await servers.listen()
    assert await is_served(servers.path)
    await servers.stop_first()  # takes away the name it was bound to, which the socket has no more
    assert servers.path.is_socket()
    assert not await is_served(servers.path)
    assert not await is_served(servers.path.with_name("nothing"))


async def test_each_endpoint_is_a_new_name_of_the_socket_in_place_of_the_one_before(servers: Servers) -> None:
    socket = await servers.listen()
    first = socket.new_endpoint()
    second = socket.new_endpoint()
    assert await is_served(second)
    assert socket.is_there()
    assert names_in(servers.path.parent) == {second.name, "p.sock"}
    assert first != second
    socket.remove()
    assert names_in(servers.path.parent) == set()


async def test_endpoints_of_killed_plugins_are_removed_and_those_of_running_ones_stay(servers: Servers) -> None:
    left = (await servers.listen()).new_endpoint()
    await servers.stop_first()
    served = (await servers.listen()).new_endpoint()
    other_resource = servers.path.with_name("p_monitoring-0.sock")
    other_resource.write_text("")
    await servers.listen()
    assert not left.exists()
    assert await is_served(served)
    assert other_resource.exists()


@pytest.mark.parametrize(
    ("directory", "reason"),
    [
        pytest.param("missing", "missing is not a directory; does kubelet have", id="no directory"),
        pytest.param("d" * 100, r"too long for unix sockets \(107 bytes\)", id="path too long"),
    ],
)
async def test_a_socket_that_cannot_be_created_is_an_error_with_the_reason(
    socket_directory: Path, directory: str, reason: str
) -> None:
    with pytest.raises(CannotServeKubelet, match=rf"cannot listen at .*: .*{reason}"):
        await PluginSocket.listen(aio.server(), socket_directory / directory / "p.sock")


async def test_a_server_that_could_not_listen_ends_safely(socket_directory: Path) -> None:
    # A server that was never started crashes the process if its end is written to the debug log.
    kept: list[logging.LogRecord] = []

    class Keeper(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            kept.append(record)

    keeper, root = Keeper(), logging.getLogger()
    level = root.level
    root.addHandler(keeper)
    root.setLevel(logging.DEBUG)
    try:
        with pytest.raises(CannotServeKubelet):
            await PluginSocket.listen(aio.server(), socket_directory / "missing" / "p.sock")
        gc.collect()
    finally:
        root.setLevel(level)
        root.removeHandler(keeper)
    assert not any("dealloc" in str(record.msg) for record in kept)
