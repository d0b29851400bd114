"""TLS in tests: handshakes in memory, and the certificates of both ends."""

from __future__ import annotations

import ssl
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization

from gas.extender.metrics import Metrics
from gas.extender.tls import CertificateFiles, ServingCertificates
from sandbox.certificates import Authority, PemFiles


def encrypted(key: Path) -> bytes:
    """Return the same private key under a passphrase."""
    loaded = serialization.load_pem_private_key(key.read_bytes(), None)
    return loaded.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"secret"),
    )


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


def client_context(
    authority: Authority, pair: PemFiles | None, version: ssl.TLSVersion | None = None
) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(authority.certificate)
    if pair is not None:
        context.load_cert_chain(pair.certificate, pair.key)
    if version is not None:
        context.minimum_version = context.maximum_version = version
    return context


def serving_certificates(
    authority: Authority, metrics: Metrics, *, allowed_names: frozenset[str] = frozenset()
) -> ServingCertificates:
    pair = authority.server()
    files = CertificateFiles(pair.certificate, pair.key, authority.certificate)
    return ServingCertificates(files, metrics, allowed_names=allowed_names)


def with_dns_names(authority: Authority, name: str, *dns: str) -> PemFiles:
    """Write a client's certificate that has DNS names as well."""
    files = authority.client(name)
    plain = x509.load_pem_x509_certificate(files.certificate.read_bytes())
    certificate = (
        x509.CertificateBuilder(extensions=list(plain.extensions))
        .subject_name(plain.subject)
        .issuer_name(plain.issuer)
        .public_key(plain.public_key())
        .serial_number(1)
        .not_valid_before(plain.not_valid_before_utc)
        .not_valid_after(plain.not_valid_after_utc)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(each) for each in dns]), critical=False)
        .sign(authority.pair.key, hashes.SHA256())
    )
    files.certificate.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    return files
