"""Ports that the tests give to the programs they start."""

from __future__ import annotations

import socket
from contextlib import closing

import pytest

from tests.e2e.ports import free_port


def test_a_free_port_is_kept_for_servers_that_are_started_later_and_restart() -> None:
    port = free_port()
    with closing(socket.socket()) as another, pytest.raises(OSError, match="in use"):
        another.bind(("127.0.0.1", port))
    for address in 2 * ["127.0.0.1", "0.0.0.0"]:
        with closing(socket.create_server((address, port))):
            socket.create_connection(("127.0.0.1", port)).close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port))
