"""Certificates are accepted for their purpose, and wrong ones are refused."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from sandbox.certificates import Authority, PemFiles


def _handshake(server: PemFiles, client: PemFiles | None, trusted: Path, host: str) -> None:
    """Do a TLS handshake in memory. Raises ssl.SSLError if one side does not accept the other."""
    server_context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=trusted)
    server_context.verify_mode = ssl.CERT_REQUIRED
    server_context.load_cert_chain(server.certificate, server.key)
    client_context = ssl.create_default_context(cafile=trusted)
    client_context.verify_flags |= ssl.VERIFY_X509_STRICT
    if client is not None:
        client_context.load_cert_chain(client.certificate, client.key)
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = [
        client_context.wrap_bio(to_client, to_server, server_hostname=host),
        server_context.wrap_bio(to_server, to_client, server_side=True),
    ]
    for _ in range(4):
        for side in sides:
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
def test_server_and_client_of_one_authority_trust_each_other(tmp_path: Path, host: str) -> None:
    authority = Authority(tmp_path)
    _handshake(authority.server(), authority.client(), authority.certificate, host)


@pytest.mark.parametrize(
    ("client", "why"),
    [
        pytest.param(lambda _authority: None, "PEER_DID_NOT_RETURN_A_CERTIFICATE", id="none"),
        pytest.param(
            lambda authority: authority.client(life=timedelta(days=-1)), "certificate has expired", id="expired"
        ),
        pytest.param(
            lambda authority: Authority(authority.directory, "x").client(), "CERTIFICATE_VERIFY", id="foreign"
        ),
        pytest.param(
            lambda authority: authority.server("x"), "unsuitable certificate purpose", id="a-server-certificate"
        ),
    ],
)
def test_a_wrong_client_certificate_is_refused(
    tmp_path: Path, client: Callable[[Authority], PemFiles | None], why: str
) -> None:
    authority = Authority(tmp_path)
    with pytest.raises(ssl.SSLError, match=why):
        _handshake(authority.server(), client(authority), authority.certificate, "localhost")


def test_a_server_certificate_is_valid_for_its_hosts_only(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    server = authority.server(hosts=["gas-service.default.svc"])
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        _handshake(server, authority.client(), authority.certificate, "localhost")


def test_only_the_owner_may_read_a_key(tmp_path: Path) -> None:
    files = Authority(tmp_path).client("scheduler")
    assert files.key == tmp_path / "scheduler.key"
    assert files.key.stat().st_mode & 0o777 == 0o600
