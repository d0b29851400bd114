"""The head and the body of a response leave together; nothing else is delayed."""

from __future__ import annotations

import ssl

import pytest

from gas.extender.metrics import Metrics
from gas.extender.tls import CertificateFiles, ServingCertificates
from tests.extender.authority import Authority

HEAD = b"HTTP/1.1 200 \r\ncontent-length: 2\r\n\r\n"


class Connection:
    """A TLS connection in memory. `sent` returns what has left the server since the last call."""

    def __init__(self, authority: Authority) -> None:
        pair, caller = authority.issue("server"), authority.issue("client")
        files = CertificateFiles(cert=pair.cert, key=pair.key, cacert=authority.cert)
        context = ssl.create_default_context(cafile=authority.cert)
        context.load_cert_chain(caller.cert, caller.key)
        self._to_server, self._to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._wire = ssl.MemoryBIO()
        self.client = context.wrap_bio(self._to_client, self._to_server, server_hostname="127.0.0.1")
        self.server = ServingCertificates(files, Metrics("test")).context.wrap_bio(
            self._to_server, self._wire, server_side=True
        )
        unfinished = [self.client, self.server]
        while unfinished:
            for end in list(unfinished):
                try:
                    end.do_handshake()
                    unfinished.remove(end)
                except ssl.SSLWantReadError:
                    self._to_client.write(self._wire.read())
        self._to_client.write(self._wire.read())

    def sent(self) -> bytes:
        """Return the text that left the server since the last call, in at most one record."""
        records = self._wire.read()
        if not records:
            return b""
        assert len(records) == 5 + int.from_bytes(records[3:5], "big"), "one record"
        self._to_client.write(records)
        return self.client.read(2**16)


@pytest.fixture
def connection(authority: Authority) -> Connection:
    return Connection(authority)


def test_a_head_leaves_with_its_body_in_one_record(connection: Connection) -> None:
    assert connection.server.write(HEAD) == len(HEAD)
    assert connection.sent() == b""
    assert connection.server.write(b"{}") == 2
    assert connection.sent() == HEAD + b"{}"


def test_the_next_head_on_the_connection_waits_for_its_own_body(connection: Connection) -> None:
    for body in (b"{}", b"[]"):
        connection.server.write(HEAD)
        assert connection.sent() == b""
        connection.server.write(body)
        assert connection.sent() == HEAD + body


def test_a_second_piece_of_a_body_leaves_at_once(connection: Connection) -> None:
    connection.server.write(HEAD)
    connection.server.write(b"{")
    assert connection.sent() == HEAD + b"{"
    connection.server.write(b"}")
    assert connection.sent() == b"}"


@pytest.mark.parametrize(
    "piece",
    [
        pytest.param(b"HTTP/1.1 404 \r\ncontent-length: 0\r\n\r\n", id="head-that-may-have-no-body"),
        pytest.param(b"HTTP/1.1 200 \r\nContent-Length: 0\r\n\r\n", id="head-without-body"),
        pytest.param(b"HTTP/1.1 100 \r\n\r\n", id="go-on"),
        pytest.param(b'{"Error":""}', id="body"),
        pytest.param(HEAD + b"{}", id="head-with-body"),
        pytest.param(b"\x00\x00\x01\x01\x04\x00\x00\x00\x01\x88", id="http-2"),
    ],
)
def test_a_head_that_no_body_follows_leaves_at_once(connection: Connection, piece: bytes) -> None:
    connection.server.write(piece)
    assert connection.sent() == piece
