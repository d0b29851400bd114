"""The sockets that daemons listen on."""

from __future__ import annotations

import errno
import socket

import pytest

from gas.daemon.listening import CannotListen, listen


def test_a_free_port_is_opened_and_accepts_connections() -> None:
    with listen("127.0.0.1", 0, flag="port") as opened:
        socket.create_connection(opened.getsockname()[:2], timeout=5).close()


def test_small_responses_do_not_wait_for_an_acknowledgement() -> None:
    with listen("127.0.0.1", 0, flag="port") as opened:
        opened.setblocking(True)
        with socket.create_connection(opened.getsockname()[:2], timeout=5):
            accepted, _ = opened.accept()
            with accepted:
                assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_open_connections_can_be_shut_down() -> None:
    with listen("127.0.0.1", 0, flag="port") as opened:
        opened.setblocking(True)
        with socket.create_connection(opened.getsockname()[:2], timeout=5) as client:
            accepted, _ = opened.accept()
            opened.break_off()
            assert client.recv(1) == b""
            accepted.close()
            opened.break_off()


def test_without_an_address_the_port_listens_on_ipv4_and_ipv6() -> None:
    with listen("", 0, flag="port") as opened:
        port = opened.getsockname()[1]
        socket.create_connection(("127.0.0.1", port), timeout=5).close()
        if opened.family == socket.AF_INET6:
            socket.create_connection(("::1", port), timeout=5).close()


def test_without_ipv6_the_port_listens_on_ipv4(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "has_dualstack_ipv6", lambda: False)
    with listen("", 0, flag="port") as opened:
        assert opened.family == socket.AF_INET


@pytest.mark.parametrize("address", ["127.0.0.1", ""])
def test_a_port_in_use_is_an_error_that_names_the_flag(address: str) -> None:
    with listen(address, 0, flag="port") as taken:
        port = taken.getsockname()[1]
        with pytest.raises(
            CannotListen, match=rf"^--metrics-port: cannot listen on port {port}.*: it is in use"
        ) as error:
            listen(address, port, flag="metrics-port")
    assert error.value.exit_code != 0


def test_an_address_of_another_machine_is_an_error() -> None:
    with pytest.raises(CannotListen, match=r"port 0 of 203.0.113.77: this machine does not have that address"):
        listen("203.0.113.77", 0, flag="port")


@pytest.mark.parametrize(
    ("code", "sentence"),
    [(errno.EACCES, "it is not permitted; ports below 1024"), (errno.EMFILE, "Too many open files")],
)
def test_other_failures_are_errors(monkeypatch: pytest.MonkeyPatch, code: int, sentence: str) -> None:
    def refuse(*_args: object, **_options: object) -> None:
        raise OSError(code, "refused")

    monkeypatch.setattr(socket, "create_server", refuse)
    with pytest.raises(CannotListen, match=f"--port: cannot listen on port 80: {sentence}"):
        listen("", 80, flag="port")
