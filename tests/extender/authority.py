"""Throwaway certificates for tests."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from gas.extender.metrics import Metrics
from gas.extender.tls import CertificateFiles, ServingCertificates


@dataclass(frozen=True)
class Pair:
    """PEM files of one certificate and its private key."""

    cert: Path
    key: Path


class Authority:
    """A certificate authority whose files lie in ``folder``."""

    def __init__(self, folder: Path, name: str = "authority") -> None:
        self.folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        constraint = x509.BasicConstraints(ca=True, path_length=None)
        certificate = (
            _builder(self._name, self._name, self._key, timedelta(days=30))
            .add_extension(constraint, critical=True)
            .sign(self._key, hashes.SHA256())
        )
        self.cert = folder / f"{name}.crt"
        self.cert.write_bytes(_pem(certificate))

    def issue(
        self, name: str, *, dns: tuple[str, ...] = (), lasts: timedelta = timedelta(days=1), file: str = ""
    ) -> Pair:
        """Issue a certificate for ``name`` (its CN), valid for servers on loopback and for clients."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        names = [*(x509.DNSName(each) for each in dns), x509.IPAddress(ip_address("127.0.0.1"))]
        certificate = (
            _builder(subject, self._name, key, lasts)
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        pair = Pair(self.folder / f"{file or name}.crt", self.folder / f"{file or name}.key")
        pair.cert.write_bytes(_pem(certificate))
        pair.key.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        return pair


def encrypted(key: Path) -> bytes:
    """Return the same private key under a passphrase."""
    loaded = serialization.load_pem_private_key(key.read_bytes(), None)
    return loaded.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"secret"),
    )


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, lasts: timedelta
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=2))
        .not_valid_after(now + lasts)
    )


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def shake_hands(
    server: ServingCertificates, client: ssl.SSLContext, session: ssl.SSLSession | None = None
) -> tuple[ssl.SSLObject, ssl.SSLObject]:
    """Return both ends after a handshake in memory, as a port does it. Raises ssl.SSLError if the client is refused."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    caller = client.wrap_bio(to_client, to_server, server_hostname="127.0.0.1", session=session)
    answerer = server.context.wrap_bio(to_server, to_client, server_side=True)
    unfinished = [caller, answerer]
    for _ in range(10):
        for end in list(unfinished):
            try:
                end.do_handshake()
                unfinished.remove(end)
            except ssl.SSLWantReadError:
                pass
            except ssl.SSLError as error:
                if end is answerer:
                    server.handshake_failed(error)
                raise
        if not unfinished:
            if not server.admits(answerer.getpeercert() or {}):
                raise ssl.SSLError("it may not call")
            return caller, answerer
    raise AssertionError("the handshake does not end")


def client_context(authority: Authority, pair: Pair | None, version: ssl.TLSVersion | None = None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(authority.cert)
    if pair is not None:
        context.load_cert_chain(pair.cert, pair.key)
    if version is not None:
        context.minimum_version = context.maximum_version = version
    return context


def serving_certificates(
    authority: Authority, metrics: Metrics, *, allowed_names: frozenset[str] = frozenset()
) -> ServingCertificates:
    pair = authority.issue("server")
    files = CertificateFiles(pair.cert, pair.key, authority.cert)
    return ServingCertificates(files, metrics, allowed_names=allowed_names, alpn=("h2", "http/1.1"))
