from __future__ import annotations

import gc
import logging
from pathlib import Path

import pytest
from grpc import aio

from gas.plugin.kubelet.plugin_socket import CannotListen, PluginSocket, file_identity, is_served


def names_in(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir()}


async def test_a_socket_is_distinguished_from_another_at_its_path(socket_directory: Path) -> None:
    path = socket_directory / "p.sock"
    older, newer = aio.server(), aio.server()
    first = await PluginSocket.listen(older, path)
    assert first.is_there()
    assert not first.is_replaced()
    second = await PluginSocket.listen(newer, path)
    assert not first.is_there()
    assert first.is_replaced()
    assert second.is_there()
    await older.stop(None)
    await newer.stop(None)


async def test_the_end_of_an_older_server_leaves_the_newer_ones_socket(socket_directory: Path) -> None:
    path = socket_directory / "p.sock"
    older, newer = aio.server(), aio.server()
    first = await PluginSocket.listen(older, path)
    second = await PluginSocket.listen(newer, path)
    first.remove()
    await older.stop(None)
    assert second.is_there()
    assert await is_served(path)
    second.remove()
    await newer.stop(None)
    assert file_identity(path) is None


async def test_a_removed_socket_is_neither_there_nor_replaced(socket_directory: Path) -> None:
    server = aio.server()
    socket = await PluginSocket.listen(server, socket_directory / "p.sock")
    (socket_directory / "p.sock").unlink()
    assert not socket.is_there()
    assert not socket.is_replaced()
    socket.remove()
    await server.stop(None)


async def test_a_new_file_with_the_same_inode_is_another_one(tmp_path: Path) -> None:
    path = tmp_path / "kubelet.sock"
    path.write_text("")
    before = file_identity(path)
    path.unlink()
    path.write_text("")
    assert file_identity(path) != before
    assert file_identity(path) == file_identity(path)
    assert file_identity(tmp_path / "nothing") is None


async def test_a_socket_that_was_left_behind_is_not_served(socket_directory: Path) -> None:
    path = socket_directory / "p.sock"
    server = aio.server()
    await PluginSocket.listen(server, path)
    assert await is_served(path)
    await server.stop(None)  # takes away the name it was bound to, which the socket has no more
    assert path.is_socket()
    assert not await is_served(path)
    assert not await is_served(socket_directory / "nothing")


async def test_each_endpoint_is_a_new_name_of_the_socket_in_place_of_the_one_before(socket_directory: Path) -> None:
    server = aio.server()
    socket = await PluginSocket.listen(server, socket_directory / "p.sock")
    first = socket.new_endpoint()
    second = socket.new_endpoint()
    assert await is_served(second)
    assert socket.is_there()
    assert names_in(socket_directory) == {second.name, "p.sock"}
    assert first != second
    socket.remove()
    assert names_in(socket_directory) == set()
    await server.stop(None)


async def test_endpoints_of_killed_plugins_are_removed_and_those_of_running_ones_stay(socket_directory: Path) -> None:
    path = socket_directory / "p.sock"
    killed, running, newer = aio.server(), aio.server(), aio.server()
    left = (await PluginSocket.listen(killed, path)).new_endpoint()
    await killed.stop(None)
    served = (await PluginSocket.listen(running, path)).new_endpoint()
    other_resource = socket_directory / "p_monitoring-0.sock"
    other_resource.write_text("")
    await PluginSocket.listen(newer, path)
    assert not left.exists()
    assert await is_served(served)
    assert other_resource.exists()
    await running.stop(None)
    await newer.stop(None)


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
    with pytest.raises(CannotListen, match=rf"cannot listen at .*: .*{reason}"):
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
        with pytest.raises(CannotListen):
            await PluginSocket.listen(aio.server(), socket_directory / "missing" / "p.sock")
        gc.collect()
    finally:
        root.setLevel(level)
        root.removeHandler(keeper)
    assert not any("dealloc" in str(record.msg) for record in kept)
